//! Every problem that a check can find.
//!
//! One table per area: each line is a problem with its code (stable, never reused), its grade, the problems of
//! e2fsck that it answers, its text, and its repair. A new problem does not compile until all of it is there, and
//! `docs/findings.md` is generated from the same lines.

#[macro_use]
mod table;
mod attribute;
mod bitmap;
mod connect;
mod count;
mod directory;
mod group;
mod inode;
mod journal;
mod lint;
mod map;
mod superblock;
mod unanswered;

pub use attribute::AttributeProblem;
pub use bitmap::BitmapProblem;
pub use connect::ConnectProblem;
pub use count::CountProblem;
pub use directory::DirectoryProblem;
pub use group::GroupProblem;
pub use inode::InodeProblem;
pub use journal::JournalProblem;
pub use lint::LintProblem;
pub use map::MapProblem;
pub use superblock::SuperblockProblem;
pub use unanswered::UNANSWERED;

use std::fmt;

use ext4kit_format::Place;
use serde::Serialize;

use crate::repair::Repair;

/// How bad a problem is, and what may be done about it unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Worth knowing; the filesystem counts as clean.
    Note,
    /// An error whose repair is safe unasked.
    Preen,
    /// An error whose repair loses nothing but needs consent.
    Repairable,
    /// An error whose repair may lose data.
    DataLoss,
    /// The check cannot go on.
    Fatal,
}

impl Grade {
    /// Whether a filesystem with such a problem counts as damaged.
    pub fn is_error(self) -> bool {
        self > Self::Note
    }
}

/// What is to be said and done about a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Stable number of the problem.
    pub code: u16,
    /// How bad it is.
    pub grade: Grade,
    /// What is wrong, without the place.
    pub text: String,
    /// What would put it right.
    pub repair: Option<Repair>,
}

/// A line of the list of all problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueLine {
    /// Stable number of the problem.
    pub code: u16,
    /// Its name.
    pub name: &'static str,
    /// How bad it is.
    pub grade: Grade,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// The problems of e2fsck that it answers.
    pub answers: &'static [u32],
}

macro_rules! areas {
    ($($area:ident($problem:ident), $title:literal;)*) => {
        /// A problem of any area.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Problem {
            $(#[doc = $title] $area($problem),)*
        }

        impl Problem {
            /// What is to be said and done.
            pub fn verdict(&self) -> Verdict {
                match self { $(Self::$area(problem) => problem.verdict(),)* }
            }
        }

        $(impl From<$problem> for Problem {
            fn from(problem: $problem) -> Self {
                Self::$area(problem)
            }
        })*

        /// Every area with its problems, in the order of their codes.
        pub const CATALOGUE: &[(&str, &[CatalogueLine])] = &[$(($title, $problem::CATALOGUE),)*];
    };
}

areas! {
    Superblock(SuperblockProblem), "Superblock and geometry";
    Group(GroupProblem), "Group descriptors";
    Inode(InodeProblem), "Inodes";
    Map(MapProblem), "Block maps and extent trees";
    Attribute(AttributeProblem), "Extended attributes";
    Directory(DirectoryProblem), "Directories";
    Connect(ConnectProblem), "Connectivity";
    Count(CountProblem), "Link and reference counts";
    Bitmap(BitmapProblem), "Bitmaps and summaries";
    Journal(JournalProblem), "Journal and orphans";
    Lint(LintProblem), "Oddities, told with --lint alone";
}

/// A problem at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The structure that is wrong.
    pub place: Place,
    /// What is wrong with it.
    pub problem: Problem,
}

impl Finding {
    /// A problem at a place.
    pub fn new(place: Place, problem: impl Into<Problem>) -> Self {
        Self { place, problem: problem.into() }
    }

    /// What is to be said and done about it.
    pub fn verdict(&self) -> Verdict {
        self.problem.verdict()
    }

    /// Its stable number.
    pub fn code(&self) -> u16 {
        self.verdict().code
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.verdict().text)
    }
}

/// The text of `docs/findings.md`.
pub fn catalogue_text() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "# Findings of ext4kit-fsck\n\nGenerated from the code (run the tests of `ext4kit-fsck` with \
         `EXT4KIT_BLESS=1`). Codes are stable and never reused.\nA note does not count as an error. The last column \
         names the problems of e2fsck that a finding answers.\n",
    );
    for (title, lines) in CATALOGUE {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n## {title}\n\n| code | finding | grade | what | e2fsck |\n| --- | --- | --- | --- | --- |\n"
        );
        for line in *lines {
            let answers: Vec<String> = line.answers.iter().map(|code| format!("{code:#08x}")).collect();
            let _ = writeln!(
                text,
                "| {} | {} | {:?} | {} | {} |",
                line.code,
                line.name,
                line.grade,
                line.about.trim(),
                answers.join(" ")
            );
        }
    }
    text.push_str("\n## Problems of e2fsck without a finding\n\n| why | e2fsck |\n| --- | --- |\n");
    for (reason, problems) in UNANSWERED {
        let problems: Vec<String> = problems.iter().map(|code| format!("{code:#08x}")).collect();
        let _ = writeln!(text, "| {reason} | {} |", problems.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_ascend_in_each_area() {
        let mut seen = std::collections::BTreeSet::new();
        for (title, lines) in CATALOGUE {
            assert!(lines.windows(2).all(|pair| pair[0].code < pair[1].code), "{title}");
            for line in *lines {
                assert!(seen.insert(line.code), "{} is there twice", line.code);
            }
        }
    }

    #[test]
    fn each_problem_of_e2fsck_is_answered_or_has_a_reason() {
        let lines = CATALOGUE.iter().flat_map(|(_, lines)| lines.iter());
        let answered: std::collections::BTreeSet<u32> =
            lines.flat_map(|line| line.answers).copied().collect();
        let unanswered: Vec<u32> = UNANSWERED.iter().flat_map(|(_, codes)| *codes).copied().collect();
        assert!(unanswered.iter().all(|code| !answered.contains(code)));
        // e2fsck 1.47.4 has 414 problems.
        assert_eq!(answered.len() + unanswered.len(), 414);
    }

    #[test]
    fn the_list_of_findings_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/findings.md");
        let wanted = catalogue_text();
        if std::env::var_os("EXT4KIT_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "docs/findings.md is stale: run the tests with EXT4KIT_BLESS=1");
    }
}
