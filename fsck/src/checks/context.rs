//! What the passes know and hand on to each other.
//!
//! [`Known`] is what all threads of a pass look at and fill in together. A [`Context`] adds the [`Ledger`], which only
//! the thread has that leads the check: who follows it, and what was found, in order.

use std::ops::{ControlFlow, Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ext4kit_format::disk::features::Features;
use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::geometry::Geometry;
use ext4kit_format::layout::Layout;
use ext4kit_format::num::index;
use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber, Place};

use super::bits::{InodeBytes, NameCounts};
use super::claims::Claims;
use super::directory_list::DirectoryList;
use super::parallel;
use super::part::{Found, Run};
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

pub use super::directory_list::Directory;

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

/// With fewer inodes, starting threads costs more than they save.
const FEW_INODES: u32 = 16 << 10;

/// What all threads of a pass look at; what they fill in together is atomic.
pub struct Known<'a> {
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
    pub states: InodeBytes,
    /// The link count of each inode in use; 255 stands for more.
    pub links: InodeBytes,
    /// How many names of each inode directories hold.
    pub names: NameCounts,
    /// All directories.
    pub directories: DirectoryList,
    /// Inodes that wait on the list or in the file of orphans.
    pub orphans: rustc_hash::FxHashSet<InodeNumber>,
    /// Inodes that hold the value of some attribute, in order, once pass 1 is over.
    pub values: Vec<InodeNumber>,
    /// How many inodes of each group are worth reading.
    used_parts: Vec<u32>,
    /// Whether two parts of a pass met, so that what was found depends on which of them came first.
    met: AtomicBool,
}

impl<'a> Known<'a> {
    fn new(opened: &'a Opened) -> Self {
        let layout = opened.source.layout();
        let inodes = layout.geometry.inodes_count();
        let mut known = Self {
            source: &opened.source,
            superblock: &opened.superblock,
            layout,
            groups: &opened.groups,
            from_copy: opened.copy.is_some(),
            has_external_journal: opened.has_external_journal,
            claims: Claims::new(&layout.geometry),
            states: InodeBytes::new(inodes),
            links: InodeBytes::new(inodes),
            names: NameCounts::new(inodes),
            directories: DirectoryList::default(),
            orphans: rustc_hash::FxHashSet::default(),
            values: Vec::new(),
            used_parts: Vec::new(),
            met: AtomicBool::new(false),
        };
        known.used_parts = layout.geometry.groups().map(|group| known.find_used_part(group)).collect();
        known
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
        self.states.get(inode)
    }

    /// Whether some attribute's value lies in an inode.
    pub fn is_value(&self, inode: InodeNumber) -> bool {
        self.values.binary_search(&inode).is_ok()
    }

    /// Says that two parts of a pass met.
    pub fn note_meeting(&self) {
        self.met.store(true, Relaxed);
    }

    /// Whether two parts of a pass met.
    pub fn parts_met(&self) -> bool {
        self.met.load(Relaxed)
    }

    /// The block that holds an inode, and where in it the inode's slot lies.
    pub fn inode_block(&self, inode: InodeNumber) -> Option<(Bytes<'a>, Range<usize>)> {
        let (block, slot) = self.inode_slot(inode)?;
        let bytes = self.source.block(block).ok()?;
        (slot.end <= bytes.len()).then_some((bytes, slot))
    }

    /// The block that an inode's slot lies in, and where in it.
    pub fn inode_slot(&self, inode: InodeNumber) -> Option<(BlockNumber, Range<usize>)> {
        let geometry = self.geometry();
        let (group, place) = geometry.inode_place(inode)?;
        let table = self.group(group)?.inode_table;
        let (block, offset) = geometry.inode_slot(table, place);
        let end = offset.checked_add(index(geometry.inode_size()))?;
        geometry.contains(block).then_some((block, offset..end))
    }

    /// How many inodes of a group are worth reading: none where the table was never written, else up to the unused
    /// rest. Only a descriptor with a right checksum is believed.
    pub fn used_part(&self, group: GroupNumber) -> u32 {
        self.used_parts.get(index(group.0)).copied().unwrap_or(0)
    }

    fn find_used_part(&self, group: GroupNumber) -> u32 {
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

/// What only the thread has that leads the check.
pub struct Ledger<'a> {
    /// What the check comes to.
    pub summary: Summary,
    /// What parts of passes found that later passes need.
    pub kept: Found,
    observer: &'a mut dyn Observer,
    pass: u8,
}

impl Ledger<'_> {
    /// Tells how far the pass is.
    pub fn progress(&mut self, current: u64, maximum: u64) {
        self.observer.progress(self.pass, current, maximum);
    }

    /// Reports a finding.
    pub fn report(&mut self, finding: Finding) {
        self.summary.count(finding.verdict().grade);
        self.observer.finding(finding);
    }

    /// Reports what a part of a pass found, and keeps the rest.
    pub fn take(&mut self, mut found: Found) {
        for finding in found.findings.drain(..) {
            self.report(finding);
        }
        self.summary.files.add(&std::mem::take(&mut found.files));
        self.kept.append(found);
    }
}

/// What the passes know, and who follows them.
pub struct Context<'a> {
    /// What all threads look at.
    pub known: Known<'a>,
    /// What only this thread has.
    pub ledger: Ledger<'a>,
    threads: usize,
}

impl<'a> Deref for Context<'a> {
    type Target = Known<'a>;

    fn deref(&self) -> &Known<'a> {
        &self.known
    }
}

impl DerefMut for Context<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.known
    }
}

impl<'a> Context<'a> {
    /// Nothing known yet.
    pub fn new(opened: &'a Opened, observer: &'a mut dyn Observer) -> Self {
        let geometry = &opened.source.layout().geometry;
        let summary = Summary {
            inodes_total: geometry.inodes_count().into(),
            blocks_total: geometry.blocks_count(),
            replayed: opened.replayed,
            ..Summary::default()
        };
        let few = geometry.inodes_count() < FEW_INODES;
        Self {
            known: Known::new(opened),
            ledger: Ledger { summary, kept: Found::default(), observer, pass: 0 },
            threads: parallel::threads(opened.threads.or(few.then_some(1))),
        }
    }

    /// Begins a pass.
    pub fn begin(&mut self, pass: u8) {
        self.ledger.pass = pass;
        self.ledger.observer.pass(pass);
    }

    /// Reports a problem at a place.
    pub fn find(&mut self, place: Place, problem: impl Into<Problem>) {
        self.report(Finding::new(place, problem));
    }

    /// Reports a finding.
    pub fn report(&mut self, finding: Finding) {
        self.ledger.report(finding);
    }

    /// Runs a pass that goes in parts. Where two parts met, what they found is thrown away and the pass runs again on
    /// one thread, from what `restart` gives back: so the findings are always those of one thread, and only an image on
    /// which owners quarrel pays for it.
    pub fn run(&mut self, pass: impl Fn(&mut Run<'_, 'a>), restart: impl Fn(&mut Known<'a>)) {
        self.known.met = AtomicBool::new(false);
        if self.threads > 1 {
            let mut run = Run::held(&self.known, &mut self.ledger, self.threads);
            pass(&mut run);
            let found = run.finish();
            if !self.known.parts_met() {
                return self.ledger.take(found);
            }
            restart(&mut self.known);
        }
        pass(&mut Run::told_at_once(&self.known, &mut self.ledger));
    }

    /// The check is over.
    pub fn finish(self) -> Summary {
        self.ledger.summary
    }

    /// The stage is over; whether to go on.
    pub fn stage_done(&mut self, stage: Stage) -> ControlFlow<()> {
        self.ledger.observer.stage_done(stage)
    }

    /// The check is over, and what it learnt is wanted.
    pub fn part(self) -> (Summary, Knowledge) {
        let known = self.known;
        let knowledge = Knowledge {
            claims: known.claims,
            states: known.states.into_vec(),
            names: known.names.into_vec(),
            directories: known.directories.iter().collect(),
            lost_and_found: self.ledger.kept.lost_and_found,
        };
        (self.ledger.summary, knowledge)
    }
}
