//! The journal that waits, replayed in memory.

use std::sync::Arc;

use ext4kit_format::disk::features::Compat;
use ext4kit_format::disk::jbd2::superblock::JournalSuperblock;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::journal::{Journal, LogBlocks, ReplayPlan};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::index;
use ext4kit_format::tree::{group, inode, map};
use ext4kit_format::txn::{BlockKind, Overlay, OverlayOptions, Transaction, modify};
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, LogicalBlock, Place};
use zerocopy::IntoBytes;

use super::{Opened, descriptors};
use crate::check::Options;
use crate::finding::{Finding, JournalProblem, Problem, SuperblockProblem};

/// The runs of blocks that hold the internal journal, in file order.
pub fn journal_runs(txn: &dyn Transaction, number: InodeNumber) -> Result<Vec<BlockRun>> {
    let journal = inode::read_unverified(txn, number)?;
    let blocks = map::block_limit(txn, &journal)
        .min(journal.view().size().div_ceil(txn.layout().geometry.block_size().into()));
    let mut runs = Vec::new();
    if blocks > txn.layout().geometry.blocks_count() {
        return Err(Error::Invalid(format!("it has {blocks} blocks, more than the filesystem")));
    }
    let mut next = 0;
    for segment in map::segments(txn, &journal, LogicalBlock(0)) {
        let segment = segment?;
        if u64::from(segment.logical.0) != next || next >= blocks {
            break;
        }
        next = segment.end();
        runs.extend(segment.run());
    }
    if next < blocks {
        return Err(Error::Invalid(format!("it has no block {next}")));
    }
    Ok(runs)
}

impl Opened {
    /// Replays the journal into the overlay. What stands in the way becomes a finding, and the filesystem is checked
    /// as it lies there.
    pub(super) fn replay(&mut self, options: &Options) {
        if !self.superblock.features().compat.contains(Compat::HAS_JOURNAL) {
            return;
        }
        match self.replay_inner(options) {
            Ok(blocks) => {
                self.replayed = true;
                self.findings
                    .push(Finding::new(Place::JournalBlock(0), JournalProblem::ReplayDue { blocks }));
            }
            Err(problem) => {
                self.source.overlay.discard();
                self.findings.push(Finding::new(Place::JournalBlock(0), problem));
            }
        }
        self.source.refresh();
    }

    fn replay_inner(&mut self, options: &Options) -> Result<u64, JournalProblem> {
        let geometry = self.source.layout().geometry.clone();
        let blocks = self.log_blocks(options)?;
        let journal = Journal::open(blocks).map_err(damaged)?;
        if self.superblock.journal_inode().is_none() && !journal.serves(&self.superblock.s_uuid) {
            let why = "the journal does not name this filesystem".to_owned();
            return Err(JournalProblem::ExternalUnavailable { why });
        }
        let scan = journal.scan(geometry.blocks_count()).map_err(damaged)?;
        let plan = ReplayPlan::new(&scan, None).map_err(damaged)?;
        let overlay = &mut self.source.overlay;
        let done = plan.apply(&journal, |at, bytes| {
            overlay.create_with(at, BlockKind::Plain, &mut |block| {
                let length = block.len().min(bytes.len());
                if let (Some(to), Some(from)) = (block.get_mut(..length), bytes.get(..length)) {
                    to.copy_from_slice(from);
                }
            })
        });
        let done = done.map_err(damaged)?;
        if scan.stop().is_damage() || !done.bad_copies.is_empty() {
            let why =
                if scan.stop().is_damage() { "its end is not whole" } else { "a copy has a wrong checksum" };
            let problem = JournalProblem::LogDamaged { why: why.to_owned() };
            self.findings.push(Finding::new(Place::JournalBlock(0), problem));
        }
        if journal.fast_commits(scan.next()).is_ok_and(|fast| !fast.commits.is_empty()) {
            self.findings.push(Finding::new(Place::JournalBlock(0), JournalProblem::FastCommitsWaiting {}));
        }
        self.reread_replayed(done.written)
    }

    /// Where the journal's blocks lie: in the filesystem, or on the device that was given.
    fn log_blocks(&self, options: &Options) -> Result<LogBlocks, JournalProblem> {
        let invalid = |error: Error| JournalProblem::InodeInvalid { why: error.to_string() };
        let block_size = self.source.layout().geometry.block_size();
        if let Some(number) = self.superblock.journal_inode() {
            let runs = journal_runs(&self.lookup(), number).map_err(invalid)?;
            return LogBlocks::internal(Arc::clone(self.source.store()), block_size, &runs).map_err(invalid);
        }
        if let Some(store) = &options.journal {
            return LogBlocks::external(Arc::clone(store), block_size).map_err(invalid);
        }
        let why = "the journal is on another device, which was not given (-j)".to_owned();
        Err(JournalProblem::ExternalUnavailable { why })
    }

    /// Checks an external journal that was given; a filesystem that has its own leaves it aside.
    pub(super) fn look_at_external(&mut self, options: &Options) {
        let external = self.superblock.features().compat.contains(Compat::HAS_JOURNAL)
            && self.superblock.journal_inode().is_none();
        if !external || options.journal.is_none() {
            return;
        }
        let problem = match self.log_blocks(options).map(Journal::open) {
            Err(problem) => Some(problem),
            Ok(Err(Error::Unsupported(why))) => Some(JournalProblem::Unsupported { why }),
            Ok(Err(error)) => Some(JournalProblem::SuperblockDamaged { why: error.to_string() }),
            Ok(Ok(journal)) if !journal.serves(&self.superblock.s_uuid) => {
                let why = "the journal does not name this filesystem".to_owned();
                Some(JournalProblem::ExternalUnavailable { why })
            }
            Ok(Ok(_)) => None,
        };
        self.has_external_journal = true;
        if let Some(problem) = problem {
            self.findings.push(Finding::new(Place::JournalBlock(0), problem));
        }
    }

    /// Whether the log holds something. Only the primary superblock says so of itself, and may be lost.
    pub(super) fn log_waits(&self, options: &Options) -> bool {
        self.superblock.features().compat.contains(Compat::HAS_JOURNAL)
            && self
                .log_blocks(options)
                .and_then(|blocks| Journal::open(blocks).map_err(damaged))
                .is_ok_and(|journal| journal.superblock().s_start.get() != 0)
    }

    /// Makes the log empty that was replayed in memory: an internal one in the overlay, so that it becomes so together
    /// with what it held; an external one on its device, when the commit is done.
    pub fn empty_log_inside(&mut self, options: &Options) -> Result<()> {
        let Some(at) = self.log_superblock(options) else { return Ok(()) };
        let Ok(journal) = self.log_blocks(options).map_err(invalid).and_then(Journal::open) else {
            return Ok(());
        };
        // A repair may have given the journal up, or made a new one elsewhere.
        let runs = self.superblock.journal_inode().map(|number| journal_runs(&self.source.overlay, number));
        let stays = runs.is_some_and(|runs| runs.is_ok_and(|runs| runs.iter().any(|run| run.contains(at))));
        let bytes = self.source.overlay.read(at, BlockKind::Plain)?;
        let waits = JournalSuperblock::read(&bytes).is_ok_and(|superblock| superblock.s_start.get() != 0);
        if !stays || !waits {
            return Ok(());
        }
        let scan = journal.scan(self.source.layout().geometry.blocks_count())?;
        let emptied = journal.emptied(&scan);
        modify(&mut self.source.overlay, at, BlockKind::Journal, |block| {
            block.iter_mut().zip(emptied.as_bytes()).for_each(|(to, from)| *to = *from);
        })
    }

    /// Makes an external log empty on its device, after what it held was written in place.
    pub fn empty_log_outside(&self, options: &Options) -> Result<()> {
        if self.superblock.journal_inode().is_some() || options.journal.is_none() {
            return Ok(());
        }
        let journal = Journal::open(self.log_blocks(options).map_err(invalid)?)?;
        let scan = journal.scan(self.source.layout().geometry.blocks_count())?;
        journal.write_superblock(&journal.emptied(&scan))?;
        journal.blocks().flush()
    }

    /// The block of an internal journal's superblock, if there is one.
    fn log_superblock(&self, options: &Options) -> Option<BlockNumber> {
        self.superblock.journal_inode()?;
        let blocks = self.log_blocks(options).ok()?;
        blocks.locate(blocks.superblock_block())
    }

    /// A transaction that finds inodes although their descriptors were damaged.
    fn lookup(&self) -> Overlay {
        let options = OverlayOptions { verify: false, ..OverlayOptions::default() };
        let mut overlay = self.source.overlay_like(options);
        let replaced = self.findings.iter().filter_map(|finding| match (&finding.place, &finding.problem) {
            (Place::GroupDescriptor(group), Problem::Group(_)) => Some(*group),
            _ => None,
        });
        for group in replaced {
            let Some(descriptor) = self.groups.get(index(group.0)) else { continue };
            // One that does not fit its place is left as it lies there; then the inode is not found.
            let _ = group::update_descriptor(&mut overlay, group, |stored| *stored = descriptor.clone());
        }
        overlay
    }

    /// After a replay, superblock and descriptors are what the journal made of them.
    fn reread_replayed(&mut self, written: u64) -> Result<u64, JournalProblem> {
        self.source.refresh();
        let block = self.source.layout().geometry.superblock_block();
        let replayed = self.source.overlay.change(block).is_ok_and(|change| change.is_some());
        let has_problem = self.findings.iter().any(|finding| is_about_superblock(&finding.problem));
        // A damaged primary stays damaged unless the log holds it.
        if replayed || !has_problem {
            let superblock = group::read_superblock(&self.source.overlay).map_err(damaged)?;
            let layout = Layout::new(&superblock).map_err(damaged)?;
            if layout.geometry.group_count() != self.source.layout().geometry.group_count()
                && layout.geometry.blocks_count() > self.source.store().size() >> layout.geometry.block_bits()
            {
                return Err(JournalProblem::LogDamaged {
                    why: "it makes the filesystem larger than its device".to_owned(),
                });
            }
            self.source.overlay.set_layout(layout);
            self.superblock = superblock;
            self.copy = None;
        }
        // What the log puts right stays told: without a replay nothing can use the filesystem. The repairs then write
        // what the log made of it.
        let descriptors = descriptors::read(&self.source);
        self.groups = descriptors.groups;
        for finding in descriptors.findings {
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
        Ok(written)
    }
}

fn invalid(problem: JournalProblem) -> Error {
    Error::Invalid(Finding::new(Place::JournalBlock(0), problem).to_string())
}

fn damaged(error: Error) -> JournalProblem {
    match error {
        Error::Unsupported(why) => JournalProblem::Unsupported { why },
        error => JournalProblem::SuperblockDamaged { why: error.to_string() },
    }
}

/// Whether a problem is one of the fields of the superblock, which a replay may have put right.
fn is_about_superblock(problem: &Problem) -> bool {
    matches!(problem, Problem::Superblock(problem) if !matches!(problem, SuperblockProblem::LargerThanDevice { .. }))
}
