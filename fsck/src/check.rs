//! All passes in order.
//!
//! 0 superblock, descriptors, journal; 1 inodes and their blocks; 2 directories; 3 connectivity; 4 link counts; 5
//! bitmaps and summaries. Findings come in an order that depends on the image alone.

use std::ops::ControlFlow;
use std::sync::Arc;

use ext4kit_format::BlockNumber;
use ext4kit_format::error::Result;
use ext4kit_format::store::Store;

use crate::checks::context::{Context, Knowledge};
use crate::checks::{
    bitmaps, claims, connect, directories, groups, inodes, journal, links, shared, superblock,
};
use crate::finding::{Finding, Grade, Problem, SuperblockProblem};
use crate::opening::{self, Opened};

/// How to check.
#[derive(Clone)]
pub struct Options {
    /// The block of a copy of the superblock to take instead of the primary.
    pub superblock: Option<BlockNumber>,
    /// Size of a block in bytes, for the copy.
    pub block_size: Option<u32>,
    /// Whether all copies are tried where the primary cannot be used.
    pub backups: bool,
    /// The device of an external journal.
    pub journal: Option<Arc<dyn Store>>,
    /// Whether a journal that waits is replayed in memory first.
    pub replay: bool,
    /// How many threads to use; `None` for as many as the machine has and the filesystem calls for. The findings do not
    /// depend on it.
    pub threads: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { superblock: None, block_size: None, backups: true, journal: None, replay: true, threads: None }
    }
}

/// What a check comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Findings of each grade, from notes to fatal ones.
    pub notes: u64,
    /// Findings that count as errors.
    pub errors: u64,
    /// Inodes in use, the reserved ones included.
    pub inodes_used: u64,
    /// All inodes.
    pub inodes_total: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// All blocks.
    pub blocks_total: u64,
    /// Files of each kind.
    pub files: FileCounts,
    /// Whether the check ended early.
    pub stopped: bool,
    /// Whether a journal was replayed in memory.
    pub replayed: bool,
}

/// Files by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Regular files.
    pub regular: u64,
    /// Directories.
    pub directories: u64,
    /// Character devices.
    pub character_devices: u64,
    /// Block devices.
    pub block_devices: u64,
    /// Named pipes.
    pub fifos: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Those of them whose target lies in the inode.
    pub fast_symlinks: u64,
    /// Sockets.
    pub sockets: u64,
    /// Files and directories with blocks that do not follow each other.
    pub fragmented: u64,
    /// Directories among them.
    pub fragmented_directories: u64,
}

impl FileCounts {
    /// Adds the files of another part.
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.regular, other.regular),
            (&mut self.directories, other.directories),
            (&mut self.character_devices, other.character_devices),
            (&mut self.block_devices, other.block_devices),
            (&mut self.fifos, other.fifos),
            (&mut self.symlinks, other.symlinks),
            (&mut self.fast_symlinks, other.fast_symlinks),
            (&mut self.sockets, other.sockets),
            (&mut self.fragmented, other.fragmented),
            (&mut self.fragmented_directories, other.fragmented_directories),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Whoever follows a check.
pub trait Observer {
    /// Something was found.
    fn finding(&mut self, finding: Finding);

    /// A pass begins, 1 to 5.
    fn pass(&mut self, _number: u8) {}

    /// So much of the pass is done.
    fn progress(&mut self, _pass: u8, _current: u64, _maximum: u64) {}

    /// A stage is over, and all its findings were told. Whether the check goes on: a repair stops here, puts right what
    /// the stage found, and begins anew.
    fn stage_done(&mut self, _stage: Stage) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// The stages of a check. What a stage finds is put right before a later one is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Superblock, descriptors, fixed metadata, journal, orphans.
    Superblock,
    /// Inodes and what they map.
    Inodes,
    /// Blocks with more than one owner.
    Shared,
    /// The blocks and entries of directories.
    Directories,
    /// The way of every directory to the root.
    Connectivity,
    /// Link and reference counts.
    Links,
    /// Bitmaps and what sums them up.
    Bitmaps,
}

struct Callback<'a>(&'a mut dyn FnMut(Finding));

impl Observer for Callback<'_> {
    fn finding(&mut self, finding: Finding) {
        (self.0)(finding);
    }
}

/// Checks the filesystem on a store; writes nothing. Every finding goes to the callback.
pub fn check(store: Arc<dyn Store>, options: &Options, found: &mut dyn FnMut(Finding)) -> Result<Summary> {
    check_with(store, options, &mut Callback(found))
}

/// The same with passes and progress told.
pub fn check_with(store: Arc<dyn Store>, options: &Options, observer: &mut dyn Observer) -> Result<Summary> {
    let mut opened = opening::open(store, options)?;
    let early = std::mem::take(&mut opened.findings);
    let too_large = early.iter().any(|finding| {
        matches!(finding.problem, Problem::Superblock(SuperblockProblem::LargerThanDevice { .. }))
    });
    let mut context = Context::new(&opened, observer);
    for finding in early {
        context.report(finding);
    }
    if too_large && opened.source.store().size() < 1 << 16 {
        context.ledger.summary.stopped = true;
        return Ok(context.finish());
    }
    passes(&mut context);
    Ok(context.finish())
}

/// Checks an opened filesystem once, until the observer stops it; gives what was learnt for the repairs to work with.
pub fn round(opened: &Opened, observer: &mut dyn Observer) -> (Summary, Knowledge) {
    let mut context = Context::new(opened, observer);
    passes(&mut context);
    context.part()
}

type Pass = fn(&mut Context<'_>);

/// What a stage does, and the number of the pass that begins with it.
const STAGES: [(Stage, u8, &[Pass]); 7] = [
    (
        Stage::Superblock,
        0,
        &[
            superblock::check,
            groups::check,
            claims::claim_metadata,
            superblock::check_resize_inode,
            journal::check,
        ],
    ),
    (Stage::Inodes, 1, &[inodes::check]),
    (Stage::Shared, 0, &[shared::check]),
    (Stage::Directories, 2, &[directories::check]),
    (Stage::Connectivity, 3, &[connect::check]),
    (Stage::Links, 4, &[links::check]),
    (Stage::Bitmaps, 5, &[bitmaps::check]),
];

fn passes(context: &mut Context<'_>) {
    for (stage, pass, checks) in STAGES {
        if pass > 0 {
            context.begin(pass);
        }
        for check in checks {
            check(context);
        }
        if context.stage_done(stage).is_break() {
            return;
        }
    }
}

impl Summary {
    /// Counts a finding.
    pub(crate) fn count(&mut self, grade: Grade) {
        let target = if grade.is_error() { &mut self.errors } else { &mut self.notes };
        *target = target.saturating_add(1);
    }
}
