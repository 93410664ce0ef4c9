//! `/etc/e2fsck.conf`: the keys that change what is repaired, said or waited for. The file is named by the variable
//! `E2FSCK_CONFIG`.
//!
//! Sections in brackets, `key = value` in them, and subsections in braces. Keys that mean something to e2fsck and
//! nothing here are of two kinds: those that could not change anything that a caller sees are passed over; of the
//! others the user is told.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::{CATALOGUE, CatalogueLine};

/// Where the file lies.
const PATH: &str = "/etc/e2fsck.conf";

/// Keys of `[options]` that change how e2fsck works and not what it comes to, or ask for what always holds here: odd
/// clocks are no errors, whole counts are kept, and extent trees are left alone.
const NEEDLESS: &[&str] = &[
    "accept_time_fudge",
    "buggy_init_scripts",
    "inode_count_fullmap",
    "no_optimize_extents",
    "old_bitmaps",
    "readahead_kb",
    "readahead_mem_pct",
    "indexed_dir_slack_percentage",
];

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
pub struct Config {
    /// Nothing follows from the time.
    pub broken_clock: bool,
    /// A cancelled check of a filesystem that does not say that it has errors exits with 0.
    pub allow_cancellation: bool,
    /// As `-t`.
    pub report_time: bool,
    /// As `-v`.
    pub report_verbose: bool,
    /// By code of finding: whether it is repaired unasked, where the file says so.
    pub preen: BTreeMap<u16, bool>,
    /// By code of finding: never repaired.
    pub never: BTreeSet<u16>,
    /// What has no effect here, to be told.
    pub ignored: Vec<String>,
}

fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" | "t" | "1" | "on" => Some(true),
        "n" | "no" | "false" | "nil" | "0" | "off" => Some(false),
        _ => None,
    }
}

impl Config {
    /// What the file of this machine says; nothing where there is none.
    pub fn load() -> Self {
        let named = std::env::var_os("E2FSCK_CONFIG").filter(|name| !name.is_empty());
        let path = named.unwrap_or_else(|| PATH.into());
        std::fs::read_to_string(path).map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Self {
        let mut config = Self::default();
        let mut section = String::new();
        let mut problem: Option<String> = None;
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                name.trim().clone_into(&mut section);
                problem = None;
            } else if line.starts_with('}') {
                problem = None;
            } else if let Some((key, value)) = line.split_once('=') {
                let (key, value) = (key.trim(), value.trim().trim_matches('"'));
                if value.starts_with('{') {
                    problem = Some(key.to_owned());
                } else {
                    config.take(&section, problem.as_deref(), (key, value));
                }
            }
        }
        config
    }

    fn take(&mut self, section: &str, problem: Option<&str>, (key, value): (&str, &str)) {
        match (section, problem) {
            ("options", None) => self.option(key, value),
            ("problems", Some(problem)) => self.problem(problem, key, value),
            // Where e2fsck keeps temporary files is nothing to us; undo files are named on the command line.
            _ => {}
        }
    }

    fn option(&mut self, key: &str, value: &str) {
        let field = match key {
            "broken_system_clock" => &mut self.broken_clock,
            "allow_cancellation" => &mut self.allow_cancellation,
            "report_time" => &mut self.report_time,
            "report_verbose" => &mut self.report_verbose,
            key if NEEDLESS.contains(&key) => return,
            key => {
                self.ignored.push(format!("[options] {key}"));
                return;
            }
        };
        match truth(value) {
            Some(wanted) => *field = wanted,
            None => self.ignored.push(format!("[options] {key} = {value}")),
        }
    }

    fn problem(&mut self, problem: &str, key: &str, value: &str) {
        let number = problem.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let lines: Vec<&CatalogueLine> = CATALOGUE
            .iter()
            .flat_map(|(_, lines)| lines.iter())
            .filter(|line| number.is_some_and(|number| line.answers.contains(&number)))
            .collect();
        match (key, truth(value)) {
            // A finding that answers other problems as well is not made safe by a word about one of them.
            ("preen_ok", Some(true))
                if lines.iter().all(|line| line.answers.len() == 1) && !lines.is_empty() =>
            {
                self.preen.extend(lines.iter().map(|line| (line.code, true)));
            }
            ("preen_ok", Some(false)) if !lines.is_empty() => {
                self.preen.extend(lines.iter().map(|line| (line.code, false)));
            }
            ("force_no", Some(true)) if !lines.is_empty() => {
                self.never.extend(lines.iter().map(|line| line.code));
            }
            ("description", _) | ("force_no", Some(false)) => {}
            _ => self.ignored.push(format!("[problems] {problem}: {key}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_mean_something_are_taken() {
        let text = "; a comment\n[options]\n\tbroken_system_clock = yes\n allow_cancellation=1\n\
                    report_time = false\nno_optimize_extents = true\nlog_filename = \"x.log\"\n\
                    report_verbose = perhaps\n[scratch_files]\n directory = /tmp\n";
        let config = Config::parse(text);
        let wanted = Config {
            broken_clock: true,
            allow_cancellation: true,
            ignored: vec!["[options] log_filename".into(), "[options] report_verbose = perhaps".into()],
            ..Config::default()
        };
        assert_eq!(config, wanted);
        assert_eq!(Config::parse(""), Config::default());
        assert_eq!(Config::parse("]\n}\n= \n[\n{\n[options\nx"), Config::default());
    }

    #[test]
    fn problems_are_named_by_the_numbers_of_e2fsck() {
        let lines = || CATALOGUE.iter().flat_map(|(_, lines)| lines.iter());
        let alone = lines().find(|line| line.answers.len() == 1).unwrap();
        let many = lines().find(|line| line.answers.len() > 1).unwrap();
        let stanza = |number: u32, what: &str| format!("[problems]\n{number:#08x} = {{\n{what}\n}}\n");
        let config = Config::parse(&stanza(alone.answers[0], "preen_ok = true"));
        assert_eq!(config.preen.get(&alone.code), Some(&true));
        let config = Config::parse(&stanza(many.answers[0], "preen_ok = true"));
        assert_eq!(config.preen.get(&many.code), None);
        assert_eq!(config.ignored.len(), 1);
        let config = Config::parse(&stanza(many.answers[0], "preen_ok = false\nforce_no = true"));
        assert_eq!(config.preen.get(&many.code), Some(&false));
        assert!(config.never.contains(&many.code));
        let config = Config::parse(&stanza(0x00ff_ffff, "force_no = true"));
        assert_eq!(config.ignored, ["[problems] 0xffffff: force_no"]);
    }
}
