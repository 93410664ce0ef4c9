//! Pass 0: the group descriptors.

use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::num::index;
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, Place};

use super::context::Context;
use crate::finding::GroupProblem as Problem;

/// Checks every descriptor.
pub fn check(context: &mut Context<'_>) {
    let geometry = context.geometry();
    for (group, descriptor) in geometry.groups().zip(context.groups) {
        let mut found = Vec::new();
        places(context, group, descriptor, &mut found);
        checksum(context, group, &mut found);
        flags(context, group, descriptor, &mut found);
        for problem in found {
            context.find(Place::GroupDescriptor(group), problem);
        }
    }
}

fn places(context: &Context<'_>, group: GroupNumber, descriptor: &GroupDescriptor, found: &mut Vec<Problem>) {
    let geometry = context.geometry();
    let own = geometry.group_blocks(group);
    let flexible = context.features().incompat.contains(ext4kit_format::disk::features::Incompat::FLEX_BG);
    let allowed = |run: BlockRun| {
        geometry.contains_run(run)
            && (flexible
                || (own.contains(run.start)
                    && run.end().is_some_and(|end| end.0 <= own.start.0.saturating_add(own.length))))
    };
    let single = |block: BlockNumber| allowed(BlockRun::single(block));
    if !single(descriptor.block_bitmap) {
        found.push(Problem::BlockBitmapMisplaced { group, block: descriptor.block_bitmap });
    }
    if !single(descriptor.inode_bitmap) {
        found.push(Problem::InodeBitmapMisplaced { group, block: descriptor.inode_bitmap });
    }
    let table = BlockRun { start: descriptor.inode_table, length: geometry.inode_table_blocks().into() };
    if !allowed(table) {
        found.push(Problem::InodeTableMisplaced { group, block: descriptor.inode_table });
    }
}

fn checksum(context: &Context<'_>, group: GroupNumber, found: &mut Vec<Problem>) {
    if context.from_copy {
        // Copies are not kept current; the primary table is written anew anyway.
        return;
    }
    let geometry = context.geometry();
    let (block, offset) = geometry.descriptor_slot(group);
    let bytes = match context.source.block(block) {
        Ok(bytes) => bytes,
        Err(error) => return found.push(Problem::Unreadable { why: error.to_string() }),
    };
    let end = offset.saturating_add(index(geometry.descriptor_size()));
    let record = bytes.get(offset..end).unwrap_or_default();
    if let Err(defect) = context.layout.descriptor_checksum.verify(group, record) {
        found.push(Problem::ChecksumWrong { defect });
    }
}

fn flags(context: &Context<'_>, group: GroupNumber, descriptor: &GroupDescriptor, found: &mut Vec<Problem>) {
    let geometry = context.geometry();
    let lazy = descriptor.flags & (GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
    if !context.layout.has_lazy_groups() {
        if !lazy.is_empty() {
            found.push(Problem::LazyFlagsUnsupported { flags: lazy.bits() });
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
