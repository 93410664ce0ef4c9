//! The copies of a superblock that a device holds, and which of them to believe.
//!
//! A copy counts if its checksum is right, its geometry is possible and fits the device, and it lies where that
//! geometry has a copy for the group that it names. Those that agree on the geometry stand together; the largest such
//! party wins, because leftovers of an older filesystem are fewer, overwritten as the newer one filled up.

use crate::checks::proof;
use ext4kit_format::BlockNumber;
use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::superblock::{SIZE, Superblock};
use ext4kit_format::error::{Defect, Error, Place, Result};
use ext4kit_format::geometry::Geometry;
use ext4kit_format::image::SuperblockChoice;
use ext4kit_format::image::{check_readable, read_superblock};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::low16;
use ext4kit_format::store::Store;
use zerocopy::{FromBytes, IntoBytes};

/// A copy that counts.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Where it lies, in blocks of its own size.
    pub block: BlockNumber,
    /// The copy.
    pub superblock: Superblock,
    /// What it describes.
    pub layout: Layout,
}

/// The most places looked at for each block size beyond the usual ones.
const MOST_GROUPS: u64 = 1024;

/// A superblock that can be read and written as it is, without a look at its checksum.
pub fn layout_of(store: &dyn Store, superblock: &Superblock) -> Result<Layout> {
    check_readable(superblock.features())?;
    let layout = Layout::new(superblock)?;
    // Memory is sized by these counts; a real filesystem may be cut short, but not to less than its tables.
    let inodes =
        u64::from(layout.geometry.inodes_count()).saturating_mul(layout.geometry.inode_size().into());
    if inodes > store.size() || layout.geometry.blocks_count() >> 3 > store.size() {
        return Err(Defect::Contradiction(format!(
            "inode tables of {inodes} bytes do not fit a device of {} bytes",
            store.size()
        ))
        .at(Place::Superblock));
    }
    Ok(layout)
}

/// The copy in a block, if it counts there.
pub fn copy_at(store: &dyn Store, block: BlockNumber, block_size: u32) -> Option<Copy> {
    let superblock = read_superblock(store, SuperblockChoice::Copy { block, block_size }).ok()?;
    judge(store, superblock, block, block_size)
}

/// What was read from a block, if it counts as a copy there.
pub fn judge(store: &dyn Store, superblock: Superblock, block: BlockNumber, block_size: u32) -> Option<Copy> {
    superblock.verify_checksum().ok()?;
    let layout = layout_of(store, &superblock).ok()?;
    let geometry = &layout.geometry;
    if geometry.block_size() != block_size {
        return None;
    }
    let group = geometry.group_of(block)?;
    let named = superblock.s_block_group_nr.get();
    // The original revision names no group.
    let agrees = named == low16(group.0) || (named == 0 && superblock.is_original_revision());
    let placed = group.0 > 0 && geometry.superblock_copy(group) == Some(block);
    (agrees && placed).then_some(Copy { block, superblock, layout })
}

/// Every copy that can be found by the places where copies lie. `hint` is a superblock that need not be sound: its
/// block size and size of groups are tried as well.
pub fn find(store: &dyn Store, hint: Option<&Superblock>) -> Vec<Copy> {
    let mut found = Vec::new();
    for bits in 10..=Geometry::MAX_BLOCK_BITS {
        look(store, 1 << bits, usual_groups(), 8 << bits, &mut found);
    }
    if let Some(hint) = hint {
        let bits = hint.s_log_block_size.get().min(6).saturating_add(10);
        let per_group = u64::from(hint.s_blocks_per_group.get());
        if per_group >= 8 && per_group != 8 << bits {
            look(store, 1 << bits, usual_groups(), per_group, &mut found);
        }
    }
    if found.is_empty() {
        for bits in 10..=Geometry::MAX_BLOCK_BITS {
            let per_group = 8u64 << bits;
            // The last group may hold the only copy (sparse_super2), and without sparse_super every one has one.
            let groups = (store.size() >> bits).checked_div(per_group).unwrap_or(0);
            let last = groups.saturating_sub(2)..=groups;
            let places: Vec<u64> = (1..=groups.min(MOST_GROUPS)).chain(last).collect();
            look(store, 1 << bits, places.into_iter(), per_group, &mut found);
        }
    }
    found.sort_by_key(|copy| (copy.layout.geometry.block_bits(), copy.block));
    found.dedup_by_key(|copy| (copy.layout.geometry.block_bits(), copy.block));
    found
}

/// Group 1 and the powers of 3, 5 and 7, which hold copies with sparse_super.
fn usual_groups() -> impl Iterator<Item = u64> {
    let powers = |base: u64| std::iter::successors(Some(base), move |power| power.checked_mul(base));
    [1].into_iter().chain([3, 5, 7].into_iter().flat_map(powers))
}

fn look(
    store: &dyn Store,
    block_size: u32,
    groups: impl Iterator<Item = u64>,
    per_group: u64,
    found: &mut Vec<Copy>,
) {
    let blocks = store.size().checked_div(block_size.into()).unwrap_or(0);
    for group in groups {
        let start = group.saturating_mul(per_group);
        // Powers ascend only within one base.
        if start >= blocks {
            continue;
        }
        found.extend(copy_at(store, BlockNumber(start), block_size));
        if block_size == 1024 {
            found.extend(copy_at(store, BlockNumber(start.saturating_add(1)), block_size));
        }
    }
}

/// The copies of the party that wins, the one written last in front. Copies of the filesystem that `hint` names come
/// before all others.
pub fn vote<'a>(copies: &'a [Copy], hint: Option<&Superblock>) -> Vec<&'a Copy> {
    let mut parties: Vec<Vec<&Copy>> = Vec::new();
    for copy in copies {
        match parties.iter_mut().find(|party| party.iter().any(|other| same_filesystem(other, copy))) {
            Some(party) => party.push(copy),
            None => parties.push(vec![copy]),
        }
    }
    let named = |party: &[&Copy]| {
        hint.is_some_and(|hint| party.iter().any(|copy| copy.superblock.s_uuid == hint.s_uuid))
    };
    let mut best: Vec<&Copy> = Vec::new();
    for party in parties {
        if (named(&party), party.len()) > (named(&best), best.len()) {
            best = party;
        }
    }
    best.sort_by_key(|copy| std::cmp::Reverse((written(&copy.superblock), std::cmp::Reverse(copy.block))));
    best
}

fn same_filesystem(one: &Copy, other: &Copy) -> bool {
    one.superblock.s_uuid == other.superblock.s_uuid && same_shape(&one.superblock, &other.superblock)
}

/// When a superblock was last written, in seconds.
fn written(superblock: &Superblock) -> u64 {
    u64::from(superblock.s_wtime.get()) | u64::from(superblock.s_wtime_hi) << 32
}

/// Whether two superblocks describe the same places for everything.
pub fn same_shape(one: &Superblock, other: &Superblock) -> bool {
    let shape = |superblock: &Superblock| {
        let features = superblock.features();
        (
            [
                superblock.s_log_block_size.get(),
                superblock.s_log_cluster_size.get(),
                superblock.s_first_data_block.get(),
                superblock.s_blocks_per_group.get(),
                superblock.s_inodes_per_group.get(),
                superblock.inode_size().into(),
                superblock.descriptor_size().into(),
                superblock.s_reserved_gdt_blocks.get().into(),
                superblock.s_first_meta_bg.get(),
            ],
            superblock.blocks_count(),
            superblock.s_backup_bgs.map(zerocopy::little_endian::U32::get),
            features.incompat & (Incompat::BIT64 | Incompat::META_BG),
            features.ro_compat & (RoCompat::SPARSE_SUPER | RoCompat::BIGALLOC),
            features.compat & Compat::SPARSE_SUPER2,
        )
    };
    shape(one) == shape(other)
}

/// Moves what changes while a filesystem is in use, and what nobody writes into copies, from one superblock to
/// another.
pub fn carry_over(from: &Superblock, to: &mut Superblock) {
    to.s_free_blocks_count_lo = from.s_free_blocks_count_lo;
    to.s_free_blocks_count_hi = from.s_free_blocks_count_hi;
    to.s_free_inodes_count = from.s_free_inodes_count;
    to.s_mtime = from.s_mtime;
    to.s_mtime_hi = from.s_mtime_hi;
    to.s_wtime = from.s_wtime;
    to.s_wtime_hi = from.s_wtime_hi;
    to.s_mnt_count = from.s_mnt_count;
    to.s_state = from.s_state;
    to.s_lastcheck = from.s_lastcheck;
    to.s_lastcheck_hi = from.s_lastcheck_hi;
    to.s_last_mounted = from.s_last_mounted;
    to.s_last_orphan = from.s_last_orphan;
    to.s_jnl_backup_type = from.s_jnl_backup_type;
    to.s_jnl_blocks = from.s_jnl_blocks;
    to.s_kbytes_written = from.s_kbytes_written;
    to.s_error_count = from.s_error_count;
    to.s_first_error = from.s_first_error;
    to.s_first_error_time_hi = from.s_first_error_time_hi;
    to.s_first_error_errcode = from.s_first_error_errcode;
    to.s_last_error = from.s_last_error;
    to.s_last_error_time_hi = from.s_last_error_time_hi;
    to.s_last_error_errcode = from.s_last_error_errcode;
    to.s_overhead_clusters = from.s_overhead_clusters;
    to.s_lpf_ino = from.s_lpf_ino;
    let (old, mut features) = (from.features(), to.features());
    features.incompat.set(Incompat::RECOVER, old.incompat.contains(Incompat::RECOVER));
    features.ro_compat.set(RoCompat::ORPHAN_PRESENT, old.ro_compat.contains(RoCompat::ORPHAN_PRESENT));
    // The kernel sets this one with the first large file, and not in the copies.
    if old.ro_compat.contains(RoCompat::LARGE_FILE) {
        features.ro_compat.insert(RoCompat::LARGE_FILE);
    }
    to.set_features(features);
}

/// In how many bytes a superblock differs from a copy, apart from what changes in use, the group and the checksum.
pub fn difference(primary: &Superblock, copy: &Superblock) -> usize {
    let mut expected = copy.clone();
    carry_over(primary, &mut expected);
    expected.s_block_group_nr = primary.s_block_group_nr;
    expected.s_checksum = primary.s_checksum;
    let pairs = primary.as_bytes().iter().zip(expected.as_bytes());
    pairs.filter(|(one, other)| one != other).count()
}

/// The superblock that differs in one bit and has the right checksum. No two bits give the same one: the checksum tells
/// any two changes of up to two bits apart at this length.
pub fn correct_one_bit(damaged: &Superblock) -> Option<Superblock> {
    // A bit of the checksum itself.
    if (damaged.s_checksum.get() ^ damaged.computed_checksum()).is_power_of_two() {
        let mut corrected = damaged.clone();
        corrected.refresh_checksum();
        return Some(corrected);
    }
    let mut bytes = [0; SIZE];
    bytes.copy_from_slice(damaged.as_bytes());
    // The checksum is that of all bytes before it.
    let length = SIZE.saturating_sub(4);
    proof::table().find(length, damaged.s_checksum.get(), damaged.computed_checksum())?.flip(&mut bytes);
    let candidate = Superblock::read_from_bytes(&bytes).ok()?;
    (candidate.s_checksum.get() == candidate.computed_checksum()).then_some(candidate)
}

/// The error of an image in which nothing else is left to try.
pub fn unusable(block: Option<BlockNumber>) -> Error {
    match block {
        Some(block) => Error::NotFilesystem(format!("block {block} holds no superblock")),
        None => Error::Invalid("no superblock was named".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use ext4kit_testkit::filesystem;

    use super::*;

    fn primary(store: &dyn Store) -> Superblock {
        read_superblock(store, SuperblockChoice::Primary).unwrap()
    }

    #[test]
    fn every_copy_is_found_without_a_primary() {
        for (blocks, size) in [(81920u64, 1024u32), (300_000, 2048)] {
            let store = filesystem::ext4(blocks, size);
            let geometry = Layout::new(&primary(&store)).unwrap().geometry;
            store.write_at(1024, &[0; 1024]).unwrap();
            let wanted: Vec<_> = geometry
                .backup_groups()
                .into_iter()
                .filter_map(|group| geometry.superblock_copy(group))
                .collect();
            assert!(wanted.len() > 3);
            let found: Vec<_> = find(&store, None).into_iter().map(|copy| copy.block).collect();
            assert_eq!(found, wanted, "blocks of {size}");
        }
    }

    #[test]
    fn copies_of_sparse_super2_and_of_odd_groups_are_found() {
        let mut parameters = filesystem::parameters(81920, 1024, "sparse_super2 ^resize_inode");
        parameters.features.compat.insert(Compat::SPARSE_SUPER2);
        let (store, mut overlay) = filesystem::filesystem(&parameters);
        filesystem::commit_clean(&store, &mut overlay);
        let mut copies = find(store.as_ref(), None);
        assert!(!copies.is_empty());
        // Only the last one is left.
        let last = copies.pop().unwrap();
        for copy in copies {
            store.write_at(copy.block.0 * 1024, &[0; 1024]).unwrap();
        }
        assert_eq!(find(store.as_ref(), None).len(), 1);
        assert_eq!(find(store.as_ref(), None)[0].block, last.block);
    }

    #[test]
    fn leftovers_of_an_older_filesystem_lose_the_vote() {
        let store = filesystem::ext4(81920, 1024);
        let sound = primary(&store);
        let mut stray = find(&store, None).remove(0);
        stray.superblock.s_uuid = [9; 16];
        stray.superblock.refresh_checksum();
        store.write_at(stray.block.0 * 1024, stray.superblock.as_bytes()).unwrap();
        let copies = find(&store, None);
        let party = vote(&copies, None);
        assert_eq!(party.len(), copies.len() - 1);
        assert!(party.iter().all(|copy| copy.superblock.s_uuid == sound.s_uuid));
        // Unless the filesystem that is looked for is known.
        assert_eq!(vote(&copies, Some(&stray.superblock)).len(), 1);
    }

    #[test]
    fn one_wrong_bit_is_found_by_the_checksum() {
        let sound = primary(&filesystem::ext4(8192, 1024));
        for (at, bit) in [(0usize, 0), (0x38, 3), (0x64, 7), (0x3fb, 1), (0x3fc, 0), (0x3ff, 7)] {
            let mut bytes = sound.as_bytes().to_vec();
            bytes[at] ^= 1 << bit;
            let damaged = Superblock::read_from_bytes(&bytes).unwrap();
            assert_eq!(correct_one_bit(&damaged), Some(sound.clone()), "bit {bit} of byte {at:#x}");
        }
        let mut bytes = sound.as_bytes().to_vec();
        bytes[8] ^= 0x11;
        assert_eq!(correct_one_bit(&Superblock::read_from_bytes(&bytes).unwrap()), None);
    }

    #[test]
    fn what_changes_in_use_is_no_difference() {
        let sound = primary(&filesystem::ext4(8192, 1024));
        let mut used = sound.clone();
        used.s_mnt_count.set(7);
        used.s_last_orphan.set(12);
        used.s_feature_incompat.set(used.s_feature_incompat.get() | Incompat::RECOVER.bits());
        assert_eq!(difference(&used, &sound), 0);
        used.s_inodes_per_group.set(1);
        assert!(difference(&used, &sound) > 0);
    }
}
