//! From a store to a filesystem that can be checked: a superblock, the primary or a copy; descriptors; and a
//! journal that waits, replayed in memory.

use std::sync::Arc;

use ext4kit_format::disk::features::{Compat, Incompat};
use ext4kit_format::disk::group_desc::GroupDescriptor;
use ext4kit_format::disk::mmp::{MmpBlock, MmpState};
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::geometry::Geometry;
use ext4kit_format::image::{SuperblockChoice, check_readable, check_repairable, read_superblock};
use ext4kit_format::journal::{Journal, LogBlocks, ReplayPlan};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::index;
use ext4kit_format::store::Store;
use ext4kit_format::tree::{group, inode, map};
use ext4kit_format::txn::{BlockKind, Transaction};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, InodeNumber, LogicalBlock, Place};

use crate::check::Options;
use crate::finding::{Finding, GroupProblem, JournalProblem, SuperblockProblem};
use crate::source::Source;

/// A filesystem that can be checked.
pub struct Opened {
    /// Its blocks.
    pub source: Source,
    /// Its superblock, after the replay.
    pub superblock: Superblock,
    /// Its descriptors, after the replay.
    pub groups: Vec<GroupDescriptor>,
    /// The copy that was taken because the primary cannot be used.
    pub copy: Option<BlockNumber>,
    /// Whether a journal was replayed.
    pub replayed: bool,
    /// Whether the external journal was given and can be used.
    pub has_external_journal: bool,
    /// What was found on the way.
    pub findings: Vec<Finding>,
}

/// Opens a filesystem for a check.
pub fn open(store: Arc<dyn Store>, options: &Options) -> Result<Opened> {
    let mut findings = Vec::new();
    let (superblock, layout, copy) = find_superblock(store.as_ref(), options, &mut findings)?;
    check_repairable(superblock.features())?;
    let held = store.size() >> layout.geometry.block_bits();
    let blocks = layout.geometry.blocks_count();
    if blocks > held {
        findings.push(Finding::new(Place::Superblock, SuperblockProblem::LargerThanDevice { blocks, held }));
    }
    let source = Source::new(store, layout);
    refuse_in_use(&source, &superblock)?;
    let groups = read_groups(&source, copy, &mut findings);
    let mut opened = Opened {
        source,
        superblock: superblock.clone(),
        groups,
        copy,
        replayed: false,
        has_external_journal: false,
        findings,
    };
    if blocks <= held {
        opened.look_at_external(options);
    }
    if options.replay && superblock.features().incompat.contains(Incompat::RECOVER) && blocks <= held {
        opened.replay(options);
        check_readable(opened.superblock.features())?;
    }
    Ok(opened)
}

/// Refuses a filesystem whose protection block says that another check runs, or what cannot be understood.
fn refuse_in_use(source: &Source, superblock: &Superblock) -> Result<()> {
    let block = BlockNumber(superblock.s_mmp_block.get());
    if !superblock.features().incompat.contains(Incompat::MMP) || !source.layout().geometry.contains(block) {
        return Ok(());
    }
    let Ok(bytes) = source.block(block) else { return Ok(()) };
    match MmpBlock::parse(&bytes).map(MmpBlock::state) {
        Ok(MmpState::Fsck) => {
            Err(Error::InUse("its protection block says that a check is running".to_owned()))
        }
        Ok(MmpState::Unknown(sequence)) => {
            Err(Error::InUse(format!("its protection block has the unknown sequence {sequence:#x}")))
        }
        _ => Ok(()),
    }
}

/// The superblock to check by. All copies are tried where the primary cannot be used, unless one was asked for.
fn find_superblock(
    store: &dyn Store,
    options: &Options,
    findings: &mut Vec<Finding>,
) -> Result<(Superblock, Layout, Option<BlockNumber>)> {
    if let Some(block) = options.superblock {
        let sizes: Vec<u32> = match options.block_size {
            Some(size) => vec![size],
            None => block_sizes().collect(),
        };
        let mut first = None;
        for block_size in sizes {
            match usable(store, SuperblockChoice::Copy { block, block_size }) {
                Ok((superblock, layout)) => return Ok((superblock, layout, Some(block))),
                Err(error) => first = first.or(Some(error)),
            }
        }
        return Err(first.unwrap_or_else(|| Error::Invalid("no superblock was named".to_owned())));
    }
    let error = match usable(store, SuperblockChoice::Primary) {
        Ok((superblock, layout)) => return Ok((superblock, layout, None)),
        // What is sound but unknown is not to be worked around.
        Err(error @ (Error::Unsupported(_) | Error::Io { .. })) => return Err(error),
        Err(error) => error,
    };
    let external = matches!(&error, Error::NotFilesystem(why) if why.contains("external journal"));
    if options.backups && !external {
        for block_size in block_sizes() {
            for group in [1u64, 3, 5, 7, 9, 25, 27, 49] {
                let start = group.saturating_mul(u64::from(block_size) << 3);
                let block = BlockNumber(start.saturating_add(u64::from(block_size == 1024)));
                if let Ok((superblock, layout)) = usable(store, SuperblockChoice::Copy { block, block_size })
                    && layout.geometry.block_size() == block_size
                {
                    let why = error.to_string();
                    findings
                        .push(Finding::new(Place::Superblock, SuperblockProblem::CopyUsed { block, why }));
                    return Ok((superblock, layout, Some(block)));
                }
            }
        }
    }
    Err(error)
}

fn block_sizes() -> impl Iterator<Item = u32> {
    (10..=Geometry::MAX_BLOCK_BITS).map(|bits| 1u32 << bits)
}

/// A superblock that reads, is known, has the right checksum and makes sense.
fn usable(store: &dyn Store, choice: SuperblockChoice) -> Result<(Superblock, Layout)> {
    let superblock = read_superblock(store, choice)?;
    check_readable(superblock.features())?;
    superblock.verify_checksum().map_err(|defect| defect.at(Place::Superblock))?;
    let layout = Layout::new(&superblock)?;
    // Memory is sized by these counts; a real filesystem may be cut short, but not to less than its tables.
    let inodes =
        u64::from(layout.geometry.inodes_count()).saturating_mul(layout.geometry.inode_size().into());
    if inodes > store.size() || layout.geometry.blocks_count() >> 3 > store.size() {
        return Err(ext4kit_format::Defect::Contradiction(format!(
            "inode tables of {inodes} bytes do not fit a device of {} bytes",
            store.size()
        ))
        .at(Place::Superblock));
    }
    Ok((superblock, layout))
}

/// Every descriptor; those of a copy where the primary ones make no sense and the copy's do.
fn read_groups(
    source: &Source,
    copy: Option<BlockNumber>,
    findings: &mut Vec<Finding>,
) -> Vec<GroupDescriptor> {
    let geometry = &source.layout().geometry;
    let primary = |table_block: u32| Some(geometry.descriptor_table_block(table_block));
    let mut from_copy = None;
    if let Some(copy) = copy {
        let distance = |table_block: u32| copy.checked_add(u64::from(table_block).saturating_add(1));
        let leading = geometry.leading_descriptor_blocks();
        from_copy =
            Some(read_table(source, |block| if block < leading { distance(block) } else { primary(block) }));
    }
    let groups = match from_copy {
        Some(groups) if plausible(geometry, &groups) => return groups,
        _ => read_table(source, primary),
    };
    if plausible(geometry, &groups) {
        return groups;
    }
    let copies = |table_block| geometry.descriptor_table_copies(table_block).first().copied();
    let others = read_table(source, copies);
    let Some(block) = copies(0) else { return groups };
    if plausible(geometry, &others) {
        findings.push(Finding::new(Place::GroupDescriptor(GroupNumber(0)), GroupProblem::CopyUsed { block }));
        return others;
    }
    groups
}

fn read_table(source: &Source, place: impl Fn(u32) -> Option<BlockNumber>) -> Vec<GroupDescriptor> {
    let geometry = &source.layout().geometry;
    let size = index(geometry.descriptor_size());
    let mut groups = Vec::new();
    for table_block in 0..geometry.descriptor_blocks() {
        let bytes = place(table_block).and_then(|at| source.block(at).ok());
        let left = geometry
            .group_count()
            .saturating_sub(table_block.saturating_mul(geometry.descriptors_per_block()));
        for within in 0..left.min(geometry.descriptors_per_block()) {
            let at = index(within).saturating_mul(size);
            let record = bytes.as_ref().and_then(|bytes| bytes.get(at..at.saturating_add(size)));
            groups.push(record.and_then(|record| GroupDescriptor::parse(record).ok()).unwrap_or_default());
        }
    }
    groups
}

/// Whether every bitmap and table lies in the filesystem.
fn plausible(geometry: &Geometry, groups: &[GroupDescriptor]) -> bool {
    let table = geometry.inode_table_blocks().into();
    groups.iter().all(|group| {
        geometry.contains(group.block_bitmap)
            && geometry.contains(group.inode_bitmap)
            && geometry.contains_run(BlockRun { start: group.inode_table, length: table })
    })
}

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
    fn replay(&mut self, options: &Options) {
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
        let damaged = |error: Error| match error {
            Error::Unsupported(why) => JournalProblem::Unsupported { why },
            error => JournalProblem::SuperblockDamaged { why: error.to_string() },
        };
        let geometry = self.source.layout().geometry.clone();
        let blocks = self.log_blocks(options)?;
        let journal = Journal::open(blocks).map_err(damaged)?;
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
            let runs = journal_runs(&self.source.overlay, number).map_err(invalid)?;
            return LogBlocks::internal(Arc::clone(self.source.store()), block_size, &runs).map_err(invalid);
        }
        if let Some(store) = &options.journal {
            return LogBlocks::external(Arc::clone(store), block_size).map_err(invalid);
        }
        let why = "the journal is on another device, which was not given (-j)".to_owned();
        Err(JournalProblem::ExternalUnavailable { why })
    }

    /// Checks an external journal that was given; a filesystem that has its own leaves it aside.
    fn look_at_external(&mut self, options: &Options) {
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

    /// After a replay, superblock and descriptors are what the journal made of them.
    fn reread_replayed(&mut self, written: u64) -> Result<u64, JournalProblem> {
        let again = |error: Error| JournalProblem::SuperblockDamaged { why: error.to_string() };
        self.source.refresh();
        let superblock = group::read_superblock(&self.source.overlay).map_err(again)?;
        let layout = Layout::new(&superblock).map_err(again)?;
        if layout.geometry.group_count() != self.source.layout().geometry.group_count()
            && layout.geometry.blocks_count() > self.source.store().size() >> layout.geometry.block_bits()
        {
            return Err(JournalProblem::LogDamaged {
                why: "it makes the filesystem larger than its device".to_owned(),
            });
        }
        self.take(superblock, layout);
        Ok(written)
    }

    /// Takes superblock and descriptors as the overlay has them by now.
    pub fn reread(&mut self) -> Result<()> {
        let superblock = group::read_superblock(&self.source.overlay)?;
        let layout = Layout::new(&superblock)?;
        self.take(superblock, layout);
        Ok(())
    }

    fn take(&mut self, superblock: Superblock, layout: Layout) {
        self.source.overlay.set_layout(layout);
        self.superblock = superblock;
        self.groups = read_groups(&self.source, None, &mut self.findings);
    }
}
