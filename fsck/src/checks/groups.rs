//! Pass 0: the group descriptors.

use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::num::index;
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, Place};

use super::context::Context;
use crate::finding::GroupProblem as Problem;
use crate::opening::descriptors;
use crate::source::Bytes;

/// Checks every descriptor.
pub fn check(context: &mut Context<'_>) {
    let geometry = context.geometry();
    for (group, descriptor) in geometry.groups().zip(context.groups) {
        let mut found = Vec::new();
        places(context, group, descriptor, &mut found);
        checksum(context, group, descriptor, &mut found);
        flags(context, group, descriptor, &mut found);
        for problem in found {
            context.find(Place::GroupDescriptor(group), problem);
        }
    }
}

fn places(context: &Context<'_>, group: GroupNumber, descriptor: &GroupDescriptor, found: &mut Vec<Problem>) {
    let geometry = context.geometry();
    if is_replaced(context, group, descriptor) {
        // Told when the filesystem was opened.
        return;
    }
    let allowed = |run: BlockRun| descriptors::allowed(geometry, group, run);
    let single = |block: BlockNumber| allowed(BlockRun::single(block));
    if !single(descriptor.block_bitmap) {
        found.push(Problem::BlockBitmapMisplaced { group, block: descriptor.block_bitmap });
    }
    if !single(descriptor.inode_bitmap) {
        found.push(Problem::InodeBitmapMisplaced { group, block: descriptor.inode_bitmap });
    }
    let table = BlockRun { start: descriptor.inode_table, length: geometry.inode_table_blocks().into() };
    if !allowed(table) {
        found.push(Problem::InodeTableLost { group, block: descriptor.inode_table });
    }
}

/// The stored record of a group's descriptor.
fn stored<'a>(
    context: &Context<'a>,
    group: GroupNumber,
) -> Result<(Bytes<'a>, std::ops::Range<usize>), String> {
    let geometry = context.geometry();
    let (block, offset) = geometry.descriptor_slot(group);
    let bytes = context.source.block(block).map_err(|error| error.to_string())?;
    let end = offset.saturating_add(index(geometry.descriptor_size()));
    Ok((bytes, offset..end))
}

/// Whether the descriptor is not the one that is stored.
fn is_replaced(context: &Context<'_>, group: GroupNumber, descriptor: &GroupDescriptor) -> bool {
    stored(context, group).is_ok_and(|(bytes, range)| {
        bytes.get(range).and_then(|record| GroupDescriptor::parse(record).ok()).as_ref() != Some(descriptor)
    })
}

fn checksum(
    context: &Context<'_>,
    group: GroupNumber,
    descriptor: &GroupDescriptor,
    found: &mut Vec<Problem>,
) {
    let (bytes, range) = match stored(context, group) {
        Ok(stored) => stored,
        Err(why) => return found.push(Problem::Unreadable { why }),
    };
    if is_replaced(context, group, descriptor) {
        return;
    }
    let record = bytes.get(range).unwrap_or_default();
    if let Err(defect) = context.layout.descriptor_checksum.verify(group, record) {
        found.push(Problem::ChecksumWrong { defect });
    }
}

fn flags(context: &Context<'_>, group: GroupNumber, descriptor: &GroupDescriptor, found: &mut Vec<Problem>) {
    let geometry = context.geometry();
    let lazy = descriptor.flags & (GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
    if !context.layout.has_lazy_groups() {
        if !lazy.is_empty() || descriptor.unused_inodes != 0 {
            found
                .push(Problem::LazyFlagsUnsupported { flags: lazy.bits(), unused: descriptor.unused_inodes });
        }
        return;
    }
    let most = geometry.inodes_per_group();
    if descriptor.unused_inodes > most {
        found.push(Problem::UnusedInodesTooMany { stored: descriptor.unused_inodes, most });
    }
    let last = group.0.saturating_add(1) == geometry.group_count();
    if last && lazy.contains(GroupFlags::BLOCK_UNINIT) {
        found.push(Problem::LastGroupUninit {});
    }
}
