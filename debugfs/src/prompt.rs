//! Lines from a terminal, with history, completion of commands and paths, and a pager for long answers.

use std::borrow::Cow;
use std::io::{self, Write};
use std::rc::Rc;

use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::disk::dirent::{self, FileType};
use ext4kit_format::tree::inode;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use crate::pager::{self, Paged};
use crate::run::{Done, Runner};
use crate::session::Open;
use crate::table::COMMANDS;
use crate::{history, listing, paths};

const PROMPT: &str = "debugfs:  ";
/// Lines that the history keeps.
const MOST_LINES: usize = 1000;

/// Completes the first word as a command, others as paths inside the filesystem.
struct Assistant {
    open: Option<Rc<Open>>,
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..position).unwrap_or(line);
        let start = before.rfind([' ', '\t']).map_or(0, |blank| blank + 1);
        let word = before.get(start..).unwrap_or_default();
        if before.get(..start).unwrap_or_default().trim().is_empty() {
            return Ok((start, commands(word)));
        }
        Ok((start, self.open.as_ref().map_or_else(Vec::new, |open| paths_from(open, word))))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Borrowed(hint)
    }
}

impl Validator for Assistant {}
impl Helper for Assistant {}

/// The commands that begin with a word.
fn commands(word: &str) -> Vec<String> {
    let names = COMMANDS.iter().flat_map(|command| command.aliases.iter().copied().chain([command.name]));
    let mut found: Vec<String> = names.filter(|name| name.starts_with(word)).map(str::to_owned).collect();
    found.sort_unstable();
    found
}

/// The paths that begin with a word. Names that are not UTF-8 cannot be typed and are left out.
pub fn paths_from(open: &Open, word: &str) -> Vec<String> {
    let (folder, start) = word.rfind('/').map_or(("", word), |slash| word.split_at(slash + 1));
    let at = if folder.is_empty() { "." } else { folder };
    let directory = paths::find(open, at.as_bytes()).and_then(|number| inode::read(&open.txn, number));
    let Ok(found) = directory.and_then(|directory| listing::entries(&open.txn, &directory, false)) else {
        return Vec::new();
    };
    let named = found.entries.iter().filter(|entry| entry.inode.is_some() && !dirent::is_dot(&entry.name));
    let mut matching: Vec<String> = named
        .filter_map(|entry| {
            let name = std::str::from_utf8(&entry.name).ok().filter(|name| name.starts_with(start))?;
            let end = if entry.file_type == FileType::DIRECTORY.0 { "/" } else { "" };
            Some(format!("{folder}{name}{end}"))
        })
        .collect();
    matching.sort_unstable();
    matching
}

/// Reads lines until the end, or `quit`.
pub fn converse(runner: &mut Runner) -> Result<(), Failure> {
    let failed = |error: ReadlineError| Failure::new(FailureKind::Io, "terminal", error.to_string());
    let sized = Config::builder().auto_add_history(true).max_history_size(MOST_LINES).map_err(failed)?;
    let mut editor = Editor::<Assistant, DefaultHistory>::with_config(sized.build()).map_err(failed)?;
    let mut kept = history::place(|name| std::env::var_os(name));
    if let Some(path) = &kept {
        match history::prepare(path).map_err(ReadlineError::from).and_then(|()| editor.load_history(path)) {
            Ok(()) => {}
            Err(error) => {
                let _ = writeln!(io::stderr(), "debugfs: {}: lines are not kept: {error}", path.display());
                kept = None;
            }
        }
    }
    while !runner.session.done {
        // The editor keeps its helper, so each line lends it the session for the time of its typing.
        let open = runner.session.open.take().map(Rc::new);
        editor.set_helper(Some(Assistant { open: open.clone() }));
        let line = editor.readline(PROMPT);
        editor.set_helper(None);
        runner.session.open = open.and_then(Rc::into_inner);
        match line {
            Ok(line) => {
                if let Some(path) = &kept {
                    // After each line, for a session may end in other ways than by `quit`.
                    let _ = editor.append_history(path);
                }
                answer(runner, line.as_bytes());
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Runs a line, with a long answer going through the pager.
fn answer(runner: &mut Runner, line: &[u8]) {
    let pager = if runner.json { None } else { pager::of_terminal() };
    let mut out = Paged::new(pager);
    let done = runner.line_to(line, &mut out, &mut io::stderr());
    // That the reader has seen enough is no failure.
    let done = if out.reader_left() { Done::Well } else { done };
    let printed = out.finish();
    runner.worst = runner.worst.max(if printed.is_ok() { done } else { done.max(Done::Failed) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed_by_all_their_names() {
        assert_eq!(commands("ea_"), ["ea_get", "ea_list"]);
        assert!(commands("").len() > 40);
        assert!(commands("no such").is_empty());
    }
}
