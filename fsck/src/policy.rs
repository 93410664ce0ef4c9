//! What is repaired unasked, what is asked about, and what is left.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::{Finding, Grade, Verdict};

/// How the caller wants findings to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `-n`: every repair is made in memory and shown, nothing is written.
    No,
    /// `-y`, `--policy all`: everything is repaired.
    Yes,
    /// `-p`, `-a`: what is safe is repaired; anything else ends the check.
    Preen,
    /// `--policy safe`: what is safe is repaired, the rest is left.
    Safe,
    /// `--policy no-data-loss`: everything is repaired that loses nothing, the rest is left.
    NoDataLoss,
    /// The user is asked.
    Ask,
}

/// An answer to a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is put right.
    Yes,
    /// It is left.
    No,
    /// Somebody has to be asked.
    Ask,
    /// The check ends here.
    GiveUp,
}

/// Answers given once for many findings.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Yes to all that is left.
    pub all: bool,
    /// Yes to all of these codes.
    pub kinds: BTreeSet<u16>,
    /// Codes that a configuration declares safe, or not safe.
    pub safe: BTreeMap<u16, bool>,
    /// Codes that are never repaired.
    pub never: BTreeSet<u16>,
}

impl Standing {
    /// Whether a finding may be repaired unasked.
    pub fn is_safe(&self, verdict: &Verdict) -> bool {
        // No word of a configuration makes it safe to go past what ends a check.
        let declared = self.safe.get(&verdict.code).copied().filter(|_| verdict.grade < Grade::Fatal);
        verdict.grade == Grade::Note || declared.unwrap_or(verdict.grade <= Grade::Preen)
    }
}

impl Policy {
    /// The answer to a finding that has a repair.
    pub fn answer(self, finding: &Finding, standing: &Standing) -> Answer {
        let verdict = finding.verdict();
        let grade = verdict.grade;
        let safe = standing.is_safe(&verdict);
        match self {
            _ if standing.never.contains(&verdict.code) => Answer::No,
            Self::No | Self::Yes => Answer::Yes,
            Self::Preen | Self::Safe if safe => Answer::Yes,
            Self::Preen => Answer::GiveUp,
            Self::NoDataLoss if grade < Grade::DataLoss => Answer::Yes,
            Self::Safe | Self::NoDataLoss => Answer::No,
            // What counts as no error is nothing to ask about.
            Self::Ask if grade == Grade::Note => Answer::Yes,
            Self::Ask if standing.all || standing.kinds.contains(&verdict.code) => Answer::Yes,
            Self::Ask => Answer::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{CountProblem, InodeProblem};
    use ext4kit_format::{InodeNumber, Place};

    fn findings() -> [Finding; 3] {
        let place = Place::Inode(InodeNumber::ROOT);
        [
            Finding::new(place.clone(), CountProblem::LinksWrong { stored: 1, counted: 2 }),
            Finding::new(place.clone(), CountProblem::Unattached { inode: InodeNumber::ROOT }),
            Finding::new(place, InodeProblem::ModeWrong { inode: InodeNumber::ROOT, mode: 0 }),
        ]
    }

    #[test]
    fn each_policy_goes_as_far_as_its_name_says() {
        let table = [
            (Policy::Yes, [Answer::Yes, Answer::Yes, Answer::Yes]),
            (Policy::Preen, [Answer::Yes, Answer::GiveUp, Answer::GiveUp]),
            (Policy::Safe, [Answer::Yes, Answer::No, Answer::No]),
            (Policy::NoDataLoss, [Answer::Yes, Answer::Yes, Answer::No]),
            (Policy::Ask, [Answer::Ask, Answer::Ask, Answer::Ask]),
        ];
        for (policy, wanted) in table {
            let standing = Standing::default();
            assert_eq!(findings().map(|finding| policy.answer(&finding, &standing)), wanted, "{policy:?}");
        }
    }

    #[test]
    fn a_configuration_changes_what_is_safe() {
        let mut standing = Standing::default();
        let [first, second, third] = findings();
        standing.safe = BTreeMap::from([(first.code(), false), (second.code(), true)]);
        standing.never.insert(third.code());
        assert_eq!(Policy::Preen.answer(&first, &standing), Answer::GiveUp);
        assert_eq!(Policy::Preen.answer(&second, &standing), Answer::Yes);
        assert_eq!(Policy::Yes.answer(&third, &standing), Answer::No);
    }

    #[test]
    fn an_answer_for_all_of_a_kind_spares_the_rest_of_the_kind() {
        let mut standing = Standing::default();
        let [first, second, _] = findings();
        standing.kinds.insert(first.code());
        assert_eq!(Policy::Ask.answer(&first, &standing), Answer::Yes);
        assert_eq!(Policy::Ask.answer(&second, &standing), Answer::Ask);
    }
}
