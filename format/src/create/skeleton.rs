//! The fixed parts of an empty filesystem: superblock, descriptors, bitmaps and inode tables.
//!
//! Reserved inodes are marked in use but left zero; the files and directories that every filesystem has are made by
//! `files` through the same trees that everybody uses.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::{Parameters, Plan};
use crate::bytes::span_mut;
use crate::disk::bitmap;
use crate::disk::group_desc::{GroupDescriptor, GroupFlags};
use crate::error::{Defect, Place, Result};
use crate::geometry::Geometry;
use crate::ids::{BlockNumber, BlockRun, GroupNumber};
use crate::num::{index, low32};
use crate::store::Store;
use crate::txn::{BlockKind, Overlay, OverlayOptions, Transaction, create, modify};

/// An overlay over the store that holds the fixed parts of the planned filesystem and no file yet.
///
/// Blocks that must read as zero and may not be (unused slots of inode tables, without lazy initialisation) are zeroed
/// on the store at once: nothing is lost by it that the new filesystem would keep.
pub fn write_skeleton(
    store: Arc<dyn Store>,
    plan: &Plan,
    parameters: &Parameters,
    options: OverlayOptions,
) -> Result<Overlay> {
    let geometry = &plan.layout.geometry;
    let mut descriptors = describe_groups(plan, parameters);
    let holds = foreign_metadata(geometry, &descriptors);
    let mut overlay = Overlay::new(store, plan.layout.clone(), options);
    let mut free_clusters = 0u64;
    // The boot block before the first group is overhead too, as the kernel counts.
    let mut overhead = geometry.first_data_block().0;
    for (group, descriptor) in geometry.groups().zip(&mut descriptors) {
        let mut used = own_runs_inside(geometry, group, descriptor);
        let first = holds.partition_point(|(owner, _)| *owner < group);
        let foreign = holds.iter().skip(first).take_while(|(owner, _)| *owner == group);
        used.extend(foreign.map(|(_, run)| *run));
        let bits = used_bits(geometry, group, &used);
        let last = group.0.saturating_add(1) == geometry.group_count();
        let lazy = plan.layout.has_lazy_groups()
            && !last
            && group.0 > 0
            && used_is_own(&used, geometry, group, descriptor);
        let clusters = geometry.group_clusters(group);
        let taken: u32 = bits.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        descriptor.free_clusters = clusters.saturating_sub(taken);
        free_clusters = free_clusters.saturating_add(descriptor.free_clusters.into());
        overhead = overhead.saturating_add(taken.into());
        descriptor.flags.set(GroupFlags::BLOCK_UNINIT, lazy);
        if !lazy {
            create(&mut overlay, descriptor.block_bitmap, BlockKind::BlockBitmap(group), |bytes| {
                for bit in bits.into_iter().flatten() {
                    bitmap::set(bytes, bit);
                }
                bitmap::set_padding(bytes, clusters);
            })?;
        }
        write_inode_bitmap(&mut overlay, group, descriptor)?;
        zero_inode_table(&mut overlay, descriptor, parameters)?;
    }
    write_descriptors(&mut overlay, &descriptors)?;
    let mut superblock = plan.superblock.clone();
    superblock.set_free_blocks_count(free_clusters << geometry.cluster_bits());
    let reserved = geometry.first_inode().saturating_sub(1);
    superblock.s_free_inodes_count.set(geometry.inodes_count().saturating_sub(reserved));
    superblock.s_overhead_clusters.set(low32(overhead));
    let offset = geometry.superblock_offset();
    create(&mut overlay, geometry.superblock_block(), BlockKind::Superblock, |bytes| {
        bytes.get_mut(offset..).and_then(|area| superblock.write_to_prefix(area).ok())
    })?
    .ok_or_else(|| Defect::Truncated { what: "superblock" }.at(Place::Superblock))?;
    Ok(overlay)
}

/// A descriptor for every group, complete but for what its block bitmap decides.
fn describe_groups(plan: &Plan, parameters: &Parameters) -> Vec<GroupDescriptor> {
    let geometry = &plan.layout.geometry;
    let lazy = plan.layout.has_lazy_groups();
    let inodes = geometry.inodes_per_group();
    let reserved = geometry.first_inode().saturating_sub(1);
    let describe = |(group, tables): (GroupNumber, &super::GroupTables)| {
        // Tables may be so small that the reserved inodes go on in the next group.
        let before = group.0.saturating_mul(inodes);
        let used = reserved.saturating_sub(before).min(inodes);
        let mut flags = GroupFlags::empty();
        flags.set(GroupFlags::INODE_UNINIT, lazy && used == 0);
        flags.set(GroupFlags::INODE_ZEROED, lazy && (parameters.target_is_zero || !parameters.lazy_tables));
        GroupDescriptor {
            block_bitmap: tables.block_bitmap,
            inode_bitmap: tables.inode_bitmap,
            inode_table: tables.inode_table,
            free_inodes: inodes.saturating_sub(used),
            unused_inodes: if lazy { inodes.saturating_sub(used) } else { 0 },
            flags,
            ..GroupDescriptor::default()
        }
    };
    geometry.groups().zip(&plan.tables).map(describe).collect()
}

/// The runs of each group's bitmaps and table that lie in another group, by the group that they lie in.
fn foreign_metadata(geometry: &Geometry, descriptors: &[GroupDescriptor]) -> Vec<(GroupNumber, BlockRun)> {
    let mut found = Vec::new();
    for (group, descriptor) in geometry.groups().zip(descriptors) {
        for run in table_runs(geometry, descriptor) {
            for (owner, part) in split_by_group(geometry, run) {
                if owner != group {
                    found.push((owner, part));
                }
            }
        }
    }
    found.sort_unstable_by_key(|(group, run)| (*group, run.start));
    found
}

fn table_runs(geometry: &Geometry, descriptor: &GroupDescriptor) -> [BlockRun; 3] {
    [
        BlockRun::single(descriptor.block_bitmap),
        BlockRun::single(descriptor.inode_bitmap),
        BlockRun { start: descriptor.inode_table, length: geometry.inode_table_blocks().into() },
    ]
}

/// A run cut at group boundaries.
fn split_by_group(geometry: &Geometry, run: BlockRun) -> Vec<(GroupNumber, BlockRun)> {
    let mut parts = Vec::new();
    let (mut at, mut left) = (run.start, run.length);
    while let Some(group) = geometry.group_of(at).filter(|_| left > 0) {
        let end = geometry.group_blocks(group).end().unwrap_or(at);
        let length = left.min(end.0.saturating_sub(at.0)).max(1);
        parts.push((group, BlockRun { start: at, length }));
        at = BlockNumber(at.0.saturating_add(length));
        left = left.saturating_sub(length);
    }
    parts
}

/// What a group's own metadata takes of the group itself.
fn own_runs_inside(geometry: &Geometry, group: GroupNumber, descriptor: &GroupDescriptor) -> Vec<BlockRun> {
    let base = geometry.base_metadata(group).runs().collect::<Vec<_>>();
    let tables = table_runs(geometry, descriptor);
    let parts = base.into_iter().chain(tables).flat_map(|run| split_by_group(geometry, run));
    parts.filter(|(owner, _)| *owner == group).map(|(_, run)| run).collect()
}

/// Whether nothing of another group's metadata lies in the group.
fn used_is_own(
    used: &[BlockRun],
    geometry: &Geometry,
    group: GroupNumber,
    descriptor: &GroupDescriptor,
) -> bool {
    used.len() == own_runs_inside(geometry, group, descriptor).len()
}

/// The ranges of bits of a group's bitmap that runs inside the group take, in order and apart from each other.
fn used_bits(geometry: &Geometry, group: GroupNumber, runs: &[BlockRun]) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = runs
        .iter()
        .filter_map(|run| {
            let last = BlockNumber(run.end()?.0.saturating_sub(1));
            let (first, last) = (geometry.bit_of(run.start)?, geometry.bit_of(last)?);
            (first.0 == group && last.0 == group).then(|| first.1..last.1.saturating_add(1))
        })
        .collect();
    // The boot block of 1 KiB blocks under bigalloc lies before the superblock, in the same cluster or alone in one.
    if group.0 == 0 && geometry.superblock_block() > geometry.first_data_block() {
        ranges.push(0..1);
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            // Runs of different structures may share a cluster.
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn write_inode_bitmap(overlay: &mut Overlay, group: GroupNumber, descriptor: &GroupDescriptor) -> Result<()> {
    if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
        return Ok(());
    }
    let inodes = overlay.layout().geometry.inodes_per_group();
    let used = inodes.saturating_sub(descriptor.free_inodes);
    create(overlay, descriptor.inode_bitmap, BlockKind::InodeBitmap(group), |bytes| {
        for place in 0..used {
            bitmap::set(bytes, place);
        }
        bitmap::set_padding(bytes, inodes);
    })
}

/// Zeroes a group's inode table, as much of it as will be read before it is written.
fn zero_inode_table(
    overlay: &mut Overlay,
    descriptor: &GroupDescriptor,
    parameters: &Parameters,
) -> Result<()> {
    if parameters.target_is_zero {
        return Ok(());
    }
    let geometry = &overlay.layout().geometry;
    let lazy = overlay.layout().has_lazy_groups() && parameters.lazy_tables;
    let blocks = if lazy {
        let used = geometry.inodes_per_group().saturating_sub(descriptor.unused_inodes);
        used.div_ceil(geometry.inodes_per_block().max(1))
    } else {
        geometry.inode_table_blocks()
    };
    if blocks == 0 {
        return Ok(());
    }
    let store = Arc::clone(overlay.store());
    let place = || Place::Block(descriptor.inode_table);
    let offset = geometry.byte_offset(descriptor.inode_table).unwrap_or(0);
    store.zero_range(offset, u64::from(blocks) << geometry.block_bits()).map_err(crate::Error::io(place()))
}

/// Writes the primary table of descriptors. The copies follow when the filesystem is complete.
fn write_descriptors(overlay: &mut Overlay, descriptors: &[GroupDescriptor]) -> Result<()> {
    let size = index(overlay.layout().geometry.descriptor_size());
    let per_block = index(overlay.layout().geometry.descriptors_per_block());
    let groups: Vec<GroupNumber> = overlay.layout().geometry.groups().collect();
    for (groups, descriptors) in groups.chunks(per_block.max(1)).zip(descriptors.chunks(per_block.max(1))) {
        let Some(first) = groups.first() else { break };
        let (block, _) = overlay.layout().geometry.descriptor_slot(*first);
        create(overlay, block, BlockKind::Descriptor(*first), |_| ())?;
        for (group, descriptor) in groups.iter().zip(descriptors) {
            let (_, offset) = overlay.layout().geometry.descriptor_slot(*group);
            modify(overlay, block, BlockKind::Descriptor(*group), |bytes| {
                let bytes =
                    span_mut(bytes, offset, size).ok_or(Defect::Truncated { what: "descriptor table" })?;
                descriptor.store(bytes)
            })?
            .map_err(|defect| defect.at(Place::GroupDescriptor(*group)))?;
        }
    }
    Ok(())
}
