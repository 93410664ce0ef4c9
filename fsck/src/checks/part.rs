//! Passes in parts: what a thread works with, what it finds, and how the parts come together.
//!
//! A pass is a function over a [`Run`], which does parts of it in any order on many threads. Each part works on a [`Part`]
//! of its own and leaves a [`Found`]; these are taken in the order of the parts, so that findings come in an order that
//! depends on the image alone.

use std::ops::{Deref, Range};

use ext4kit_format::disk::inode::InodeView;
use ext4kit_format::num::wide;
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, Place};

use super::context::{Known, Ledger};
use super::names::Names;
use super::parallel;
use crate::check::FileCounts;
use crate::finding::{Finding, Problem};

/// What parts of a pass found.
#[derive(Debug, Default)]
pub struct Found {
    /// What is wrong, in order.
    pub findings: Vec<Finding>,
    /// Directories in order of inode.
    pub directories: Vec<InodeNumber>,
    /// Those of them that are large enough to be split.
    pub large_directories: Vec<InodeNumber>,
    /// Attribute block and inode, for each inode that has one.
    pub attribute_blocks: Vec<(BlockNumber, InodeNumber)>,
    /// Inode of a value, and the inode whose attribute it is.
    pub value_references: Vec<(InodeNumber, InodeNumber)>,
    /// Names of a large directory that may be in other parts of it as well.
    pub names: Names,
    /// What the root calls `lost+found`.
    pub lost_and_found: Option<InodeNumber>,
    /// Whether a regular file needs `large_file`.
    pub has_large_file: bool,
    /// Files of each kind.
    pub files: FileCounts,
}

impl Found {
    /// Puts what a later part found behind.
    pub fn append(&mut self, mut later: Self) {
        self.findings.append(&mut later.findings);
        self.directories.append(&mut later.directories);
        self.large_directories.append(&mut later.large_directories);
        self.attribute_blocks.append(&mut later.attribute_blocks);
        self.value_references.append(&mut later.value_references);
        self.names.append(&mut later.names);
        self.lost_and_found = later.lost_and_found.or(self.lost_and_found);
        self.has_large_file |= later.has_large_file;
        self.files.add(&later.files);
    }
}

/// A pass under way.
pub struct Run<'r, 'a> {
    /// What all parts look at.
    pub known: &'r Known<'a>,
    ledger: &'r mut Ledger<'a>,
    threads: usize,
    /// How many parts are done, and how many there will be.
    progress: (u64, u64),
    /// What was found, where it is not told before the pass is over.
    held: Option<Found>,
}

impl<'r, 'a> Run<'r, 'a> {
    /// A pass on several threads, which tells nothing until it is over.
    pub fn held(known: &'r Known<'a>, ledger: &'r mut Ledger<'a>, threads: usize) -> Self {
        Self { known, ledger, threads, progress: (0, 0), held: Some(Found::default()) }
    }

    /// A pass on one thread, which tells everything at once.
    pub fn told_at_once(known: &'r Known<'a>, ledger: &'r mut Ledger<'a>) -> Self {
        Self { known, ledger, threads: 1, progress: (0, 0), held: None }
    }

    /// How many parts a number of items is split into where parts of `most` items are large enough.
    pub fn parts_of(&self, items: usize, most: usize) -> usize {
        let enough = self.threads.saturating_mul(16);
        items.div_ceil(most.max(1)).max(if self.threads > 1 { enough.min(items) } else { 1 })
    }

    /// Says how many parts there will be at least.
    pub fn expect(&mut self, parts: usize) {
        self.progress.1 = wide(parts);
    }

    /// Does so many parts of the pass. Once two of them met, the rest is left out: all will be done again.
    pub fn parts(&mut self, count: usize, work: impl Fn(&mut Part<'_, 'a>, usize) + Sync) {
        let (known, useless) = (self.known, self.held.is_some());
        let one = |buffer: &mut Vec<u8>, at: usize| {
            let mut part = Part::new(known);
            part.buffer = std::mem::take(buffer);
            if !(useless && known.parts_met()) {
                work(&mut part, at);
            }
            *buffer = std::mem::take(&mut part.buffer);
            part.finish()
        };
        let Self { ledger, held, progress: (done, total), .. } = self;
        *total = wide(count).max(*total);
        parallel::in_order(self.threads, count, one, |found| {
            match held {
                Some(held) => held.append(found),
                None => ledger.take(found),
            }
            *done = done.saturating_add(1).min(*total);
            ledger.progress(*done, *total);
        });
    }

    /// What the parts found so far that is not told.
    pub fn found(&mut self) -> &mut Found {
        self.held.as_mut().unwrap_or(&mut self.ledger.kept)
    }

    /// The pass is over; gives what was not told.
    pub fn finish(self) -> Found {
        self.held.unwrap_or_default()
    }
}

/// The items of one of several parts that are nearly equal.
pub fn share(items: usize, parts: usize, at: usize) -> Range<usize> {
    let end_of = |part: usize| items.saturating_mul(part).checked_div(parts).unwrap_or(0);
    end_of(at)..end_of(at.saturating_add(1))
}

/// What a thread works with.
pub struct Part<'k, 'a> {
    known: &'k Known<'a>,
    /// What was found.
    pub found: Found,
    /// For blocks that are read; its contents mean nothing.
    pub buffer: Vec<u8>,
    /// The block whose bytes the buffer has, where it is kept for the next inode of the same block.
    held: Option<BlockNumber>,
    /// Blocks among which there is no fixed metadata: where the last question for it was answered.
    free_of_metadata: Range<u64>,
    /// Clusters from one to another that are to be claimed with those that follow them.
    claiming: Option<(u64, u64)>,
}

impl<'a> Deref for Part<'_, 'a> {
    type Target = Known<'a>;

    fn deref(&self) -> &Known<'a> {
        self.known
    }
}

impl<'k, 'a> Part<'k, 'a> {
    /// A part that found nothing yet.
    pub fn new(known: &'k Known<'a>) -> Self {
        Self {
            known,
            found: Found::default(),
            buffer: Vec::new(),
            held: None,
            free_of_metadata: 0..0,
            claiming: None,
        }
    }

    /// Notes a problem at a place.
    pub fn find(&mut self, place: Place, problem: impl Into<Problem>) {
        self.found.findings.push(Finding::new(place, problem));
    }

    /// Hands on the inode of a number, where it can be read. Inodes that follow each other cost one read for each block.
    pub fn with_inode(&mut self, number: InodeNumber, work: impl FnOnce(&mut Self, InodeView<'_>)) {
        let Some((block, slot)) = self.known.inode_slot(number) else { return };
        let mut bytes = std::mem::take(&mut self.buffer);
        if self.held != Some(block) {
            self.held = self.known.source.read_block(block, &mut bytes).is_ok().then_some(block);
        }
        if self.held.is_some()
            && let Some(view) = bytes.get(slot).and_then(|slot| InodeView::new(slot).ok())
        {
            work(self, view);
        }
        self.buffer = bytes;
    }

    /// The part is done.
    pub fn finish(mut self) -> Found {
        self.claim_now();
        self.found
    }

    /// The first block of a run that holds fixed metadata.
    pub fn in_metadata(&mut self, run: BlockRun) -> Option<BlockNumber> {
        let end = run.start.0.saturating_add(run.length);
        if self.free_of_metadata.start <= run.start.0 && end <= self.free_of_metadata.end {
            return None;
        }
        let found = self.known.claims.in_metadata(run);
        if found.is_none() {
            self.free_of_metadata = self.known.claims.around(run.start);
        }
        found
    }

    /// Claims the clusters from one to another, both included. Files that lie one behind the other are claimed together.
    pub fn claim(&mut self, first: u64, last: u64) {
        match &mut self.claiming {
            Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
            _ => {
                self.claim_now();
                self.claiming = Some((first, last));
            }
        }
    }

    /// Claims a cluster at once; whether it was claimed before.
    pub fn claim_single(&mut self, cluster: u64) -> bool {
        self.claim_now();
        self.claim_all(cluster, cluster)
    }

    fn claim_now(&mut self) {
        if let Some((first, last)) = self.claiming.take() {
            self.claim_all(first, last);
        }
    }

    fn claim_all(&mut self, first: u64, last: u64) -> bool {
        let again = self.known.claims.claim_range(first, last);
        if again {
            self.known.note_meeting();
        }
        again
    }
}
