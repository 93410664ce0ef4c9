//! Everything that a healthy filesystem should satisfy although every implementation tolerates it.
//!
//! | file | what it looks at |
//! | --- | --- |
//! | [`superblock`] | the superblock, its copies, the journal's superblock |
//! | [`groups`] | descriptors, and the parts of inode tables that were never used |
//! | [`inodes`] | free inodes, reserved fields, extents |
//! | [`directories`] | hash trees |
//!
//! It runs over the result of a check that left no error, so that structures are taken to be sound; what cannot be read
//! nevertheless ends the look at that structure. Nothing is ever repaired.

pub mod directories;
pub mod groups;
pub mod inodes;
pub mod superblock;

use ext4kit_format::Place;
use ext4kit_format::disk::bitmap::Bits;
use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::geometry::Geometry;
use ext4kit_format::num::index;
use ext4kit_format::{GroupNumber, InodeNumber};

use crate::finding::{Finding, LintProblem};
use crate::opening::Opened;

/// What all the looks share.
pub struct Linter<'a> {
    /// The filesystem.
    pub opened: &'a Opened,
    found: &'a mut dyn FnMut(Finding),
}

/// Tells all oddities of a filesystem in which a check left no error.
pub fn lint(opened: &Opened, found: &mut dyn FnMut(Finding)) {
    let mut linter = Linter { opened, found };
    superblock::lint(&mut linter);
    groups::lint(&mut linter);
    let mut directories = Vec::new();
    inodes::lint(&mut linter, &mut |inode| directories.push(inode.number()));
    for number in directories {
        directories::lint(&mut linter, number);
    }
}

impl<'a> Linter<'a> {
    /// Tells an oddity.
    pub fn find(&mut self, place: Place, problem: LintProblem) {
        (self.found)(Finding::new(place, problem));
    }

    /// The shape of the filesystem.
    pub fn geometry(&self) -> &'a Geometry {
        &self.opened.source.layout().geometry
    }

    /// All groups with their descriptors.
    pub fn groups(&self) -> impl Iterator<Item = (GroupNumber, &'a GroupDescriptor)> + use<'a> {
        self.geometry().groups().zip(&self.opened.groups)
    }

    /// How many inodes of a group were ever used.
    pub fn used_part(&self, descriptor: &GroupDescriptor) -> u32 {
        let all = self.geometry().inodes_per_group();
        if !self.opened.source.layout().has_lazy_groups() {
            return all;
        }
        if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        all.saturating_sub(descriptor.unused_inodes)
    }

    /// Hands the inodes of a group that were ever used to a look, each with whether it is in use. Blocks of the table are
    /// read once each.
    pub fn each_inode(
        &mut self,
        (group, descriptor): (GroupNumber, &GroupDescriptor),
        look: &mut dyn FnMut(&mut Self, Inode, bool),
    ) {
        let opened = self.opened;
        let geometry = self.geometry();
        let Ok(bitmap) = opened.source.block(descriptor.inode_bitmap) else { return };
        let size = index(geometry.inode_size());
        let per_block = geometry.inodes_per_block();
        let used = self.used_part(descriptor);
        let mut place = 0;
        while place < used {
            let (block, _) = geometry.inode_slot(descriptor.inode_table, place);
            let Ok(bytes) = opened.source.block(block) else { return };
            for (slot, at) in bytes.chunks_exact(size).zip(place..used.min(place.saturating_add(per_block))) {
                let Some(number) = geometry.inode_at(group, at) else { continue };
                let in_use = Bits(&bitmap).is_set(at);
                if (in_use || slot.iter().any(|byte| *byte != 0))
                    && let Ok(inode) = Inode::from_slot(number, slot)
                {
                    look(self, inode, in_use);
                }
            }
            place = place.saturating_add(per_block.max(1));
        }
    }

    /// Whether an inode is one of the reserved ones, which have rules of their own.
    pub fn is_reserved(&self, number: InodeNumber) -> bool {
        number.get() < self.geometry().first_inode() && number != InodeNumber::ROOT
    }
}
