//! Descriptors, and the parts of inode tables that were never used.

use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::num::low32;
use ext4kit_format::{GroupNumber, Place};

use super::Linter;
use super::superblock::{first_set, record};
use crate::finding::LintProblem as Problem;

/// Where in a long descriptor `bg_reserved` lies.
const RESERVED: std::ops::Range<usize> = 0x3c..0x40;

/// Looks at every group.
pub fn lint(linter: &mut Linter<'_>) {
    let opened = linter.opened;
    let geometry = linter.geometry();
    let lazy = opened.source.layout().has_lazy_groups();
    for (group, descriptor) in linter.groups() {
        let (block, offset) = geometry.descriptor_slot(group);
        let bytes = opened.source.block(block).ok();
        let stored = bytes.as_deref().and_then(|bytes| record(bytes, offset, geometry.descriptor_size()));
        let reserved = stored.and_then(|stored| stored.get(RESERVED)).unwrap_or_default();
        if first_set(reserved).is_some() || descriptor.exclude_bitmap.0 != 0 {
            linter.find(Place::GroupDescriptor(group), Problem::DescriptorReservedSet {});
        }
        let (stored, most) = (descriptor.unused_inodes, geometry.inodes_per_group());
        if lazy && descriptor.flags.contains(GroupFlags::INODE_UNINIT) && stored != most {
            linter.find(Place::GroupDescriptor(group), Problem::UnusedInodesWrong { stored, most });
        }
        if lazy && descriptor.flags.contains(GroupFlags::INODE_ZEROED) {
            table(linter, group, descriptor);
        }
    }
}

/// Looks for bytes in the part of an inode table that was never used.
fn table(linter: &mut Linter<'_>, group: GroupNumber, descriptor: &GroupDescriptor) {
    let opened = linter.opened;
    let geometry = linter.geometry();
    let mut place = linter.used_part(descriptor);
    while place < geometry.inodes_per_group() {
        let (block, offset) = geometry.inode_slot(descriptor.inode_table, place);
        let Ok(bytes) = opened.source.block(block) else { return };
        let rest = bytes.get(offset..).unwrap_or_default();
        let slots =
            ext4kit_format::num::wide(rest.len()).checked_div(geometry.inode_size().into()).unwrap_or(1);
        if let Some(at) = first_set(rest) {
            let slot = at.checked_div(geometry.inode_size().into()).unwrap_or(0);
            let number = geometry.inode_at(group, place.saturating_add(low32(slot)));
            let inode = number.map_or(0, ext4kit_format::InodeNumber::get);
            // One for a group: where there is one there are often many.
            linter.find(Place::GroupDescriptor(group), Problem::TableNotZeroed { inode });
            return;
        }
        place = place.saturating_add(low32(slots).max(1));
    }
}
