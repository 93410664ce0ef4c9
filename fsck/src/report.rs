//! What the user is told, in the words that callers of e2fsck look for.

use std::fmt::Write as _;
use std::io::{self, Write};

use ext4kit_cli::exit::OneLine;
use ext4kit_cli::json::Schema;
use ext4kit_cli::progress::{Progress, Step};
use serde::Serialize;

use crate::check::{Observer, Summary};
use crate::finding::{Finding, Grade};

/// The answer of `--json`.
pub const SCHEMA: Schema =
    Schema { tool: "ext4kit-fsck", version: env!("CARGO_PKG_VERSION"), name: "fsck", schema_version: 1 };

/// The headings of the passes, which scripts look for.
const PASSES: [&str; 5] = [
    "Pass 1: Checking inodes, blocks, and sizes",
    "Pass 2: Checking directory structure",
    "Pass 3: Checking directory connectivity",
    "Pass 4: Checking reference counts",
    "Pass 5: Checking group summary information",
];

/// A finding as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FindingObject {
    /// Its stable number.
    pub code: u16,
    /// How bad it is.
    pub grade: Grade,
    /// The structure that is wrong.
    pub place: String,
    /// What is wrong with it.
    pub text: String,
    /// What would put it right.
    pub repair: Option<String>,
}

impl FindingObject {
    /// A finding as data.
    pub fn new(finding: &Finding) -> Self {
        let verdict = finding.verdict();
        Self {
            code: verdict.code,
            grade: verdict.grade,
            place: finding.place.to_string(),
            text: verdict.text,
            repair: verdict.repair.map(|repair| repair.to_string()),
        }
    }
}

/// A whole check as data.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The device as it was typed.
    pub device: String,
    /// Whether nothing was found that counts as an error.
    pub clean: bool,
    /// Whether the check was left out because the filesystem says that it is clean.
    pub skipped: bool,
    /// Everything that was found.
    pub findings: Vec<FindingObject>,
    /// Inodes in use.
    pub inodes_used: u64,
    /// All inodes.
    pub inodes_total: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// All blocks.
    pub blocks_total: u64,
    /// The exit code.
    pub exit_code: u8,
}

/// Prints or keeps what a check tells.
pub struct Printer<'a> {
    /// The device as it was typed.
    pub device: &'a str,
    /// Whether every line begins with the device, and passes are not told.
    pub preen: bool,
    /// Whether findings are kept instead of printed.
    pub json: bool,
    /// What was kept.
    pub findings: Vec<FindingObject>,
    /// Who shows how far the check is.
    pub progress: &'a dyn Progress,
}

/// Prints a line. Where nobody reads any more, the exit code still tells.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

impl Observer for Printer<'_> {
    fn finding(&mut self, finding: Finding) {
        if self.json {
            self.findings.push(FindingObject::new(&finding));
            return;
        }
        self.progress.clear();
        let verdict = finding.verdict();
        let mut line = String::new();
        if self.preen {
            // Writing to a string cannot fail.
            let _ = write!(line, "{}: ", self.device);
        }
        let _ = write!(line, "{}: {}", finding.place, verdict.text);
        if let (Some(repair), true) = (verdict.repair, verdict.grade.is_error()) {
            let _ = write!(line, " ({repair}? no)");
        }
        let _ = write!(line, " [{}]", verdict.code);
        say(&OneLine(&line).to_string());
    }

    fn pass(&mut self, number: u8) {
        if self.preen || self.json {
            return;
        }
        self.progress.clear();
        if let Some(heading) = usize::from(number).checked_sub(1).and_then(|at| PASSES.get(at)) {
            say(heading);
        }
    }

    fn progress(&mut self, pass: u8, current: u64, maximum: u64) {
        if pass > 0 {
            self.progress.update(Step { pass: pass.into(), current, maximum });
        }
    }
}

/// The last line of a check.
pub fn last_line(device: &str, summary: &Summary) -> String {
    let per_mille = summary.files.fragmented.saturating_mul(1000).saturating_add(summary.inodes_used / 2);
    let share = per_mille.checked_div(summary.inodes_used).unwrap_or(0);
    format!(
        "{device}: {}/{} files ({}.{}% non-contiguous), {}/{} blocks",
        summary.inodes_used,
        summary.inodes_total,
        share / 10,
        share % 10,
        summary.blocks_used,
        summary.blocks_total
    )
}

/// What `-v` adds.
pub fn verbose_lines(summary: &Summary) -> String {
    let files = &summary.files;
    let mut text = String::from("\n");
    let rows = [
        (summary.inodes_used, "inodes used"),
        (files.fragmented.saturating_sub(files.fragmented_directories), "non-contiguous files"),
        (files.fragmented_directories, "non-contiguous directories"),
        (summary.blocks_used, "blocks used"),
        (files.regular, "regular files"),
        (files.directories, "directories"),
        (files.character_devices, "character device files"),
        (files.block_devices, "block device files"),
        (files.fifos, "fifos"),
        (files.symlinks, "symbolic links"),
        (files.fast_symlinks, "fast symbolic links"),
        (files.sockets, "sockets"),
    ];
    for (count, what) in rows {
        let _ = writeln!(text, "{count:>12} {what}");
    }
    text
}
