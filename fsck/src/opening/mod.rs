//! From a store to a filesystem that can be checked: a superblock, the primary or a copy; descriptors; and a
//! journal that waits, replayed in memory.
//!
//! | file | what it is for |
//! | --- | --- |
//! | [`choice`] | which superblock to check by; start here |
//! | [`copies`] | all copies that a device holds, and the vote among them |
//! | [`mend`] | single fields out of range, put right |
//! | [`descriptors`] | descriptors, group by group, from the table, its copies, or the geometry |
//! | [`in_use`] | whether another host has the filesystem in use |
//! | [`replay`] | the journal, replayed in memory |
//!
//! Nothing here changes the image. Whatever was put right in memory is told by a finding with its repair.

pub mod choice;
pub mod copies;
pub mod descriptors;
pub mod in_use;
pub mod mend;
pub mod replay;

use std::sync::Arc;
use std::time::Duration;

use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::group_desc::GroupDescriptor;
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::error::Result;
use ext4kit_format::image::{check_readable, check_repairable};
use ext4kit_format::layout::Layout;
use ext4kit_format::store::Store;
use ext4kit_format::tree::group;
use ext4kit_format::{BlockNumber, Place};

use crate::check::Options;
use crate::finding::{Finding, SuperblockProblem};
use crate::source::Source;

pub use replay::journal_runs;

/// A filesystem that can be checked.
pub struct Opened {
    /// Its blocks.
    pub source: Source,
    /// Its superblock, after the replay, and with fields that are out of range put right.
    pub superblock: Superblock,
    /// Its descriptors, after the replay; those that cannot be are replaced.
    pub groups: Vec<GroupDescriptor>,
    /// The copy that was taken because the primary cannot be used.
    pub copy: Option<BlockNumber>,
    /// Whether a journal was replayed.
    pub replayed: bool,
    /// Whether the external journal was given and can be used.
    pub has_external_journal: bool,
    /// What was found on the way.
    pub findings: Vec<Finding>,
    /// How many threads check it; `None` for as many as the machine has and it calls for.
    pub threads: Option<usize>,
}

/// Opens a filesystem for a check that writes nothing.
pub fn open(store: Arc<dyn Store>, options: &Options) -> Result<Opened> {
    open_waiting(store, options, None)
}

/// Opens a filesystem. With `wait`, as before a repair, a filesystem whose protection block says that it is mounted is
/// watched for a while first, and refused if another host still writes that block.
pub fn open_waiting(
    store: Arc<dyn Store>,
    options: &Options,
    wait: Option<&dyn Fn(Duration)>,
) -> Result<Opened> {
    let choice = choice::choose(store.as_ref(), options)?;
    let superblock = choice.superblock;
    check_repairable(superblock.features())?;
    let find = |problem| Finding::new(Place::Superblock, problem);
    let mut findings: Vec<Finding> = choice.problems.into_iter().map(find).collect();
    let held = store.size() >> choice.layout.geometry.block_bits();
    let blocks = choice.layout.geometry.blocks_count();
    if blocks > held {
        findings.push(find(SuperblockProblem::LargerThanDevice { blocks, held }));
    }
    let mut opened = Opened::by(store, superblock, choice.layout);
    opened.copy = choice.copy;
    opened.threads = options.threads;
    findings.append(&mut opened.findings);
    opened.findings = findings;
    in_use::refuse(&opened.source, &opened.superblock, wait)?;
    if blocks <= held {
        opened.look_at_external(options);
    }
    let due = opened.superblock.features().incompat.contains(Incompat::RECOVER)
        || (opened.copy.is_some() && opened.log_waits(options));
    if options.replay && due && blocks <= held {
        opened.replay(options);
        check_readable(opened.superblock.features())?;
    }
    Ok(opened)
}

impl Opened {
    /// A filesystem by a superblock that is taken as it is. No journal is looked at.
    pub fn by(store: Arc<dyn Store>, superblock: Superblock, layout: Layout) -> Self {
        let source = Source::new(store, layout);
        let descriptors = descriptors::read(&source);
        Self {
            source,
            superblock,
            groups: descriptors.groups,
            copy: None,
            replayed: false,
            has_external_journal: false,
            findings: descriptors.findings,
            threads: None,
        }
    }

    /// Takes superblock and descriptors from the overlay, after repairs of them were made there. A repair that was
    /// declined leaves what is in use as it was.
    pub fn refresh(&mut self) -> Result<()> {
        self.source.refresh();
        let block = self.source.layout().geometry.superblock_block();
        if self.source.overlay.change(block)?.is_some()
            && let Ok(stored) = group::read_superblock(&self.source.overlay)
        {
            let mended = mend::mend(&stored, Some(&self.superblock));
            if let Ok(layout) = copies::layout_of(self.source.store().as_ref(), &mended.superblock) {
                self.source.overlay.set_layout(layout);
                self.superblock = mended.superblock;
                self.copy = None;
            }
        }
        self.groups = descriptors::read(&self.source).groups;
        Ok(())
    }
}
