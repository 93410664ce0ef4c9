//! What the user is told, in the words that callers of e2fsck look for.

use std::fmt::Write as _;
use std::io::{self, Write};

use ext4kit_cli::exit::OneLine;
use ext4kit_cli::json::Schema;
use ext4kit_cli::progress::{Progress, Step};
use serde::Serialize;

use crate::check::Summary;
use crate::finding::{Class, Finding, Grade};
use crate::names::Before;
use crate::policy::{self, Policy, Standing};
use crate::repair::Repair;
use crate::repairs::fields::inode_of;
use crate::repairs::{Decision, Judge, Repaired};
use crate::timing::Stopwatch;

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
    /// A path of the file that it is about, as it was before any repair, where there is one.
    pub path: Option<String>,
    /// What is wrong with it.
    pub text: String,
    /// What would put it right.
    pub repair: Option<String>,
    /// What that would cost.
    pub class: Option<Class>,
}

impl FindingObject {
    /// A finding as data.
    pub fn new(finding: &Finding, path: Option<String>) -> Self {
        let verdict = finding.verdict();
        Self {
            path,
            class: verdict.class(),
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
    /// How many errors were put right; with `-n`, how many could be.
    pub repaired: u64,
    /// How many errors are left.
    pub left: u64,
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

impl Answer {
    /// The answer of a check that ran.
    pub fn new(device: &str, findings: Vec<FindingObject>, outcome: &Repaired, exit_code: u8) -> Self {
        let summary = &outcome.summary;
        Self {
            device: device.to_owned(),
            clean: outcome.left == 0 && outcome.repaired == 0 && !outcome.stopped,
            skipped: false,
            findings,
            repaired: outcome.repaired,
            left: outcome.left,
            inodes_used: summary.inodes_used,
            inodes_total: summary.inodes_total,
            blocks_used: summary.blocks_used,
            blocks_total: summary.blocks_total,
            exit_code,
        }
    }
}

/// The answer of `--apply --json`.
pub const SCHEMA_APPLIED: Schema = Schema {
    tool: "ext4kit-fsck",
    version: env!("CARGO_PKG_VERSION"),
    name: "fsck-applied",
    schema_version: 1,
};

/// What a plan came to that was applied.
#[derive(Clone, Debug, Serialize)]
pub struct Applied<'a> {
    /// The device as it was typed.
    pub device: &'a str,
    /// How many blocks were changed.
    pub changed_blocks: usize,
    /// How many errors the plan leaves.
    pub left: u64,
    /// The exit code.
    pub exit_code: u8,
}

/// Prints or keeps what a check tells, and says what is to be done about it.
pub struct Printer<'a> {
    device: &'a str,
    policy: Policy,
    /// Whether findings are kept instead of printed.
    json: bool,
    /// Everything that was told, for an answer or a plan.
    pub findings: Vec<FindingObject>,
    /// Who shows how far the check is.
    progress: &'a dyn Progress,
    standing: Standing,
    /// The files as they were before any repair.
    before: Option<&'a Before>,
    /// What was repaired at the cost of data.
    pub losses: Vec<Finding>,
    /// The pass that runs, where each is to be timed.
    timed: Option<(u8, Stopwatch)>,
}

impl<'a> Printer<'a> {
    /// Nothing told yet.
    pub fn new(device: &'a str, policy: Policy, json: bool, progress: &'a dyn Progress) -> Self {
        Self {
            device,
            policy,
            json,
            findings: Vec::new(),
            progress,
            standing: Standing::default(),
            before: None,
            losses: Vec::new(),
            timed: None,
        }
    }

    /// Answers that stand from the start, and the files as they are.
    #[must_use]
    pub fn with(mut self, standing: Standing, before: &'a Before) -> Self {
        self.standing = standing;
        self.before = Some(before);
        self
    }

    /// A path of the file that a finding is about. The root is not worth telling.
    fn path(&self, finding: &Finding) -> Option<String> {
        let path = self.before?.path(inode_of(&finding.place).ok()?)?;
        (path != "/").then_some(path)
    }

    /// Has each pass timed.
    pub fn time_passes(&mut self) {
        self.timed = Some((0, Stopwatch::start()));
    }

    /// The timed pass is over, and another begins.
    pub fn end_pass(&mut self, next: u8) {
        if let Some((number, watch)) = &self.timed {
            if *number > 0 {
                self.progress.clear();
                say(&watch.lines(&format!("Pass {number}: ")));
            }
            self.timed = Some((next, Stopwatch::start()));
        }
    }

    /// The line of a finding, without what is done about it.
    fn line(&self, finding: &Finding) -> String {
        let start = if self.policy == Policy::Preen { format!("{}: ", self.device) } else { String::new() };
        let verdict = finding.verdict();
        let path = self.path(finding).map(|path| format!(" ({path})")).unwrap_or_default();
        OneLine(&format!("{start}{}{path}: {} [{}]", finding.place, verdict.text, verdict.code)).to_string()
    }

    /// Asks about a repair until there is an answer. The end of the input ends the check.
    fn ask(&mut self, finding: &Finding, repair: &Repair) -> Decision {
        loop {
            let mut out = io::stdout().lock();
            let _ = write!(out, "{repair}? [y]es, [n]o, [a]ll, all of this [k]ind, [q]uit ");
            let _ = out.flush();
            drop(out);
            let mut answer = String::new();
            if io::stdin().read_line(&mut answer).unwrap_or(0) == 0 {
                return Decision::Stop;
            }
            match answer.trim() {
                "" | "y" | "yes" => return Decision::Repair,
                "n" | "no" => return Decision::Leave,
                "a" | "all" => {
                    self.standing.all = true;
                    return Decision::Repair;
                }
                "k" | "kind" => {
                    self.standing.kinds.insert(finding.code());
                    return Decision::Repair;
                }
                "q" | "quit" => return Decision::Stop,
                _ => {}
            }
        }
    }
}

impl Printer<'_> {
    /// Tells a finding, and says what is to be done about it.
    fn decide(&mut self, finding: &Finding) -> Decision {
        let verdict = finding.verdict();
        let answer = match &verdict.repair {
            None => policy::Answer::No,
            Some(_) => self.policy.answer(finding, &self.standing),
        };
        // What cannot be repaired ends an unattended run just as what may not be.
        let unattended = self.policy == Policy::Preen && !self.standing.is_safe(&verdict);
        // What makes a check impossible makes repairs dangerous.
        let fatal = self.policy != Policy::No && verdict.grade == Grade::Fatal;
        let answer = if unattended || fatal { policy::Answer::GiveUp } else { answer };
        let path = self.path(finding);
        self.findings.push(FindingObject::new(finding, path));
        if self.json {
            return match answer {
                policy::Answer::Yes => Decision::Repair,
                policy::Answer::No | policy::Answer::Ask => Decision::Leave,
                policy::Answer::GiveUp => Decision::Stop,
            };
        }
        self.progress.clear();
        let line = self.line(finding);
        let cost = if verdict.class() == Some(Class::LosesData) { "; loses data" } else { "" };
        let done = |word: &str| match (&verdict.repair, verdict.grade.is_error()) {
            (Some(repair), true) => format!("{line} ({repair}? {word}{cost})"),
            _ => line.clone(),
        };
        match answer {
            policy::Answer::Yes if self.policy == Policy::No => {
                say(&done("no"));
                Decision::Repair
            }
            policy::Answer::Yes => {
                say(&done("yes"));
                Decision::Repair
            }
            policy::Answer::No => {
                say(&done("no"));
                Decision::Leave
            }
            policy::Answer::GiveUp => {
                say(&line);
                Decision::Stop
            }
            policy::Answer::Ask => {
                say(&line);
                match verdict.repair {
                    Some(repair) => self.ask(finding, &repair),
                    None => Decision::Leave,
                }
            }
        }
    }
}

/// Prints a line. Where nobody reads any more, the exit code still tells.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

impl Judge for Printer<'_> {
    fn judge(&mut self, finding: &Finding) -> Decision {
        let decision = self.decide(finding);
        if decision == Decision::Repair && finding.verdict().class() == Some(Class::LosesData) {
            self.losses.push(finding.clone());
        }
        decision
    }

    fn pass(&mut self, number: u8) {
        self.end_pass(number);
        if self.policy == Policy::Preen || self.json {
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

/// A part of a whole as a percentage with so many digits behind the point, at most 100.
fn percent(part: u64, whole: u64, digits: u32) -> String {
    let scale = 10u64.saturating_pow(digits);
    let share = u128::from(part).saturating_mul(100).saturating_mul(scale.into());
    let share = share.saturating_add(u128::from(whole / 2)).checked_div(whole.into()).unwrap_or(0);
    let share = u64::try_from(share).unwrap_or(u64::MAX);
    let width = usize::try_from(digits).unwrap_or(0);
    let (before, behind) = (share.checked_div(scale).unwrap_or(0), share.checked_rem(scale).unwrap_or(0));
    format!("{before}.{behind:0width$}%")
}

/// A word in the number that fits; one that ends in `director` is short of its last letters.
fn counted(count: u64, word: &str) -> String {
    match (word.strip_suffix("director"), count) {
        (Some(before), 1) => format!("{before}directory"),
        (Some(before), _) => format!("{before}directories"),
        (None, 1) => word.to_owned(),
        (None, _) => format!("{word}s"),
    }
}

/// What `-v` prints in the place of the last line.
pub fn verbose_lines(summary: &Summary, bad_blocks: u64) -> String {
    let files = &summary.files;
    let mut text = String::from("\n");
    let share = |part: u64| percent(part, summary.inodes_used, 1);
    let fragmented = files.fragmented.saturating_sub(files.fragmented_directories);
    let of = |part: u64, whole: u64| format!("used ({}, out of {whole})", percent(part, whole, 2));
    let specials = [files.character_devices, files.block_devices, files.fifos, files.symlinks, files.sockets];
    let all = specials
        .iter()
        .fold(files.regular.saturating_add(files.directories), |sum, count| sum.saturating_add(*count));
    let rows = [
        (summary.inodes_used, "inode", format!(" {}", of(summary.inodes_used, summary.inodes_total))),
        (fragmented, "non-contiguous file", format!(" ({})", share(fragmented))),
        (
            files.fragmented_directories,
            "non-contiguous director",
            format!(" ({})", share(files.fragmented_directories)),
        ),
        (summary.blocks_used, "block", format!(" {}", of(summary.blocks_used, summary.blocks_total))),
        (bad_blocks, "bad block", "\n".to_owned()),
        (files.regular, "regular file", String::new()),
        (files.directories, "director", String::new()),
        (files.character_devices, "character device file", String::new()),
        (files.block_devices, "block device file", String::new()),
        (files.fifos, "fifo", String::new()),
        (files.symlinks, "symbolic link", {
            format!(" ({} {})", files.fast_symlinks, counted(files.fast_symlinks, "fast symbolic link"))
        }),
        (files.sockets, "socket", String::new()),
    ];
    for (count, what, behind) in rows {
        let _ = writeln!(text, "{count:>12} {}{behind}", counted(count, what));
    }
    let _ = write!(text, "------------\n{all:>12} {}", counted(all, "file"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_and_never_divide_by_nothing() {
        assert_eq!(percent(11, 4096, 2), "0.27%");
        assert_eq!(percent(2325, 16384, 2), "14.19%");
        assert_eq!(percent(0, 0, 1), "0.0%");
        assert_eq!(percent(7, 7, 1), "100.0%");
        assert_eq!(percent(1, 100, 1), "1.0%");
    }
}
