//! Finding the journal of a filesystem: the blocks of its inode, or of the copy of that inode's map which the
//! superblock keeps for the day when the inode is damaged.

use std::sync::Arc;

use super::{Journal, LogBlocks};
use crate::disk::extent::Node;
use crate::disk::inode::{FileKind, Inode, InodeFlags};
use crate::disk::superblock::{JOURNAL_BACKUP_BLOCKS, Superblock};
use crate::error::{Defect, Error, Place, Result};
use crate::ids::{BlockRun, InodeNumber, LogicalBlock};
use crate::image::Image;
use crate::num::{index, join32};
use crate::tree::{inode, map};
use crate::txn::{OverlayOptions, Transaction};

/// A journal that was found inside its filesystem.
pub struct FoundJournal {
    /// The journal.
    pub journal: Journal,
    /// What is wrong with the journal's inode, if the copy of its map had to be used instead.
    pub inode_damage: Option<Error>,
}

/// Opens the journal inside a filesystem.
///
/// If its inode, or what that leads to, is damaged, the copy of the inode's map in the superblock is tried. A
/// filesystem without a journal, or with one on another device, is [`Error::Invalid`].
pub fn open_internal(image: &Image) -> Result<FoundJournal> {
    let superblock = image.superblock();
    let number = superblock
        .journal_inode()
        .ok_or_else(|| Error::Invalid("the filesystem has no journal inside it".to_owned()))?;
    let txn = image.overlay(OverlayOptions::default());
    let opened = inode::read(&txn, number).and_then(|inode| open_inode(image, &txn, &inode));
    match opened {
        Ok(journal) => Ok(FoundJournal { journal, inode_damage: None }),
        Err(damage) if damage.is_corruption() => {
            let backup = backup_inode(superblock, number).map(|inode| open_inode(image, &txn, &inode));
            match backup {
                Some(Ok(journal)) => Ok(FoundJournal { journal, inode_damage: Some(damage) }),
                _ => Err(damage),
            }
        }
        Err(error) => Err(error),
    }
}

/// Opens the journal by the copy of its inode's map in the superblock, whatever the inode says. A superblock without
/// such a copy is [`Error::Invalid`].
pub fn open_by_superblock(image: &Image) -> Result<Journal> {
    let superblock = image.superblock();
    let inode = superblock.journal_inode().and_then(|number| backup_inode(superblock, number));
    let none = || Error::Invalid("the superblock has no copy of a journal's inode".to_owned());
    open_inode(image, &image.overlay(OverlayOptions::default()), &inode.ok_or_else(none)?)
}

fn open_inode(image: &Image, txn: &dyn Transaction, inode: &Inode) -> Result<Journal> {
    let runs = journal_runs(txn, inode)?;
    let block_size = txn.layout().geometry.block_size();
    Journal::open(LogBlocks::internal(Arc::clone(image.store()), block_size, &runs)?)
}

/// Every block of the journal's inode, in order. A journal has no holes: it could not be written without changing
/// the filesystem that it protects.
fn journal_runs(txn: &dyn Transaction, inode: &Inode) -> Result<Vec<BlockRun>> {
    let view = inode.view();
    let place = Place::Inode(inode.number());
    let wrong = |text: &str| Err(Defect::Contradiction(text.to_owned()).at(place.clone()));
    if view.kind() != Some(FileKind::Regular) || view.links() == 0 {
        return wrong("the journal's inode is not a regular file in use");
    }
    let geometry = &txn.layout().geometry;
    let blocks = view.size() >> geometry.block_bits();
    Defect::check_range("i_size in blocks", blocks, 1, geometry.blocks_count())
        .map_err(|defect| defect.at(place.clone()))?;
    let mut runs: Vec<BlockRun> = Vec::new();
    let mut next = 0;
    for segment in map::segments(txn, inode, LogicalBlock(0)) {
        let segment = segment?;
        if next >= blocks {
            break;
        }
        let (logical, map::State::Written(start)) = (u64::from(segment.logical.0), segment.state) else {
            return wrong("blocks of the journal were never written");
        };
        if logical != next {
            return wrong("the journal's inode has a hole");
        }
        let length = segment.length.min(blocks.saturating_sub(next));
        next = next.saturating_add(length);
        match runs.last_mut() {
            Some(last) if last.end() == Some(start) => last.length = last.length.saturating_add(length),
            _ => runs.push(BlockRun { start, length }),
        }
    }
    if next < blocks {
        return wrong("the journal's inode has a hole at its end");
    }
    Ok(runs)
}

/// The journal's inode as the superblock remembers it: map and size. The copy does not say which kind of map it is,
/// but block numbers do not look like the root of an extent tree: the second of them would be a handful.
fn backup_inode(superblock: &Superblock, number: InodeNumber) -> Option<Inode> {
    if superblock.s_jnl_backup_type != JOURNAL_BACKUP_BLOCKS {
        return None;
    }
    let [words @ .., size_high, size_low] = &superblock.s_jnl_blocks;
    let mut inode = Inode::fresh(number, index(superblock.inode_size().into()), 0);
    for (slot, word) in inode.map_mut().as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *slot = word.get().to_le_bytes();
    }
    let extents = Node::parse(inode.view().map()).is_ok();
    inode.set_flags(if extents { InodeFlags::EXTENTS } else { InodeFlags::empty() });
    inode.set_mode(0o100_600);
    inode.set_links(1);
    inode.set_size(join32(size_low.get(), size_high.get()));
    Some(inode)
}
