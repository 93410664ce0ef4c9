//! `ext4kit`: all tools in one program.
//!
//! The tool is chosen by the first word (`ext4kit mkfs …`) or by the name under which the program is called
//! (`mkfs.ext4`, `fsck.ext4`, `debugfs` …), so that one file serves a rescue system.

mod tour;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use ext4kit_cli::argv0::Tool;

const USAGE: &str = "\
usage: ext4kit TOOL [ARGUMENTS]

  mkfs     make an ext2, ext3 or ext4 filesystem, empty or from a directory
  fsck     check a filesystem
  debugfs  look inside a filesystem
  replay   replay a journal, or list what it holds
  tour     see all of them at work on a small image

Each tool answers to --help, and to its classic names: mke2fs, mkfs.ext2, mkfs.ext3, mkfs.ext4, e2fsck, fsck.ext2,
fsck.ext3, fsck.ext4, debugfs. Link this program under such a name to use it so.
";

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().and_then(|name| Tool::from_program(name));
    if let Some(tool) = called {
        return run(tool, arguments);
    }
    let word = arguments.get(1).map(|word| word.to_string_lossy().into_owned());
    match word.as_deref() {
        Some("tour") => tour::run(),
        Some("--version" | "-V") => {
            say(&format!("ext4kit {}\n", env!("CARGO_PKG_VERSION")), ExitCode::SUCCESS)
        }
        Some("--help" | "-h" | "help") => say(USAGE, ExitCode::SUCCESS),
        None => complain(USAGE),
        Some(word) => match Tool::from_command(word) {
            Some(tool) => {
                arguments.remove(0);
                run(tool, arguments)
            }
            None => complain(&format!("ext4kit: `{word}` is no tool; `ext4kit --help` lists them\n")),
        },
    }
}

/// Runs a tool; the first argument is its name.
fn run(tool: Tool, arguments: Vec<OsString>) -> ExitCode {
    match tool {
        Tool::Mkfs(_) => ext4kit_mkfs::run(arguments),
        Tool::Fsck => ext4kit_fsck::run(arguments),
        Tool::Debugfs => ext4kit_debugfs::run(arguments),
        Tool::Replay => ext4kit_replay::run(arguments),
        Tool::Dumpe2fs | Tool::Tune2fs | Tool::E2label => {
            complain("ext4kit: dumpe2fs, tune2fs and e2label are not built yet\n")
        }
    }
}

// Where a message cannot be written, the exit code still tells.
fn say(text: &str, code: ExitCode) -> ExitCode {
    let _ = io::stdout().write_all(text.as_bytes());
    code
}

fn complain(text: &str) -> ExitCode {
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(2)
}
