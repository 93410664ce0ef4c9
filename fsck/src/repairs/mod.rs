//! Repairs: from findings to a filesystem without any.
//!
//! | room | what it puts right |
//! | --- | --- |
//! | [`workshop`] | where all of them work, and how they get free blocks and inodes |
//! | [`superblock`], [`groups`] | superblock, protection block, resize inode, backups; descriptors and where tables lie |
//! | [`fields`] | single fields, flags and checksums of inodes |
//! | [`maps`] | block maps, extent trees, blocks with more than one owner |
//! | [`attributes`] | extended attributes |
//! | [`directories`] | blocks and entries of directories, and their indexes |
//! | [`connect`] | the root, `/lost+found`, and what no name leads to |
//! | [`bitmaps`] | bitmaps and the counts that sum them up |
//! | [`journal`] | journal and orphans |
//! | [`jobs`] | no repairs: what is done on request when nothing is wrong any more |
//!
//! The check runs stage by stage over an overlay. At the end of a stage the repairs that the judge wants are made in
//! the overlay, and the check begins anew: each stage is only believed when those before it have nothing to say, and
//! what is committed in the end is what a whole check found sound. Nothing reaches the image before.

pub mod attributes;
pub mod bitmaps;
pub mod connect;
pub mod directories;
pub mod fields;
pub mod groups;
pub mod jobs;
pub mod journal;
pub mod maps;
pub mod superblock;
pub mod workshop;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::{Defect, Place};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::check::{self, Observer, Stage, Summary};
use crate::checks::context::Knowledge;
use crate::finding::{Finding, Grade, MapProblem, Problem};
use crate::opening::Opened;
use crate::repair::Repair;

use jobs::Jobs;
use workshop::Workshop;

/// How often the check begins anew at most. Damage is usually gone after four or five rounds; an image on which repairs
/// undo each other must not keep us for ever.
const MOST_ROUNDS: u32 = 40;
/// How often the same finding is repaired in the gentle way.
const GENTLE_TRIES: u8 = 2;

/// What is to be done about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Put it right.
    Repair,
    /// Leave it.
    Leave,
    /// End everything; nothing is written.
    Stop,
}

/// Whoever follows a repair and decides.
pub trait Judge {
    /// Something was found for the first time: what is to be done?
    fn judge(&mut self, finding: &Finding) -> Decision;

    /// A pass begins, 1 to 5. Told once, however many rounds there are.
    fn pass(&mut self, _number: u8) {}

    /// So much of the pass is done.
    fn progress(&mut self, _pass: u8, _current: u64, _maximum: u64) {}
}

/// What a repair came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The last check.
    pub summary: Summary,
    /// Errors that were put right.
    pub repaired: u64,
    /// Errors that were left, or could not be put right.
    pub left: u64,
    /// Files that were changed on request.
    pub changed: u64,
    /// Whether the journal was given up, so that it is no place for a commit.
    pub journal_given_up: bool,
    /// Whether something was found that no repair may go past.
    pub fatal: bool,
    /// Whether the judge ended it.
    pub stopped: bool,
    /// How often the check ran.
    pub rounds: u32,
}

/// Checks an opened filesystem and puts right what the judge wants, in the opened overlay alone.
pub fn repair(opened: &mut Opened, now: u32, jobs: Jobs, judge: &mut dyn Judge) -> Result<Repaired> {
    let mut memory = Memory::default();
    let mut outcome = Repaired::default();
    let mut jobs_left = true;
    if jobs.unshare && opened.superblock.features().ro_compat.contains(RoCompat::SHARED_BLOCKS) {
        superblock::switch(&mut opened.source.overlay, "shared_blocks", false, |_| ())?;
        opened.refresh()?;
        outcome.changed = 1;
    }
    loop {
        outcome.rounds = outcome.rounds.saturating_add(1);
        memory.round = outcome.rounds;
        let early = std::mem::take(&mut opened.findings);
        let mut collector = Collector { judge, memory: &mut memory, wanted: Vec::new(), stopped: false };
        for finding in early {
            collector.finding(finding);
        }
        let (summary, mut knowledge) = check::round(opened, &mut collector);
        let Collector { wanted, stopped, .. } = collector;
        outcome.summary = summary;
        outcome.stopped = stopped;
        if stopped {
            break;
        }
        if wanted.is_empty() {
            let new_journal = memory.journal_given_up;
            if !std::mem::take(&mut jobs_left) || (jobs == Jobs::default() && !new_journal) {
                break;
            }
            let superblock = opened.superblock.clone();
            let mut workshop = Workshop::new(&mut opened.source, &mut knowledge, &superblock, now);
            let changed = jobs::run(&mut workshop, jobs, new_journal)?;
            if changed == 0 {
                break;
            }
            outcome.changed = outcome.changed.saturating_add(changed);
            // What follows from the jobs is nobody's damage.
            memory.quiet = true;
            opened.source.overlay.seal()?;
            opened.refresh()?;
            continue;
        }
        if outcome.rounds >= MOST_ROUNDS {
            for finding in &wanted {
                memory.give_up(finding);
            }
            break;
        }
        put_right(opened, knowledge, (now, &wanted), &mut memory)?;
        if memory.groundless {
            // Without every table, what hangs from the missing one would look like damage.
            let text = "a bitmap or table of inodes has no place, and there is no room for one";
            return Err(Error::Corrupt {
                place: Place::Superblock,
                defect: Defect::Contradiction(text.to_owned()),
            });
        }
    }
    outcome.repaired = memory.repaired;
    outcome.left = memory.left;
    outcome.journal_given_up = memory.journal_given_up;
    outcome.fatal = memory.fatal;
    Ok(outcome)
}

/// Makes the repairs of one stage.
fn put_right(
    opened: &mut Opened,
    mut knowledge: Knowledge,
    (now, wanted): (u32, &[Finding]),
    memory: &mut Memory,
) -> Result<()> {
    let is_ground =
        |finding: &&Finding| matches!(finding.problem, Problem::Superblock(_) | Problem::Group(_));
    let (ground, rest): (Vec<&Finding>, Vec<&Finding>) = wanted.iter().partition(is_ground);
    lay_ground(opened, &ground, memory)?;
    let superblock = opened.superblock.clone();
    let mut workshop = Workshop::new(&mut opened.source, &mut knowledge, &superblock, now);
    let shared = |finding: &&Finding| matches!(finding.problem, Problem::Map(MapProblem::Shared { .. }));
    let results = if rest.iter().all(shared) {
        maps::clone_shared(&mut workshop, &rest)
    } else {
        let mut groups = FxHashSet::default();
        rest.iter()
            .map(|finding| apply(&mut workshop, finding, (memory.is_new(finding), &mut groups)))
            .collect()
    };
    for (finding, result) in rest.iter().zip(results) {
        memory.note(finding, result.as_ref());
    }
    opened.source.overlay.seal()?;
    opened.refresh()
}

/// Repairs superblock and descriptors. Where something has to be moved, the inodes are read first: nobody else can tell
/// which blocks are free.
fn lay_ground(opened: &mut Opened, findings: &[&Finding], memory: &mut Memory) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let (_, mut knowledge) = check::round(opened, &mut UntilInodes);
    let geometry = opened.source.layout().geometry.clone();
    let mut free = |wanted: superblock::Wanted| workshop::take_run(&mut knowledge.claims, &geometry, wanted);
    let (in_use, groups) = (opened.superblock.clone(), opened.groups.clone());
    let mut ground = superblock::Ground { superblock: &in_use, groups: &groups, free: &mut free };
    let overlay = &mut opened.source.overlay;
    let mut outdated = false;
    for finding in findings {
        memory.is_new(finding);
        let result = match &finding.problem {
            Problem::Superblock(_) => superblock::apply(finding, overlay, &mut ground),
            _ => groups::apply(finding, overlay, &mut ground),
        };
        outdated |= result.is_ok() && superblock::outdates_backups(finding);
        memory.note(finding, result.as_ref());
    }
    opened.source.refresh();
    if outdated { ext4kit_format::create::write_backups(&mut opened.source.overlay) } else { Ok(()) }
}

/// Hears nothing, and ends the check when it is known who has which blocks.
struct UntilInodes;

impl Observer for UntilInodes {
    fn finding(&mut self, _finding: Finding) {}

    fn stage_done(&mut self, stage: Stage) -> ControlFlow<()> {
        if stage >= Stage::Inodes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Makes one repair. `gentle` is off where the gentle way was tried and did not help.
fn apply(
    shop: &mut Workshop<'_>,
    finding: &Finding,
    (gentle, groups): (bool, &mut bitmaps::Groups),
) -> Result<()> {
    let place = &finding.place;
    let Some(repair) = finding.verdict().repair else {
        return Err(Error::Invalid(format!("{place}: there is no repair")));
    };
    match &finding.problem {
        Problem::Inode(_) | Problem::Count(_) => match &repair {
            Repair::Reconnect(_) => connect::apply(shop, place, &repair),
            repair => fields::apply(shop, place, repair),
        },
        Problem::Map(problem) => maps::apply(shop, place, (problem, &repair), gentle),
        Problem::Attribute(problem) => attributes::apply(shop, place, (problem, &repair), gentle),
        Problem::Directory(problem) => directories::apply(shop, place, (problem, &repair), gentle),
        Problem::Connect(_) => connect::apply(shop, place, &repair),
        Problem::Bitmap(_) => bitmaps::apply(shop, place, &repair, groups),
        Problem::Journal(_) => journal::apply(shop, place, &repair),
        Problem::Superblock(_) | Problem::Group(_) | Problem::Lint(_) => {
            Err(Error::Unsupported(format!("{place}: {repair}")))
        }
    }
}

/// What is known of a finding from earlier rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Nobody wants it put right, or it cannot be.
    left: bool,
    /// In how many rounds it was put right.
    tries: u8,
    /// The last of them.
    round: u32,
}

/// What was decided and done so far.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an event of its own")]
struct Memory {
    round: u32,
    /// By place and code: tries count for all findings that are alike.
    places: FxHashMap<u64, Known>,
    /// By place, code and text: what was told.
    told: FxHashMap<u64, Decision>,
    /// Passes that were told.
    passes: FxHashSet<u8>,
    repaired: u64,
    left: u64,
    /// Whether a part of the fixed metadata could not be placed.
    groundless: bool,
    /// Whether the journal was given up.
    journal_given_up: bool,
    /// Whether something was found that ends the run.
    fatal: bool,
    /// Whether what is found is put right without a word.
    quiet: bool,
}

fn digest(finding: &Finding, with_text: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    let verdict = finding.verdict();
    finding.place.to_string().hash(&mut hasher);
    verdict.code.hash(&mut hasher);
    if with_text {
        verdict.text.hash(&mut hasher);
    }
    hasher.finish()
}

impl Memory {
    /// Whether the gentle way may still help.
    fn is_new(&mut self, finding: &Finding) -> bool {
        let round = self.round;
        let known = self.places.entry(digest(finding, false)).or_default();
        if known.round != round {
            known.round = round;
            known.tries = known.tries.saturating_add(1);
        }
        known.tries <= GENTLE_TRIES
    }

    /// Whether every way was tried.
    fn is_hopeless(&self, finding: &Finding) -> bool {
        self.places
            .get(&digest(finding, false))
            .is_some_and(|known| known.left || known.tries >= GENTLE_TRIES.saturating_mul(2))
    }

    /// Counts a repair that was made, or could not be.
    fn note(&mut self, finding: &Finding, result: std::result::Result<&(), &Error>) {
        let repair = finding.verdict().repair;
        self.journal_given_up |= result.is_ok() && repair == Some(Repair::RecreateJournal);
        match result {
            Ok(()) if self.quiet => {}
            Ok(()) if finding.verdict().grade > Grade::Note => {
                self.repaired = self.repaired.saturating_add(1);
            }
            Ok(()) => {}
            Err(_) => {
                self.groundless |= matches!(repair, Some(Repair::Relocate(_)));
                self.give_up(finding);
            }
        }
    }

    /// The finding stays.
    fn give_up(&mut self, finding: &Finding) {
        self.places.entry(digest(finding, false)).or_default().left = true;
        if finding.verdict().grade > Grade::Note {
            self.left = self.left.saturating_add(1);
        }
    }
}

/// Takes the findings of one round, and ends it after the first stage with something to put right.
struct Collector<'j, 'm> {
    judge: &'j mut dyn Judge,
    memory: &'m mut Memory,
    wanted: Vec<Finding>,
    stopped: bool,
}

impl Observer for Collector<'_, '_> {
    fn finding(&mut self, finding: Finding) {
        if self.stopped {
            return;
        }
        let verdict = finding.verdict();
        let key = digest(&finding, true);
        let first = !self.memory.told.contains_key(&key);
        let decision = match self.memory.told.get(&key).copied() {
            Some(decision) => decision,
            None if self.memory.quiet => Decision::Repair,
            None => self.judge.judge(&finding),
        };
        self.memory.told.insert(key, decision);
        match decision {
            Decision::Stop => {
                self.stopped = true;
                self.memory.fatal |= verdict.grade == Grade::Fatal;
            }
            Decision::Repair if verdict.repair.is_some() => {
                if !self.memory.is_hopeless(&finding) {
                    self.wanted.push(finding);
                } else if self.memory.told.insert(key, Decision::Leave) == Some(Decision::Repair) {
                    self.memory.give_up(&finding);
                }
            }
            Decision::Repair | Decision::Leave => {
                if first && verdict.grade > Grade::Note {
                    self.memory.left = self.memory.left.saturating_add(1);
                }
            }
        }
    }

    fn pass(&mut self, number: u8) {
        if self.memory.passes.insert(number) {
            self.judge.pass(number);
        }
    }

    fn progress(&mut self, pass: u8, current: u64, maximum: u64) {
        self.judge.progress(pass, current, maximum);
    }

    fn stage_done(&mut self, _stage: Stage) -> ControlFlow<()> {
        if self.stopped || !self.wanted.is_empty() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
