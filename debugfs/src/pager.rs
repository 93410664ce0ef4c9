//! Answers that are longer than the screen, in the conversation at a terminal.
//!
//! An answer is held back until it has more lines than the screen. A shorter one is printed as it is; for a longer one a
//! pager is started, and what was held back and what follows goes there.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};

/// Value of the variables that turns paging off, as in debugfs.
const NONE: &str = "__none__";
/// Bytes after which an answer is long, however few its lines are.
const MOST_HELD: usize = 1 << 20;

/// The pager's command line by the environment: `DEBUGFS_PAGER`, else `PAGER`, else what is installed.
pub fn choose(
    variable: impl Fn(&str) -> Option<OsString>,
    is_installed: impl Fn(&str) -> bool,
) -> Option<OsString> {
    let named = variable("DEBUGFS_PAGER").or_else(|| variable("PAGER"));
    match named {
        Some(command) => Some(command).filter(|command| !command.is_empty() && command != NONE),
        None => ["less", "more"].into_iter().find(|name| is_installed(name)).map(OsString::from),
    }
}

/// The pager of this process, if its answers go to a terminal.
pub fn of_terminal() -> Option<(OsString, usize)> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let rows = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_row));
    let is_installed = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    // A terminal that does not know its size has the usual one.
    Some((choose(|name| std::env::var_os(name), is_installed)?, if rows == 0 { 24 } else { rows }))
}

enum Way {
    /// Not yet known to be long, and how many lines it has so far.
    Held(Vec<u8>, usize),
    /// Straight to the terminal.
    Plain,
    Pager(Child),
}

/// Where one answer goes.
pub struct Paged {
    pager: Option<(OsString, usize)>,
    way: Way,
    reader_left: bool,
}

impl Paged {
    /// An answer for a pager and the rows of the screen, or for the terminal alone.
    pub fn new(pager: Option<(OsString, usize)>) -> Self {
        let way = if pager.is_some() { Way::Held(Vec::new(), 0) } else { Way::Plain };
        Self { pager, way, reader_left: false }
    }

    /// Whether the pager was left before the end of the answer.
    pub fn reader_left(&self) -> bool {
        self.reader_left
    }

    /// Prints what is held back, and waits until the reader is done with the pager.
    pub fn finish(self) -> io::Result<()> {
        match self.way {
            Way::Held(bytes, _) => io::stdout().write_all(&bytes),
            Way::Plain => Ok(()),
            Way::Pager(mut child) => {
                drop(child.stdin.take());
                child.wait().map(drop)
            }
        }?;
        io::stdout().flush()
    }

    fn start(&mut self, held: &[u8]) -> io::Result<()> {
        let Some((command, _)) = &self.pager else { return io::stdout().write_all(held) };
        let started = Command::new("sh").arg("-c").arg(command).stdin(Stdio::piped()).spawn();
        self.way = match started {
            Ok(child) => Way::Pager(child),
            Err(_) => Way::Plain,
        };
        self.write_all(held)
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.way {
            Way::Plain => io::stdout().write(bytes),
            Way::Pager(child) => match &mut child.stdin {
                Some(stdin) => {
                    let written = stdin.write(bytes);
                    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
                    self.reader_left |= written.as_ref().is_err_and(is_closed);
                    written
                }
                None => Ok(bytes.len()),
            },
            Way::Held(held, lines) => {
                held.extend_from_slice(bytes);
                let rows = self.pager.as_ref().map_or(0, |(_, rows)| *rows);
                *lines += bytes.split(|byte| *byte == b'\n').count() - 1;
                if *lines >= rows || held.len() > MOST_HELD {
                    let held = std::mem::take(held);
                    self.start(&held)?;
                }
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.way {
            // What is held back is flushed when it is known to be all.
            Way::Held(..) => Ok(()),
            Way::Plain => io::stdout().flush(),
            Way::Pager(child) => child.stdin.as_mut().map_or(Ok(()), Write::flush),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_which() {
        let chosen = |variables: &[(&str, &str)], installed: &[&str]| {
            let value = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            choose(value, |name| installed.contains(&name)).map(|command| command.into_string().unwrap())
        };
        let (own, general) = (("DEBUGFS_PAGER", "own -x"), ("PAGER", "general"));
        assert_eq!(chosen(&[own, general], &["less"]).as_deref(), Some("own -x"));
        assert_eq!(chosen(&[general], &["less"]).as_deref(), Some("general"));
        assert_eq!(chosen(&[("DEBUGFS_PAGER", "__none__"), general], &["less"]), None);
        assert_eq!(chosen(&[("PAGER", "__none__")], &["less"]), None);
        assert_eq!(chosen(&[("PAGER", "")], &["less"]), None);
        assert_eq!(chosen(&[], &["more", "less"]).as_deref(), Some("less"));
        assert_eq!(chosen(&[], &["more"]).as_deref(), Some("more"));
        assert_eq!(chosen(&[], &[]), None);
    }
}
