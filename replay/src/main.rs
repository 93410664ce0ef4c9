//! `ext4kit-replay`: list and replay the journal of a filesystem.

use std::process::ExitCode;

fn main() -> ExitCode {
    ext4kit_replay::run(std::env::args_os())
}
