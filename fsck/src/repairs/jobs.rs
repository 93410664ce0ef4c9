//! What is asked for besides repairs, and done when nothing is wrong any more: directories packed, extent trees made
//! narrow, block maps turned into extents, and a journal in the place of one that was given up.

use ext4kit_format::bytes::le16;
use ext4kit_format::create::{JournalParameters, Parameters, create_journal, default_journal_blocks};
use ext4kit_format::disk::extent::{block_capacity, capacity};
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::inode::{FileKind, Inode, InodeFlags};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::wide;
use ext4kit_format::tree::{inode, map};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{BlockNumber, InodeNumber};

use super::workshop::Workshop;
use super::{directories, maps, superblock};
use crate::checks::context::known;
use crate::checks::special;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of e2fsck")]
pub struct Jobs {
    /// `-D`: every directory is packed, and gets its index anew.
    pub pack_directories: bool,
    /// `-E optimize_extents`: extent trees that could be narrower are built anew.
    pub narrow_extents: bool,
    /// `-E bmap2extent`: files with block maps get extents.
    pub to_extents: bool,
    /// `-E unshare_blocks`: files that share blocks on purpose get their own.
    pub unshare: bool,
}

/// Does what is asked for; how many files were changed. Files that there is no room to change stay as they are.
pub fn run(shop: &mut Workshop<'_>, jobs: Jobs, new_journal: bool) -> Result<u64> {
    let mut changed = 0u64;
    if new_journal {
        recreate_journal(shop)?;
        changed = changed.saturating_add(1);
    }
    let extents = shop.layout().features().incompat.contains(Incompat::EXTENTS);
    let jobs = Jobs { to_extents: jobs.to_extents && extents, ..jobs };
    if !jobs.pack_directories && !jobs.narrow_extents && !jobs.to_extents {
        return Ok(changed);
    }
    let last = u32::try_from(wide(shop.knowledge.states.len())).unwrap_or(u32::MAX);
    for number in (1..=last).filter_map(InodeNumber::new) {
        if shop.state(number) & known::USED == 0 {
            continue;
        }
        match one(shop, jobs, number) {
            Ok(done) => changed = changed.saturating_add(done.into()),
            Err(Error::NoSpace | Error::NoInodes) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(changed)
}

fn one(shop: &mut Workshop<'_>, jobs: Jobs, number: InodeNumber) -> Result<bool> {
    let first = shop.layout().geometry.first_inode();
    if number != InodeNumber::ROOT && number.get() < first {
        return Ok(false);
    }
    let mut file = inode::read_unverified(shop, number)?;
    let flags = file.view().flags();
    let kind = file.view().kind();
    let mapped = match kind {
        Some(FileKind::Regular | FileKind::Directory) => true,
        Some(FileKind::Symlink) => !special::is_fast_symlink(file.view()),
        _ => false,
    };
    if !mapped || flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(false);
    }
    let plain = !flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPTED);
    let one_block = file.view().size() <= shop.layout().geometry.block_size().into();
    if jobs.pack_directories && kind == Some(FileKind::Directory) && plain && !one_block {
        directories::rebuild(shop, file)?;
        return Ok(true);
    }
    if jobs.to_extents && !map::uses_extents(&file) {
        maps::rebuild_plain(shop, &mut file, true)?;
        return Ok(true);
    }
    if jobs.narrow_extents && map::uses_extents(&file) && could_be_narrower(shop, &file)? {
        maps::rebuild_plain(shop, &mut file, false)?;
        return Ok(true);
    }
    Ok(false)
}

/// Whether an extent tree has more nodes than its extents need.
fn could_be_narrower(shop: &Workshop<'_>, file: &Inode) -> Result<bool> {
    // The depth is in the header of the root.
    if le16(file.view().map(), 6).unwrap_or(0) == 0 {
        return Ok(false);
    }
    let nodes = wide(map::own_blocks(shop, file)?.len());
    let mut extents = 0u64;
    let mut end: Option<(u64, BlockNumber, bool)> = None;
    for piece in maps::sound_pieces(shop, file) {
        let next = (piece.logical, BlockNumber(piece.physical), piece.unwritten);
        if end != Some(next) {
            extents = extents.saturating_add(1);
        }
        let behind = piece.physical.saturating_add(piece.length);
        end = Some((piece.logical.saturating_add(piece.length), BlockNumber(behind), piece.unwritten));
    }
    let root = u64::from(capacity(file.view().map()));
    let node = u64::from(block_capacity(shop.layout().geometry.block_size())).max(2);
    let (mut needed, mut level) = (0u64, extents);
    while level > root {
        level = level.div_ceil(node);
        needed = needed.saturating_add(level);
    }
    Ok(needed < nodes)
}

/// Makes a journal of the usual size inside the filesystem.
fn recreate_journal(shop: &mut Workshop<'_>) -> Result<()> {
    let geometry = shop.layout().geometry.clone();
    let Some(blocks) = default_journal_blocks(geometry.blocks_count()) else { return Ok(()) };
    let mut parameters = Parameters::new(geometry.blocks_count(), geometry.block_size(), geometry.features());
    parameters.identity.uuid = shop.superblock.s_uuid;
    parameters.time = shop.now.into();
    superblock::switch(shop.overlay(), "has_journal", true, |_| ())?;
    create_journal(shop, &parameters, JournalParameters { blocks, fast_commit_blocks: 0 })
}
