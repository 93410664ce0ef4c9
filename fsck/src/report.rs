//! What the user is told, in the words that callers of e2fsck look for.

use std::fmt::Write as _;
use std::io::{self, Write};

use ext4kit_cli::exit::OneLine;
use ext4kit_cli::json::Schema;
use ext4kit_cli::progress::{Progress, Step};
use serde::Serialize;

use crate::check::Summary;
use crate::finding::{Finding, Grade};
use crate::policy::{self, Policy, Standing};
use crate::repair::Repair;
use crate::repairs::{Decision, Judge, Repaired};

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
}

impl<'a> Printer<'a> {
    /// Nothing told yet.
    pub fn new(device: &'a str, policy: Policy, json: bool, progress: &'a dyn Progress) -> Self {
        Self { device, policy, json, findings: Vec::new(), progress, standing: Standing::default() }
    }

    /// The line of a finding, without what is done about it.
    fn line(&self, finding: &Finding) -> String {
        let start = if self.policy == Policy::Preen { format!("{}: ", self.device) } else { String::new() };
        let verdict = finding.verdict();
        OneLine(&format!("{start}{}: {} [{}]", finding.place, verdict.text, verdict.code)).to_string()
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

/// Prints a line. Where nobody reads any more, the exit code still tells.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

impl Judge for Printer<'_> {
    fn judge(&mut self, finding: &Finding) -> Decision {
        let verdict = finding.verdict();
        let answer = match &verdict.repair {
            None => policy::Answer::No,
            Some(_) => self.policy.answer(finding, &self.standing),
        };
        // What cannot be repaired ends an unattended run just as what may not be.
        let unattended = self.policy == Policy::Preen && verdict.grade > Grade::Preen;
        // What makes a check impossible makes repairs dangerous.
        let fatal = self.policy != Policy::No && verdict.grade == Grade::Fatal;
        let answer = if unattended || fatal { policy::Answer::GiveUp } else { answer };
        self.findings.push(FindingObject::new(finding));
        if self.json {
            return match answer {
                policy::Answer::Yes => Decision::Repair,
                policy::Answer::No | policy::Answer::Ask => Decision::Leave,
                policy::Answer::GiveUp => Decision::Stop,
            };
        }
        self.progress.clear();
        let line = self.line(finding);
        let done = |word: &str| match (&verdict.repair, verdict.grade.is_error()) {
            (Some(repair), true) => format!("{line} ({repair}? {word})"),
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

    fn pass(&mut self, number: u8) {
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
