//! Where everything lives; the only place that converts between numbers.
//!
//! A [`Geometry`] is made from a superblock by [`Geometry::new`], which checks every number that others divide,
//! shift or multiply by, so that nothing downstream has to. It is pure arithmetic: which groups exist, which of them
//! hold copies of the superblock and descriptors, in which block a descriptor or an inode lies.
//!
//! Terms: a *cluster* is the unit of allocation, one block without bigalloc. A *bit* is a cluster's number within its
//! group, that is, its bit in the group's block bitmap.

use crate::disk::features::{Compat, Features, Incompat, RoCompat};
use crate::disk::superblock::Superblock;
use crate::error::Defect;
use crate::ids::{BlockNumber, BlockRun, GroupNumber, InodeNumber};
use crate::num::{index, index64};

/// The shape of a filesystem, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    features: Features,
    block_bits: u32,
    cluster_bits: u32,
    blocks_count: u64,
    first_data_block: u32,
    blocks_per_group: u32,
    inodes_per_group: u32,
    inode_bits: u32,
    first_inode: u32,
    descriptor_bits: u32,
    group_count: u32,
    reserved_descriptor_blocks: u32,
    first_meta_group: u32,
    backup_groups: [u32; 2],
    flex_bits: u32,
}

/// The blocks at the start of a group that hold copies of filesystem-wide metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BaseMetadata {
    /// The superblock, primary or copy.
    pub superblock: Option<BlockNumber>,
    /// Group descriptors, primary or copies: the whole table, or one block of it under meta_bg.
    pub descriptors: Option<BlockRun>,
    /// Blocks reserved for descriptors to come.
    pub reserved: Option<BlockRun>,
}

impl BaseMetadata {
    /// The runs that are there, in order on disk.
    pub fn runs(self) -> impl Iterator<Item = BlockRun> {
        [self.superblock.map(BlockRun::single), self.descriptors, self.reserved].into_iter().flatten()
    }
}

impl Geometry {
    /// Largest block size exponent: 64 KiB.
    pub const MAX_BLOCK_BITS: u32 = 16;

    /// The geometry that a superblock describes, or what makes it impossible.
    ///
    /// The count of inodes is taken from the groups; that `s_inodes_count` agrees is for a checker to say.
    pub fn new(superblock: &Superblock) -> Result<Self, Defect> {
        let features = superblock.features();
        let log_block_size = superblock.s_log_block_size.get();
        Defect::check_range("s_log_block_size", log_block_size.into(), 0, 6)?;
        let block_bits = log_block_size.saturating_add(10);
        let block_size = 1u32 << block_bits;
        let bits_per_bitmap = u64::from(block_size) << 3;

        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let log_cluster_size = superblock.s_log_cluster_size.get();
        let most = if bigalloc { 20 } else { log_block_size };
        Defect::check_range(
            "s_log_cluster_size",
            log_cluster_size.into(),
            log_block_size.into(),
            most.into(),
        )?;
        let cluster_bits = log_cluster_size.saturating_sub(log_block_size);

        let first_data_block = superblock.s_first_data_block.get();
        let first = u32::from(block_bits == 10 && !bigalloc);
        Defect::check_range("s_first_data_block", first_data_block.into(), first.into(), first.into())?;

        let clusters_per_group = superblock.s_clusters_per_group.get();
        let blocks_per_group = superblock.s_blocks_per_group.get();
        Defect::check_range(
            "s_blocks_per_group",
            blocks_per_group.into(),
            8,
            bits_per_bitmap << cluster_bits,
        )?;
        let clusters = u64::from(blocks_per_group) >> cluster_bits;
        if u64::from(blocks_per_group) != clusters << cluster_bits {
            let clusters = 1u64 << cluster_bits;
            return Err(Defect::Contradiction(format!(
                "s_blocks_per_group {blocks_per_group} is no multiple of the {clusters} blocks of a cluster"
            )));
        }
        Defect::check_range("s_clusters_per_group", clusters_per_group.into(), clusters, clusters)?;

        let blocks_count = superblock.blocks_count();
        let least = u64::from(first_data_block).saturating_add(1);
        Defect::check_range("s_blocks_count", blocks_count, least, 1 << 48)?;
        let group_count =
            blocks_count.saturating_sub(first_data_block.into()).div_ceil(blocks_per_group.into());
        Defect::check_range("number of groups", group_count, 1, u32::MAX.into())?;

        let inode_bits = Self::check_inode_size(superblock.inode_size(), block_size)?;
        let inodes_per_group = superblock.s_inodes_per_group.get();
        Defect::check_range("s_inodes_per_group", inodes_per_group.into(), 1, bits_per_bitmap)?;
        let inode_total = group_count.saturating_mul(inodes_per_group.into());
        Defect::check_range("number of inodes", inode_total, 1, u32::MAX.into())?;
        let first_inode = superblock.first_inode();
        Defect::check_range("s_first_ino", first_inode.into(), 11, inode_total)?;

        let group_count = crate::num::low32(group_count);
        let mut geometry = Self {
            features,
            block_bits,
            cluster_bits,
            blocks_count,
            first_data_block,
            blocks_per_group,
            inodes_per_group,
            inode_bits,
            first_inode,
            descriptor_bits: Self::check_descriptor_size(superblock, block_size)?,
            group_count,
            reserved_descriptor_blocks: superblock.s_reserved_gdt_blocks.get().into(),
            first_meta_group: 0,
            backup_groups: superblock.s_backup_bgs.map(zerocopy::little_endian::U32::get),
            flex_bits: 0,
        };
        geometry.check_layout_fields(superblock)?;
        Ok(geometry)
    }

    fn check_inode_size(size: u16, block_size: u32) -> Result<u32, Defect> {
        Defect::check_range("s_inode_size", size.into(), 128, block_size.into())?;
        if size.is_power_of_two() {
            Ok(size.trailing_zeros())
        } else {
            Err(Defect::Contradiction(format!("s_inode_size {size} is no power of two")))
        }
    }

    fn check_descriptor_size(superblock: &Superblock, block_size: u32) -> Result<u32, Defect> {
        let size = superblock.descriptor_size();
        let least = if superblock.features().incompat.contains(Incompat::BIT64) { 64 } else { 32 };
        Defect::check_range("s_desc_size", size.into(), least, block_size.min(1024).into())?;
        if size.is_power_of_two() {
            Ok(size.trailing_zeros())
        } else {
            Err(Defect::Contradiction(format!("s_desc_size {size} is no power of two")))
        }
    }

    /// The fields that decide where descriptors and flex groups lie.
    fn check_layout_fields(&mut self, superblock: &Superblock) -> Result<(), Defect> {
        let pointers = u64::from(self.block_size() >> 2);
        Defect::check_range("s_reserved_gdt_blocks", self.reserved_descriptor_blocks.into(), 0, pointers)?;
        if self.features.incompat.contains(Incompat::META_BG) {
            self.first_meta_group = superblock.s_first_meta_bg.get();
            let most = self.descriptor_blocks();
            Defect::check_range("s_first_meta_bg", self.first_meta_group.into(), 0, most.into())?;
        }
        if self.features.incompat.contains(Incompat::FLEX_BG) {
            self.flex_bits = superblock.s_log_groups_per_flex.into();
            Defect::check_range("s_log_groups_per_flex", self.flex_bits.into(), 0, 31)?;
        }
        let table = u64::from(self.inode_table_blocks());
        if table >= u64::from(self.blocks_per_group) && self.flex_bits == 0 {
            return Err(Defect::Contradiction(format!(
                "an inode table of {table} blocks does not fit a group of {}",
                self.blocks_per_group
            )));
        }
        Ok(())
    }

    /// The features that this geometry was made for.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Size of a block in bytes: a power of two, 1 KiB to 64 KiB.
    pub fn block_size(&self) -> u32 {
        1 << self.block_bits
    }

    /// Size of a block in bytes, as a length in memory.
    pub fn block_length(&self) -> usize {
        1 << self.block_bits
    }

    /// Base-2 logarithm of the block size.
    pub fn block_bits(&self) -> u32 {
        self.block_bits
    }

    /// Size of a cluster in blocks: a power of two, 1 without bigalloc.
    pub fn blocks_per_cluster(&self) -> u32 {
        1 << self.cluster_bits
    }

    /// Base-2 logarithm of a cluster's size in blocks.
    pub fn cluster_bits(&self) -> u32 {
        self.cluster_bits
    }

    /// Size of the filesystem in blocks, from block 0.
    pub fn blocks_count(&self) -> u64 {
        self.blocks_count
    }

    /// The first block that belongs to a group: 1 for blocks of 1 KiB without bigalloc, else 0.
    pub fn first_data_block(&self) -> BlockNumber {
        BlockNumber(self.first_data_block.into())
    }

    /// Blocks of a whole group.
    pub fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Clusters of a whole group.
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits
    }

    /// Inodes of every group.
    pub fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Inodes of all groups together.
    pub fn inodes_count(&self) -> u32 {
        self.group_count.saturating_mul(self.inodes_per_group)
    }

    /// The first inode number that is not reserved, at least 11.
    pub fn first_inode(&self) -> u32 {
        self.first_inode
    }

    /// Size of an inode's slot in bytes: a power of two, from 128 to the block size.
    pub fn inode_size(&self) -> u32 {
        1 << self.inode_bits
    }

    /// Size of a group descriptor in bytes: a power of two, from 32 to 1024.
    pub fn descriptor_size(&self) -> u32 {
        1 << self.descriptor_bits
    }

    /// Number of groups, at least 1.
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Every group.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = GroupNumber> + ExactSizeIterator + use<> {
        (0..self.group_count).map(GroupNumber)
    }

    /// Groups whose bitmaps and inode tables lie together: a power of two, 1 without flex_bg.
    pub fn groups_per_flex(&self) -> u32 {
        1 << self.flex_bits
    }

    /// Group descriptors in a block.
    pub fn descriptors_per_block(&self) -> u32 {
        self.block_size() >> self.descriptor_bits
    }

    /// Blocks that all descriptors together take.
    pub fn descriptor_blocks(&self) -> u32 {
        self.group_count.div_ceil(1 << (self.block_bits.saturating_sub(self.descriptor_bits)))
    }

    /// Inodes in a block.
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size() >> self.inode_bits
    }

    /// Blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(1 << (self.block_bits.saturating_sub(self.inode_bits)))
    }

    /// Block pointers of 4 bytes in a block.
    pub fn pointers_per_block(&self) -> u32 {
        self.block_size() >> 2
    }

    /// Byte offset of a block from the start of the filesystem; `None` for a block outside it.
    pub fn byte_offset(&self, block: BlockNumber) -> Option<u64> {
        (block.0 < self.blocks_count).then(|| block.0 << self.block_bits)
    }

    /// Whether the block lies in the filesystem and in a group.
    pub fn contains(&self, block: BlockNumber) -> bool {
        block.0 >= self.first_data_block.into() && block.0 < self.blocks_count
    }

    /// Whether all blocks of the run lie in the filesystem and in groups.
    pub fn contains_run(&self, run: BlockRun) -> bool {
        self.contains(run.start) && run.length > 0 && run.end().is_some_and(|end| end.0 <= self.blocks_count)
    }

    /// The group that a block belongs to; `None` for a block outside the filesystem or before the first group.
    pub fn group_of(&self, block: BlockNumber) -> Option<GroupNumber> {
        let place =
            block.0.checked_sub(self.first_data_block.into()).filter(|_| block.0 < self.blocks_count)?;
        place.checked_div(self.blocks_per_group.into()).map(|group| GroupNumber(crate::num::low32(group)))
    }

    /// A group's number if there is such a group.
    pub fn check_group(&self, group: GroupNumber) -> Option<GroupNumber> {
        (group.0 < self.group_count).then_some(group)
    }

    /// The first block of a group.
    pub fn group_start(&self, group: GroupNumber) -> BlockNumber {
        let start = u64::from(group.0).saturating_mul(self.blocks_per_group.into());
        BlockNumber(start.saturating_add(self.first_data_block.into()))
    }

    /// The blocks of a group; the last one may be short.
    pub fn group_blocks(&self, group: GroupNumber) -> BlockRun {
        let start = self.group_start(group);
        let length = self.blocks_count.saturating_sub(start.0).min(self.blocks_per_group.into());
        BlockRun { start, length }
    }

    /// Clusters of a group, which are the bits of its block bitmap that stand for something; the last group may be
    /// short, and its last cluster partial.
    pub fn group_clusters(&self, group: GroupNumber) -> u32 {
        crate::num::low32(self.group_blocks(group).length.div_ceil(1 << self.cluster_bits))
    }

    /// A block's group and its bit in the group's bitmap; `None` for a block in no group.
    pub fn bit_of(&self, block: BlockNumber) -> Option<(GroupNumber, u32)> {
        let group = self.group_of(block)?;
        let distance = block.distance_from(self.group_start(group))?;
        Some((group, crate::num::low32(distance >> self.cluster_bits)))
    }

    /// The first block of the cluster that a bit of a group's bitmap stands for.
    pub fn block_of_bit(&self, group: GroupNumber, bit: u32) -> BlockNumber {
        let distance = u64::from(bit) << self.cluster_bits;
        BlockNumber(self.group_start(group).0.saturating_add(distance))
    }

    /// The first block of the block's cluster.
    pub fn cluster_start(&self, block: BlockNumber) -> BlockNumber {
        BlockNumber(block.0 >> self.cluster_bits << self.cluster_bits)
    }

    /// An inode's group and its place in the group's table; `None` for a number beyond the last inode.
    pub fn inode_place(&self, inode: InodeNumber) -> Option<(GroupNumber, u32)> {
        let place = inode.get().checked_sub(1).filter(|place| *place < self.inodes_count())?;
        let group = place.checked_div(self.inodes_per_group)?;
        Some((GroupNumber(group), place.checked_rem(self.inodes_per_group)?))
    }

    /// The inode at a place of a group's table; `None` where the table has no such place.
    pub fn inode_at(&self, group: GroupNumber, place: u32) -> Option<InodeNumber> {
        if place >= self.inodes_per_group || group.0 >= self.group_count {
            return None;
        }
        let before = group.0.checked_mul(self.inodes_per_group)?;
        InodeNumber::new(before.checked_add(place)?.checked_add(1)?)
    }

    /// Block and byte within it where an inode lies, given where its group's table begins.
    pub fn inode_slot(&self, table: BlockNumber, place: u32) -> (BlockNumber, usize) {
        let offset = u64::from(place) << self.inode_bits;
        let block = BlockNumber(table.0.saturating_add(offset >> self.block_bits));
        (block, index64(offset & u64::from(self.block_size().saturating_sub(1))))
    }

    /// The block that holds the primary superblock: 1 for blocks of 1 KiB, else 0.
    pub fn superblock_block(&self) -> BlockNumber {
        BlockNumber(u64::from(self.block_bits == 10))
    }

    /// Byte of its block at which the primary superblock begins.
    pub fn superblock_offset(&self) -> usize {
        if self.block_bits == 10 { 0 } else { 1024 }
    }

    /// Whether a group holds the superblock or a copy of it.
    pub fn has_superblock(&self, group: GroupNumber) -> bool {
        if group.0 == 0 {
            return true;
        }
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group.0);
        }
        !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER)
            || group.0 == 1
            || [3, 5, 7].into_iter().any(|base| is_power_of(group.0, base))
    }

    /// The groups that hold copies of the superblock, in order, without group 0. They are few, and are found without
    /// looking at every group.
    pub fn backup_groups(&self) -> Vec<GroupNumber> {
        let sparse = self.features.ro_compat.contains(RoCompat::SPARSE_SUPER)
            || self.features.compat.contains(Compat::SPARSE_SUPER2);
        if !sparse {
            return self.groups().skip(1).collect();
        }
        let powers = |base: u32| std::iter::successors(Some(base), move |power| power.checked_mul(base));
        let candidates =
            [1].into_iter().chain([3, 5, 7].into_iter().flat_map(powers)).chain(self.backup_groups);
        let mut groups: Vec<GroupNumber> = candidates
            .map(GroupNumber)
            .filter(|group| group.0 > 0 && group.0 < self.group_count && self.has_superblock(*group))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Where a group's copy of the superblock lies, if it has one. In group 0 that is the primary.
    pub fn superblock_copy(&self, group: GroupNumber) -> Option<BlockNumber> {
        if group.0 == 0 {
            Some(self.superblock_block())
        } else {
            self.has_superblock(group).then(|| self.group_start(group))
        }
    }

    /// Whether this block of the descriptor table lies in its meta group, not in one table at the front.
    fn is_meta(&self, table_block: u32) -> bool {
        self.features.incompat.contains(Incompat::META_BG) && table_block >= self.first_meta_group
    }

    /// Blocks of the descriptor table that lie in one piece behind each copy of the superblock.
    pub fn leading_descriptor_blocks(&self) -> u32 {
        if self.features.incompat.contains(Incompat::META_BG) {
            self.first_meta_group
        } else {
            self.descriptor_blocks()
        }
    }

    /// Where the first block behind the superblock of a group lies, or the group's first block without one.
    fn behind_superblock(&self, group: GroupNumber) -> BlockNumber {
        match self.superblock_copy(group) {
            Some(copy) => BlockNumber(copy.0.saturating_add(1)),
            None => self.group_start(group),
        }
    }

    /// Where a block of the primary descriptor table lies.
    pub fn descriptor_table_block(&self, table_block: u32) -> BlockNumber {
        if self.is_meta(table_block) {
            let first = table_block.saturating_mul(self.descriptors_per_block());
            self.behind_superblock(GroupNumber(first))
        } else {
            BlockNumber(self.superblock_block().0.saturating_add(u64::from(table_block).saturating_add(1)))
        }
    }

    /// Block and byte within it where a group's primary descriptor lies.
    pub fn descriptor_slot(&self, group: GroupNumber) -> (BlockNumber, usize) {
        let per_block_bits = self.block_bits.saturating_sub(self.descriptor_bits);
        let within = group.0 & self.descriptors_per_block().saturating_sub(1);
        (self.descriptor_table_block(group.0 >> per_block_bits), index(within << self.descriptor_bits))
    }

    /// Where the copies of a block of the descriptor table lie, without the primary.
    pub fn descriptor_table_copies(&self, table_block: u32) -> Vec<BlockNumber> {
        if self.is_meta(table_block) {
            let first = table_block.saturating_mul(self.descriptors_per_block());
            let last = first.saturating_add(self.descriptors_per_block().saturating_sub(1));
            let mut groups = vec![first.saturating_add(1), last];
            groups.dedup();
            let groups = groups.into_iter().filter(|group| *group > first && *group < self.group_count);
            return groups.map(|group| self.behind_superblock(GroupNumber(group))).collect();
        }
        let distance = u64::from(table_block).saturating_add(1);
        let copies = self.backup_groups().into_iter();
        copies.filter_map(|group| self.superblock_copy(group)?.checked_add(distance)).collect()
    }

    /// What filesystem-wide metadata lies at the start of a group.
    pub fn base_metadata(&self, group: GroupNumber) -> BaseMetadata {
        let superblock = self.superblock_copy(group);
        let behind = self.behind_superblock(group);
        let meta_block = group.0 >> (self.block_bits.saturating_sub(self.descriptor_bits));
        if self.is_meta(meta_block) {
            let within = group.0 & self.descriptors_per_block().saturating_sub(1);
            let holds = within < 2 || within == self.descriptors_per_block().saturating_sub(1);
            return BaseMetadata {
                superblock,
                descriptors: holds.then_some(BlockRun::single(behind)),
                reserved: None,
            };
        }
        let run = |start: Option<BlockNumber>, length: u32| {
            let start = start.filter(|_| superblock.is_some() && length > 0)?;
            Some(BlockRun { start, length: length.into() })
        };
        let leading = self.leading_descriptor_blocks();
        let reserved = if self.features.incompat.contains(Incompat::META_BG) {
            None
        } else {
            run(behind.checked_add(leading.into()), self.reserved_descriptor_blocks)
        };
        BaseMetadata { superblock, descriptors: run(Some(behind), leading), reserved }
    }

    /// Blocks reserved behind each leading descriptor table for descriptors to come.
    pub fn reserved_descriptor_blocks(&self) -> u32 {
        self.reserved_descriptor_blocks
    }
}

/// Whether a number is a power of `base` (at least the first).
fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > base && number.checked_rem(base) == Some(0) {
        number = number.checked_div(base).unwrap_or(0);
    }
    number == base
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(log_block_size: u32, blocks: u64, features: Features) -> Superblock {
        let mut superblock = Superblock::zeroed();
        superblock.s_rev_level.set(1);
        superblock.set_features(features);
        superblock.s_log_block_size.set(log_block_size);
        superblock.s_log_cluster_size.set(log_block_size);
        superblock.s_first_data_block.set(u32::from(log_block_size == 0));
        superblock.s_blocks_per_group.set(8192 << log_block_size);
        superblock.s_clusters_per_group.set(8192 << log_block_size);
        superblock.s_inodes_per_group.set(2048);
        superblock.s_inode_size.set(256);
        superblock.s_first_ino.set(11);
        superblock.s_desc_size.set(64);
        superblock.set_blocks_count(blocks);
        superblock
    }

    fn sparse() -> Features {
        Features { ro_compat: RoCompat::SPARSE_SUPER, ..Features::default() }
    }

    #[test]
    fn one_kib_blocks_begin_at_block_one() {
        let geometry = Geometry::new(&superblock(0, 8193 * 3, sparse())).unwrap();
        assert_eq!(geometry.group_count(), 4);
        assert_eq!(geometry.group_of(BlockNumber(0)), None);
        assert_eq!(geometry.bit_of(BlockNumber(8192)), Some((GroupNumber(0), 8191)));
        assert_eq!(geometry.bit_of(BlockNumber(8193)), Some((GroupNumber(1), 0)));
        assert_eq!(geometry.group_blocks(GroupNumber(3)).length, 2);
        assert_eq!(geometry.superblock_copy(GroupNumber(1)), Some(BlockNumber(8193)));
        assert_eq!(geometry.descriptor_slot(GroupNumber(1)), (BlockNumber(2), 32));
    }

    #[test]
    fn backups_lie_in_powers() {
        let geometry = Geometry::new(&superblock(2, 32768 * 130, sparse())).unwrap();
        let groups: Vec<u32> =
            geometry.groups().filter(|group| geometry.has_superblock(*group)).map(|group| group.0).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert_eq!(geometry.backup_groups().iter().map(|group| group.0).collect::<Vec<_>>(), groups[1..]);
        let everywhere = Geometry::new(&superblock(2, 32768 * 4, Features::default())).unwrap();
        assert_eq!(everywhere.backup_groups(), [GroupNumber(1), GroupNumber(2), GroupNumber(3)]);
    }

    #[test]
    fn meta_groups_hold_their_descriptors() {
        let mut features = sparse();
        features.incompat |= Incompat::META_BG;
        let geometry = Geometry::new(&superblock(0, 8192 * 100, features)).unwrap();
        assert_eq!(geometry.descriptors_per_block(), 32);
        assert_eq!(geometry.descriptor_table_block(0), BlockNumber(2));
        assert_eq!(geometry.descriptor_table_block(1), geometry.group_start(GroupNumber(32)));
        assert_eq!(
            geometry.descriptor_table_copies(1),
            [geometry.group_start(GroupNumber(33)), geometry.group_start(GroupNumber(63))]
        );
        assert_eq!(geometry.descriptor_table_copies(3), [geometry.group_start(GroupNumber(97))]);
        assert_eq!(geometry.base_metadata(GroupNumber(34)), BaseMetadata::default());
        let second = geometry.base_metadata(GroupNumber(1));
        assert_eq!(second.descriptors.unwrap().start, BlockNumber(8194));
    }

    #[test]
    fn inodes_have_one_place_each() {
        let geometry = Geometry::new(&superblock(2, 32768 * 3, sparse())).unwrap();
        for number in [1, 2048, 2049, 6144] {
            let inode = InodeNumber::new(number).unwrap();
            let (group, place) = geometry.inode_place(inode).unwrap();
            assert_eq!(geometry.inode_at(group, place), Some(inode));
        }
        assert_eq!(geometry.inode_place(InodeNumber::new(6145).unwrap()), None);
        assert_eq!(geometry.inode_slot(BlockNumber(100), 17), (BlockNumber(101), 256));
    }

    #[test]
    fn impossible_numbers_are_named() {
        let wrong = |change: &dyn Fn(&mut Superblock)| {
            let mut superblock = superblock(2, 32768, sparse());
            change(&mut superblock);
            Geometry::new(&superblock).unwrap_err().to_string()
        };
        assert!(wrong(&|sb| sb.s_log_block_size.set(40)).contains("s_log_block_size"));
        assert!(wrong(&|sb| sb.s_blocks_per_group.set(0)).contains("s_blocks_per_group"));
        assert!(wrong(&|sb| sb.s_inodes_per_group.set(0)).contains("s_inodes_per_group"));
        assert!(wrong(&|sb| sb.s_inode_size.set(200)).contains("s_inode_size"));
        assert!(wrong(&|sb| sb.set_blocks_count(0)).contains("s_blocks_count"));
        assert!(wrong(&|sb| sb.s_first_data_block.set(1)).contains("s_first_data_block"));
        assert!(wrong(&|sb| sb.s_clusters_per_group.set(8)).contains("s_clusters_per_group"));
    }
}
