//! Taking and giving back blocks and inodes, with bitmaps, descriptors and the superblock's sums kept in step.
//!
//! Where to look is the caller's policy: it passes a goal, and gets the first free run at or behind it in its group,
//! else in the groups that follow, round to the start. A group whose bitmap was never written gets it on first use.

use crate::disk::bitmap::{self, Bits};
use crate::disk::group_desc::{GroupDescriptor, GroupFlags};
use crate::error::{Defect, Error, Place, Result};
use crate::geometry::Geometry;
use crate::ids::{BlockNumber, BlockRun, GroupNumber, InodeNumber};
use crate::num::{index, low32};
use crate::tree::{group, inode};
use crate::txn::{BlockKind, BlockRequest, Transaction, create, modify};

/// Takes one run of free blocks; see [`Transaction::allocate_blocks`].
pub fn allocate_blocks(txn: &mut dyn Transaction, request: BlockRequest) -> Result<BlockRun> {
    let geometry = txn.layout().geometry.clone();
    let (goal_group, goal_bit) = geometry.bit_of(request.goal).unwrap_or((GroupNumber(0), 0));
    let cluster_bits = geometry.cluster_bits();
    let wanted =
        low32(request.wanted.max(1).div_ceil(1 << cluster_bits).min(geometry.clusters_per_group().into()));
    for group in groups_from(&geometry, goal_group) {
        let from = if group == goal_group { goal_bit } else { 0 };
        if let Some((bit, length)) = take_clusters(txn, group, from, wanted)? {
            return Ok(run_of_clusters(&geometry, group, bit, length));
        }
    }
    // Only the part of the goal's group before the goal is left.
    match take_clusters(txn, goal_group, 0, wanted)? {
        Some((bit, length)) => Ok(run_of_clusters(&geometry, goal_group, bit, length)),
        None => Err(Error::NoSpace),
    }
}

/// Every group once, from one on and round to the one before it.
fn groups_from(geometry: &Geometry, first: GroupNumber) -> impl Iterator<Item = GroupNumber> + use<> {
    let count = geometry.group_count();
    (first.0..count).chain(0..first.0.min(count)).map(GroupNumber)
}

/// The blocks of clusters; the last cluster of the filesystem may be partial.
fn run_of_clusters(geometry: &Geometry, group: GroupNumber, bit: u32, clusters: u32) -> BlockRun {
    let start = geometry.block_of_bit(group, bit);
    let length = u64::from(clusters) << geometry.cluster_bits();
    BlockRun { start, length: length.min(geometry.blocks_count().saturating_sub(start.0)) }
}

/// Takes a run of at most `wanted` free clusters of a group, from a bit on. `None` if there is none.
pub fn take_clusters(
    txn: &mut dyn Transaction,
    group: GroupNumber,
    from: u32,
    wanted: u32,
) -> Result<Option<(u32, u32)>> {
    let descriptor = group::read_descriptor(txn, group)?;
    if descriptor.free_clusters == 0 {
        return Ok(None);
    }
    ensure_block_bitmap(txn, group, &descriptor)?;
    let limit = txn.layout().geometry.group_clusters(group);
    let kind = BlockKind::BlockBitmap(group);
    let found = {
        let block = txn.read(descriptor.block_bitmap, kind)?;
        Bits(&block).find_clear_run(from, limit, wanted)
    };
    let Some((bit, length)) = found else { return Ok(None) };
    modify(txn, descriptor.block_bitmap, kind, |bytes| {
        for bit in bit..bit.saturating_add(length) {
            bitmap::set(bytes, bit);
        }
    })?;
    count_clusters(txn, group, 0i64.saturating_sub(length.into()))?;
    Ok(Some((bit, length)))
}

/// Gives blocks back; see [`Transaction::release_blocks`].
pub fn release_blocks(txn: &mut dyn Transaction, run: BlockRun) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    if !geometry.contains_run(run) {
        let most = geometry.blocks_count().saturating_sub(1);
        let least = geometry.first_data_block().0;
        let range = Defect::Range { field: "block to be freed", value: run.start.0, least, most };
        return Err(range.at(Place::Block(run.start)));
    }
    let (mut at, mut left) = (run.start, run.length);
    while left > 0 {
        let Some((group, bit)) = geometry.bit_of(at) else { break };
        let until = geometry.group_blocks(group).end().map_or(0, |end| end.0);
        let length = left.min(until.saturating_sub(at.0)).max(1);
        let clusters = low32(length.div_ceil(1 << geometry.cluster_bits()));
        release_clusters(txn, group, bit, clusters)?;
        at = BlockNumber(at.0.saturating_add(length));
        left = left.saturating_sub(length);
    }
    Ok(())
}

fn release_clusters(txn: &mut dyn Transaction, group: GroupNumber, bit: u32, count: u32) -> Result<()> {
    let descriptor = group::read_descriptor(txn, group)?;
    ensure_block_bitmap(txn, group, &descriptor)?;
    let kind = BlockKind::BlockBitmap(group);
    let end = bit.saturating_add(count);
    let free = Bits(&txn.read(descriptor.block_bitmap, kind)?).find_clear(bit, end);
    if let Some(free) = free {
        let block = txn.layout().geometry.block_of_bit(group, free);
        return Err(Defect::Contradiction(format!("block {block} is freed but already free"))
            .at(Place::BlockBitmap(group)));
    }
    modify(txn, descriptor.block_bitmap, kind, |bytes| {
        for bit in bit..end {
            bitmap::clear(bytes, bit);
        }
    })?;
    count_clusters(txn, group, count.into())
}

/// Changes the number of free clusters of a group, and of free blocks of the filesystem.
fn count_clusters(txn: &mut dyn Transaction, group: GroupNumber, change: i64) -> Result<()> {
    group::update_descriptor(txn, group, |descriptor| {
        descriptor.free_clusters = add_clamped(descriptor.free_clusters, change);
    })?;
    let blocks = change.saturating_mul(txn.layout().geometry.blocks_per_cluster().into());
    group::update_superblock(txn, |superblock| {
        superblock.set_free_blocks_count(superblock.free_blocks_count().saturating_add_signed(blocks));
    })
}

fn add_clamped(count: u32, change: i64) -> u32 {
    let sum = i64::from(count).saturating_add(change).clamp(0, u32::MAX.into());
    u32::try_from(sum).unwrap_or(0)
}

/// Writes the block bitmap of a group that never had one: only the group's own metadata is in use.
fn ensure_block_bitmap(
    txn: &mut dyn Transaction,
    group: GroupNumber,
    descriptor: &GroupDescriptor,
) -> Result<()> {
    if !txn.layout().has_lazy_groups() || !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
        return Ok(());
    }
    let used = own_metadata(&txn.layout().geometry, group, descriptor);
    let geometry = txn.layout().geometry.clone();
    create(txn, descriptor.block_bitmap, BlockKind::BlockBitmap(group), |bytes| {
        for run in used {
            for block in run.iter() {
                if let Some((owner, bit)) = geometry.bit_of(block)
                    && owner == group
                {
                    bitmap::set(bytes, bit);
                }
            }
        }
        bitmap::set_padding(bytes, geometry.group_clusters(group));
    })?;
    group::update_descriptor(txn, group, |descriptor| descriptor.flags.remove(GroupFlags::BLOCK_UNINIT))
}

/// The blocks that a group's own metadata takes: copies of superblock and descriptors, bitmaps and inode table,
/// wherever they lie.
pub fn own_metadata(geometry: &Geometry, group: GroupNumber, descriptor: &GroupDescriptor) -> Vec<BlockRun> {
    let mut runs: Vec<BlockRun> = geometry.base_metadata(group).runs().collect();
    runs.push(BlockRun::single(descriptor.block_bitmap));
    runs.push(BlockRun::single(descriptor.inode_bitmap));
    runs.push(BlockRun { start: descriptor.inode_table, length: geometry.inode_table_blocks().into() });
    runs
}

/// Takes a free inode; see [`Transaction::allocate_inode`].
pub fn allocate_inode(txn: &mut dyn Transaction, near: GroupNumber, directory: bool) -> Result<InodeNumber> {
    let geometry = txn.layout().geometry.clone();
    for group in groups_from(&geometry, GroupNumber(near.0.min(geometry.group_count().saturating_sub(1)))) {
        if let Some(place) = take_inode(txn, group, directory)?
            && let Some(inode) = geometry.inode_at(group, place)
        {
            return Ok(inode);
        }
    }
    Err(Error::NoInodes)
}

/// Takes the first free inode of a group that is not reserved; `None` if there is none.
fn take_inode(txn: &mut dyn Transaction, group: GroupNumber, directory: bool) -> Result<Option<u32>> {
    let descriptor = group::read_descriptor(txn, group)?;
    if descriptor.free_inodes == 0 {
        return Ok(None);
    }
    ensure_inode_bitmap(txn, group, &descriptor)?;
    let kind = BlockKind::InodeBitmap(group);
    let geometry = &txn.layout().geometry;
    let limit = geometry.inodes_per_group();
    let reserved_end = u64::from(geometry.first_inode()).saturating_sub(1);
    let before = u64::from(group.0).saturating_mul(limit.into());
    let first = low32(reserved_end.saturating_sub(before).min(limit.into()));
    let found = Bits(&txn.read(descriptor.inode_bitmap, kind)?).find_clear(first, limit);
    let Some(place) = found else { return Ok(None) };
    modify(txn, descriptor.inode_bitmap, kind, |bytes| bitmap::set(bytes, place))?;
    extend_used_table(txn, group, place)?;
    group::update_descriptor(txn, group, |descriptor| {
        descriptor.free_inodes = descriptor.free_inodes.saturating_sub(1);
        descriptor.used_directories = descriptor.used_directories.saturating_add(directory.into());
    })?;
    group::update_superblock(txn, |superblock| {
        let free = superblock.s_free_inodes_count.get().saturating_sub(1);
        superblock.s_free_inodes_count.set(free);
    })?;
    Ok(Some(place))
}

/// Makes an inode's slot part of its table as its group's descriptor has it, without looking at the bitmap: for whoever
/// knows better than the bitmap that the inode is free.
pub fn open_slot(txn: &mut dyn Transaction, number: InodeNumber) -> Result<()> {
    let Some((group, place)) = txn.layout().geometry.inode_place(number) else {
        return Err(Error::Invalid(format!("inode {number} does not exist")));
    };
    let descriptor = group::read_descriptor(txn, group)?;
    ensure_inode_bitmap(txn, group, &descriptor)?;
    extend_used_table(txn, group, place)
}

/// Makes the used part of a group's inode table reach over a place. Slots that come to lie in it for the first time
/// are zeroed, since a table that was never initialised may hold anything.
fn extend_used_table(txn: &mut dyn Transaction, group: GroupNumber, place: u32) -> Result<()> {
    if !txn.layout().has_lazy_groups() {
        return Ok(());
    }
    let geometry = txn.layout().geometry.clone();
    let descriptor = group::read_descriptor(txn, group)?;
    let used = geometry.inodes_per_group().saturating_sub(descriptor.unused_inodes);
    if place < used {
        return Ok(());
    }
    if !descriptor.flags.contains(GroupFlags::INODE_ZEROED) {
        for place in used..place {
            if let Some(number) = geometry.inode_at(group, place) {
                let size = index(geometry.inode_size());
                inode::write_over(txn, &crate::disk::inode::Inode::fresh(number, size, 0))?;
            }
        }
    }
    let unused = geometry.inodes_per_group().saturating_sub(place).saturating_sub(1);
    group::update_descriptor(txn, group, |descriptor| descriptor.unused_inodes = unused)
}

/// Writes the inode bitmap of a group that never had one: nothing is in use.
fn ensure_inode_bitmap(
    txn: &mut dyn Transaction,
    group: GroupNumber,
    descriptor: &GroupDescriptor,
) -> Result<()> {
    if !txn.layout().has_lazy_groups() || !descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
        return Ok(());
    }
    let inodes = txn.layout().geometry.inodes_per_group();
    create(txn, descriptor.inode_bitmap, BlockKind::InodeBitmap(group), |bytes| {
        bitmap::set_padding(bytes, inodes);
    })?;
    group::update_descriptor(txn, group, |descriptor| {
        descriptor.flags.remove(GroupFlags::INODE_UNINIT);
        descriptor.unused_inodes = inodes;
    })
}

/// Gives an inode back; see [`Transaction::release_inode`].
pub fn release_inode(txn: &mut dyn Transaction, number: InodeNumber, directory: bool) -> Result<()> {
    let place = txn.layout().geometry.inode_place(number);
    let Some((group, place)) = place.filter(|_| number.get() >= txn.layout().geometry.first_inode()) else {
        return Err(Error::Invalid(format!(
            "inode {number} is reserved or does not exist; it cannot be freed"
        )));
    };
    let descriptor = group::read_descriptor(txn, group)?;
    ensure_inode_bitmap(txn, group, &descriptor)?;
    let was_used = modify(txn, descriptor.inode_bitmap, BlockKind::InodeBitmap(group), |bytes| {
        bitmap::clear(bytes, place)
    })?;
    if was_used != Some(true) {
        return Err(Defect::Contradiction(format!("inode {number} is freed but already free"))
            .at(Place::InodeBitmap(group)));
    }
    group::update_descriptor(txn, group, |descriptor| {
        descriptor.free_inodes = descriptor.free_inodes.saturating_add(1);
        descriptor.used_directories = descriptor.used_directories.saturating_sub(directory.into());
    })?;
    group::update_superblock(txn, |superblock| {
        let free = superblock.s_free_inodes_count.get().saturating_add(1);
        superblock.s_free_inodes_count.set(free);
    })
}
