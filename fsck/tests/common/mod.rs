//! What the tests of repairs share: a judge that says yes to everything, and a repair from opening to commit.

#![allow(dead_code, reason = "no test uses all of it")]

use std::path::Path;
use std::sync::Arc;

use ext4kit_format::error::Result;
use ext4kit_format::store::Store;
use ext4kit_fsck::finding::{Finding, Grade};
use ext4kit_fsck::repairs::jobs::Jobs;
use ext4kit_fsck::repairs::{Decision, Judge, Repaired, repair};
use ext4kit_fsck::{Options, opening, writing};

/// The time of every repair.
pub const NOW: u32 = 1_700_000_000;

/// Has everything repaired, and keeps what was found.
#[derive(Default)]
pub struct Yes {
    /// What was found, in order.
    pub found: Vec<Finding>,
}

impl Judge for Yes {
    fn judge(&mut self, finding: &Finding) -> Decision {
        let fatal = finding.verdict().grade == Grade::Fatal;
        self.found.push(finding.clone());
        if fatal { Decision::Stop } else { Decision::Repair }
    }
}

/// What a repair came to, and what it found.
pub struct Run {
    /// The outcome.
    pub outcome: Repaired,
    /// What was found, as text.
    pub found: Vec<String>,
}

/// Recovers the journal, repairs everything and commits, as `-fy` does.
pub fn mend(store: &Arc<dyn Store>, redo_log: &Path) -> Result<Run> {
    ext4kit_format::commit::finish_interrupted(store.as_ref(), redo_log)?;
    let recovered = writing::recover_journal(store)? == writing::Recovery::Done;
    let options = Options::default();
    let mut opened = opening::open(Arc::clone(store), &options)?;
    let in_memory = opened.replayed;
    opened.replayed |= recovered;
    let mut judge = Yes::default();
    let outcome = repair(&mut opened, NOW, Jobs::default(), &mut judge)?;
    let found = judge.found.iter().map(ToString::to_string).collect();
    let changed = !opened.source.overlay.is_unchanged();
    if changed && !outcome.stopped {
        if in_memory {
            opened.empty_log_inside(&options)?;
        }
        writing::record(&mut opened, outcome.left == 0, NOW)?;
        let how = (redo_log, !outcome.journal_given_up);
        writing::commit(store, &mut opened.source.overlay, how, NOW)?;
        if in_memory {
            opened.empty_log_outside(&options)?;
        }
    }
    Ok(Run { outcome, found })
}
