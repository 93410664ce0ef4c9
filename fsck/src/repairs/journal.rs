//! The journal and the orphans.

use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::inode::{Inode, InodeFlags};
use ext4kit_format::disk::orphan;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::index64;
use ext4kit_format::tree::map::State;
use ext4kit_format::tree::{group, inode, map};
use ext4kit_format::txn::{BlockKind, Transaction, create};
use ext4kit_format::{BlockRun, InodeNumber, LogicalBlock, Place};
use rustc_hash::FxHashSet;

use super::workshop::Workshop;
use super::{fields, superblock};
use crate::repair::Repair;

/// Puts a problem of the journal or of orphans right.
pub fn apply(shop: &mut Workshop<'_>, place: &Place, repair: &Repair) -> Result<()> {
    match repair {
        Repair::ClearOrphans => finish_orphans(shop),
        Repair::RecreateJournal => drop_journal(shop),
        Repair::ClearFeature(name) => clear_feature(shop, name),
        Repair::SetField { field: "s_journal_inum", .. } => group::update_superblock(shop, |superblock| {
            superblock.s_journal_inum.set(0);
            superblock.s_journal_dev.set(0);
        }),
        other => Err(Error::Invalid(format!("{place}: {other} is no repair of a journal"))),
    }
}

fn clear_feature(shop: &mut Workshop<'_>, name: &str) -> Result<()> {
    superblock::switch(shop.overlay(), name, false, |superblock| {
        if name == "orphan_file" {
            superblock.s_orphan_file_inum.set(0);
        }
    })
}

/// Ends what waits on the list and in the file of orphans: files without a name are freed, half-done truncates are
/// finished.
fn finish_orphans(shop: &mut Workshop<'_>) -> Result<()> {
    let geometry = shop.layout().geometry.clone();
    let mut next = shop.superblock.s_last_orphan.get();
    let mut met: FxHashSet<InodeNumber> = FxHashSet::default();
    while let Some(number) = InodeNumber::new(next) {
        let valid = geometry.inode_place(number).is_some() && number.get() >= geometry.first_inode();
        if !valid || !met.insert(number) {
            break;
        }
        next = inode::read_unverified(shop, number)?.view().deletion_time();
        finish(shop, number)?;
    }
    empty_orphan_file(shop)?;
    group::update_superblock(shop, |superblock| {
        superblock.s_last_orphan.set(0);
        let mut features = superblock.features();
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        superblock.set_features(features);
    })
}

fn finish(shop: &mut Workshop<'_>, number: InodeNumber) -> Result<()> {
    let mut orphan = inode::read_unverified(shop, number)?;
    if orphan.view().links() == 0 {
        return fields::clear_inode(shop, number);
    }
    orphan.set_deletion_time(0);
    cut_to_size(shop, &mut orphan)?;
    inode::write_over(shop, &orphan)
}

/// Finishes a truncate: unmaps what lies behind the size, and zeroes the rest of the last block.
fn cut_to_size(shop: &mut Workshop<'_>, file: &mut Inode) -> Result<()> {
    if file.view().flags().contains(InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    let geometry = &shop.layout().geometry;
    let (bits, length) = (geometry.block_bits(), geometry.block_length());
    let size = file.view().size();
    let kept = size.div_ceil(1 << bits);
    map::remove(shop, file, kept, u64::MAX)?;
    let inside = index64(size & (1u64 << bits).saturating_sub(1));
    let Some(last) = u32::try_from(size >> bits).ok().filter(|_| inside > 0) else { return Ok(()) };
    if let State::Written(block) = map::lookup(shop, file, LogicalBlock(last))?.state {
        let mut bytes = vec![0; length];
        shop.read_data(block, &mut bytes)?;
        bytes.get_mut(inside..).unwrap_or_default().fill(0);
        shop.write_data(block, &bytes)?;
    }
    Ok(())
}

/// Ends what the orphan file names, and empties its slots.
fn empty_orphan_file(shop: &mut Workshop<'_>) -> Result<()> {
    let has = shop.superblock.features().compat.contains(Compat::ORPHAN_FILE);
    let Some(number) = InodeNumber::new(shop.superblock.s_orphan_file_inum.get()).filter(|_| has) else {
        return Ok(());
    };
    let geometry = shop.layout().geometry.clone();
    let holder = inode::read_unverified(shop, number)?;
    let most = holder.view().size() >> geometry.block_bits();
    let mut blocks = Vec::new();
    for segment in map::segments(shop, &holder, LogicalBlock(0)) {
        let Some(run) = segment?.run().filter(|run: &BlockRun| geometry.contains_run(*run)) else { break };
        blocks.extend(run.iter());
        if ext4kit_format::num::wide(blocks.len()) >= most {
            break;
        }
    }
    for block in blocks {
        let bytes = shop.read(block, BlockKind::Plain)?;
        let named: Vec<InodeNumber> = orphan::orphans(&bytes).map(|(_, inode)| inode).collect();
        for orphan in named {
            if geometry.inode_place(orphan).is_some() && orphan.get() >= geometry.first_inode() {
                finish(shop, orphan)?;
            }
        }
        create(shop, block, BlockKind::Orphan(holder.owner()), orphan::create)?
            .map_err(|defect| defect.at(Place::OrphanBlock(block)))?;
    }
    Ok(())
}

/// Gives up a journal that cannot be used. Its inode is emptied; a new journal takes the same inode.
fn drop_journal(shop: &mut Workshop<'_>) -> Result<()> {
    let number = shop.superblock.journal_inode();
    if let Some(number) = number.filter(|number| *number == InodeNumber::JOURNAL) {
        fields::clear_inode(shop, number)?;
    }
    group::update_superblock(shop, |superblock| {
        let mut features = superblock.features();
        features.compat.remove(Compat::HAS_JOURNAL);
        features.incompat.remove(Incompat::RECOVER);
        superblock.set_features(features);
        superblock.s_journal_inum.set(0);
        superblock.s_journal_dev.set(0);
        superblock.s_jnl_backup_type = 0;
        for slot in &mut superblock.s_jnl_blocks {
            slot.set(0);
        }
    })
}
