//! The superblock, its copies, and the journal's superblock.

use std::sync::Arc;

use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::journal::{Journal, LogBlocks};
use ext4kit_format::num::{index, wide};
use ext4kit_format::{GroupNumber, Place};

use super::Linter;
use crate::finding::LintProblem as Problem;
use crate::opening::journal_runs;

/// Copies that are looked at. Without `sparse_super` every group has one, and they are too many.
const MOST_COPIES: usize = 64;
/// Where `s_reserved` begins.
const RESERVED_AT: usize = 0x288;

/// Looks at the superblock.
pub fn lint(linter: &mut Linter<'_>) {
    let superblock = &linter.opened.superblock;
    if let Some(place) = superblock.s_reserved.iter().position(|word| word.get() != 0) {
        let offset = place.saturating_mul(4).saturating_add(RESERVED_AT);
        linter.find(Place::Superblock, Problem::ReservedSet { offset });
    }
    copies(linter);
    let journal_blocks = journal(linter);
    overhead(linter, journal_blocks);
}

fn copies(linter: &mut Linter<'_>) {
    let opened = linter.opened;
    let geometry = linter.geometry();
    for group in geometry.backup_groups().into_iter().take(MOST_COPIES) {
        let copy = geometry.superblock_copy(group).and_then(|block| opened.source.block(block).ok());
        let Some(copy) = copy.and_then(|bytes| Superblock::parse(&bytes).ok()) else { continue };
        if let Some(field) = first_difference(&opened.superblock, &copy) {
            linter.find(Place::Superblock, Problem::BackupOutdated { group, field });
        }
        let stored = copy.s_block_group_nr.get();
        // The field has 16 bits.
        if GroupNumber(stored.into()) != GroupNumber(group.0 & 0xffff) {
            linter.find(Place::Superblock, Problem::BackupMisnumbered { group, stored });
        }
    }
}

/// The first field that differs, of those that only tools change; what a mounted filesystem changes goes to the primary
/// alone.
fn first_difference(primary: &Superblock, copy: &Superblock) -> Option<&'static str> {
    let features = |superblock: &Superblock| {
        let mut features = superblock.features();
        features.incompat.remove(Incompat::RECOVER);
        // A kernel sets these in the primary when it first needs them.
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT | RoCompat::LARGE_FILE);
        features.compat.remove(Compat::EXT_ATTR);
        features
    };
    let same = [
        ("s_uuid", primary.s_uuid == copy.s_uuid),
        ("s_volume_name", primary.s_volume_name == copy.s_volume_name),
        ("set of features", features(primary) == features(copy)),
        ("s_inodes_count", primary.s_inodes_count == copy.s_inodes_count),
        ("s_blocks_count", primary.blocks_count() == copy.blocks_count()),
        ("s_r_blocks_count", primary.s_r_blocks_count_lo == copy.s_r_blocks_count_lo),
        ("s_reserved_gdt_blocks", primary.s_reserved_gdt_blocks == copy.s_reserved_gdt_blocks),
        ("s_journal_inum", primary.s_journal_inum == copy.s_journal_inum),
        ("s_hash_seed", primary.s_hash_seed == copy.s_hash_seed),
        ("s_default_mount_opts", primary.s_default_mount_opts == copy.s_default_mount_opts),
        ("s_checksum_seed", primary.s_checksum_seed == copy.s_checksum_seed),
    ];
    same.into_iter().find(|(_, same)| !same).map(|(field, _)| field)
}

/// Looks at an internal journal; how many blocks its file has.
fn journal(linter: &mut Linter<'_>) -> Option<u64> {
    let opened = linter.opened;
    let number = opened.superblock.journal_inode()?;
    let runs = journal_runs(&opened.source.overlay, number).ok()?;
    let blocks = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.length));
    let block_size = linter.geometry().block_size();
    let log = LogBlocks::internal(Arc::clone(opened.source.store()), block_size, &runs).ok()?;
    let journal = Journal::open(log).ok()?;
    let superblock = journal.superblock();
    let place = || Place::JournalBlock(0);
    if !superblock.has_features() {
        linter.find(place(), Problem::JournalOld {});
    }
    let stored = superblock.s_errno.get();
    if stored != 0 {
        linter.find(place(), Problem::JournalError { stored });
    }
    let stored = superblock.s_maxlen.get();
    if u64::from(stored) < blocks {
        linter.find(place(), Problem::JournalShort { stored, blocks });
    }
    Some(blocks)
}

/// Compares the count of overhead with what the metadata takes. Clusters of many blocks are shared by metadata of several
/// kinds, which nobody counts alike: there it is not looked at.
fn overhead(linter: &mut Linter<'_>, journal_blocks: Option<u64>) {
    let geometry = linter.geometry();
    let stored = linter.opened.superblock.s_overhead_clusters.get();
    if stored == 0 || geometry.cluster_bits() > 0 && geometry.blocks_per_cluster() > 1 {
        return;
    }
    let mut counted = geometry.first_data_block().0;
    for group in geometry.groups() {
        let base = geometry.base_metadata(group).runs().fold(0u64, |sum, run| sum.saturating_add(run.length));
        // Two bitmaps.
        counted = counted.saturating_add(base).saturating_add(2);
        counted = counted.saturating_add(geometry.inode_table_blocks().into());
    }
    counted = counted.saturating_add(journal_blocks.unwrap_or(0));
    if u64::from(stored) != counted {
        linter.find(Place::Superblock, Problem::OverheadWrong { stored, counted });
    }
}

const _: () = assert!(std::mem::offset_of!(Superblock, s_reserved) == RESERVED_AT);

/// Of the bytes of a block, the place of the first that is not zero.
pub(super) fn first_set(bytes: &[u8]) -> Option<u64> {
    bytes.iter().position(|byte| *byte != 0).map(wide)
}

/// A record of a block.
pub(super) fn record(bytes: &[u8], offset: usize, size: u32) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(index(size))?)
}
