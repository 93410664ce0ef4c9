//! What the passes know and hand on to each other.

use std::ops::ControlFlow;

use ext4kit_format::disk::features::Features;
use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::geometry::Geometry;
use ext4kit_format::layout::Layout;
use ext4kit_format::num::index;
use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber, Place};

use super::claims::Claims;
use crate::check::{Observer, Stage, Summary};
use crate::finding::{Finding, Problem};
use crate::opening::Opened;
use crate::source::{Bytes, Source};

/// What is known of an inode after pass 1, in one byte: the low four bits are its type as directories store it.
pub mod known {
    /// The type of file.
    pub const KIND: u8 = 0x0f;
    /// In use.
    pub const USED: u8 = 0x10;
    /// In use, but not as a file that a directory may name.
    pub const HIDDEN: u8 = 0x20;
    /// Holds the value of an attribute.
    pub const VALUE: u8 = 0x40;
    /// Encrypted.
    pub const ENCRYPTED: u8 = 0x80;
}

/// A directory, and what the passes learn of its place.
#[derive(Clone, Copy, Debug)]
pub struct Directory {
    /// Its inode.
    pub inode: InodeNumber,
    /// What `..` says; 0 if it is not there.
    pub dotdot: u32,
    /// The directory that names it; 0 if none does.
    pub parent: u32,
}

/// What a check learnt, as far as it came: the repairs work with it.
#[derive(Debug)]
pub struct Knowledge {
    /// Which clusters are in use, and which by more than one owner.
    pub claims: Claims,
    /// A byte of [`known`] for each inode.
    pub states: Vec<u8>,
    /// How many names of each inode directories hold.
    pub names: Vec<u32>,
    /// Directories in order of inode.
    pub directories: Vec<Directory>,
    /// What the root calls `lost+found`.
    pub lost_and_found: Option<InodeNumber>,
}

/// What the passes know.
pub struct Context<'a> {
    /// The blocks.
    pub source: &'a Source,
    /// The superblock.
    pub superblock: &'a Superblock,
    /// The shape of the filesystem.
    pub layout: &'a Layout,
    /// The descriptors.
    pub groups: &'a [GroupDescriptor],
    /// Whether a copy of the superblock was taken.
    pub from_copy: bool,
    /// Whether the external journal was given.
    pub has_external_journal: bool,
    /// Which clusters are in use, and which by more than one owner.
    pub claims: Claims,
    /// A byte of [`known`] for each inode.
    pub states: Vec<u8>,
    /// How many names of each inode directories hold.
    pub names: Vec<u32>,
    /// Directories in order of inode.
    pub directories: Vec<Directory>,
    /// Inodes that wait on the list or in the file of orphans.
    pub orphans: rustc_hash::FxHashSet<InodeNumber>,
    /// Attribute block and inode, for each inode that has one.
    pub attribute_blocks: Vec<(BlockNumber, InodeNumber)>,
    /// Inode of a value, and the inode whose attribute it is.
    pub value_references: Vec<(InodeNumber, InodeNumber)>,
    /// Inodes among them that hold a value, in order, once pass 1 is over.
    pub values: Vec<InodeNumber>,
    /// What the root calls `lost+found`.
    pub lost_and_found: Option<InodeNumber>,
    /// Whether a regular file needs `large_file`.
    pub has_large_file: bool,
    /// What the check comes to.
    pub summary: Summary,
    observer: &'a mut dyn Observer,
    pass: u8,
}

impl<'a> Context<'a> {
    /// Nothing known yet.
    pub fn new(opened: &'a Opened, observer: &'a mut dyn Observer) -> Self {
        let layout = opened.source.layout();
        let geometry = &layout.geometry;
        let inodes = index(geometry.inodes_count());
        let summary = Summary {
            inodes_total: geometry.inodes_count().into(),
            blocks_total: geometry.blocks_count(),
            replayed: opened.replayed,
            ..Summary::default()
        };
        Self {
            source: &opened.source,
            superblock: &opened.superblock,
            layout,
            groups: &opened.groups,
            from_copy: opened.copy.is_some(),
            has_external_journal: opened.has_external_journal,
            claims: Claims::new(geometry),
            states: vec![0; inodes],
            names: vec![0; inodes],
            directories: Vec::new(),
            orphans: rustc_hash::FxHashSet::default(),
            attribute_blocks: Vec::new(),
            value_references: Vec::new(),
            values: Vec::new(),
            lost_and_found: None,
            has_large_file: false,
            summary,
            observer,
            pass: 0,
        }
    }

    /// Begins a pass.
    pub fn begin(&mut self, pass: u8) {
        self.pass = pass;
        self.observer.pass(pass);
    }

    /// Tells how far the pass is.
    pub fn progress(&mut self, current: u64, maximum: u64) {
        self.observer.progress(self.pass, current, maximum);
    }

    /// Reports a problem at a place.
    pub fn find(&mut self, place: Place, problem: impl Into<Problem>) {
        self.report(Finding::new(place, problem));
    }

    /// Reports a finding.
    pub fn report(&mut self, finding: Finding) {
        self.summary.count(finding.verdict().grade);
        self.observer.finding(finding);
    }

    /// The check is over.
    pub fn finish(self) -> Summary {
        self.summary
    }

    /// The stage is over; whether to go on.
    pub fn stage_done(&mut self, stage: Stage) -> ControlFlow<()> {
        self.observer.stage_done(stage)
    }

    /// The check is over, and what it learnt is wanted.
    pub fn part(self) -> (Summary, Knowledge) {
        let knowledge = Knowledge {
            claims: self.claims,
            states: self.states,
            names: self.names,
            directories: self.directories,
            lost_and_found: self.lost_and_found,
        };
        (self.summary, knowledge)
    }

    /// The shape of the filesystem.
    pub fn geometry(&self) -> &'a Geometry {
        &self.layout.geometry
    }

    /// The features of the filesystem.
    pub fn features(&self) -> Features {
        self.layout.features()
    }

    /// A group's descriptor.
    pub fn group(&self, group: GroupNumber) -> Option<&'a GroupDescriptor> {
        self.groups.get(index(group.0))
    }

    /// What is known of an inode; 0 for one that is free or does not exist.
    pub fn state(&self, inode: InodeNumber) -> u8 {
        self.states.get(index(inode.get().saturating_sub(1))).copied().unwrap_or(0)
    }

    /// Notes what is known of an inode.
    pub fn set_state(&mut self, inode: InodeNumber, state: u8) {
        if let Some(slot) = self.states.get_mut(index(inode.get().saturating_sub(1))) {
            *slot = state;
        }
    }

    /// Whether some attribute's value lies in an inode.
    pub fn is_value(&self, inode: InodeNumber) -> bool {
        self.values.binary_search(&inode).is_ok()
    }

    /// Counts a name of an inode; gives how many there were before.
    pub fn count_name(&mut self, inode: InodeNumber) -> u32 {
        let Some(slot) = self.names.get_mut(index(inode.get().saturating_sub(1))) else { return 0 };
        let before = *slot;
        *slot = before.saturating_add(1);
        before
    }

    /// The block that holds an inode, and where in it the inode's slot lies.
    pub fn inode_block(&self, inode: InodeNumber) -> Option<(Bytes<'a>, std::ops::Range<usize>)> {
        let geometry = self.geometry();
        let (group, place) = geometry.inode_place(inode)?;
        let table = self.group(group)?.inode_table;
        let (block, offset) = geometry.inode_slot(table, place);
        let end = offset.checked_add(index(geometry.inode_size()))?;
        if !geometry.contains(block) {
            return None;
        }
        let bytes = self.source.block(block).ok()?;
        (end <= bytes.len()).then_some((bytes, offset..end))
    }

    /// How many inodes of a group are worth reading: none where the table was never written, else up to the unused
    /// rest. Only a descriptor with a right checksum is believed.
    pub fn used_part(&self, group: GroupNumber) -> u32 {
        let all = self.geometry().inodes_per_group();
        let Some(descriptor) = self.group(group) else { return 0 };
        if !self.layout.has_lazy_groups() || !self.descriptor_trusted(group) {
            return all;
        }
        if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        all.saturating_sub(descriptor.unused_inodes)
    }

    /// Whether the descriptor's checksum is right, as far as it has one.
    pub fn descriptor_trusted(&self, group: GroupNumber) -> bool {
        let geometry = self.geometry();
        let (block, offset) = geometry.descriptor_slot(group);
        let size = index(geometry.descriptor_size());
        let Ok(bytes) = self.source.block(block) else { return false };
        let record = bytes.get(offset..offset.saturating_add(size));
        record.is_some_and(|record| self.layout.descriptor_checksum.verify(group, record).is_ok())
    }
}
