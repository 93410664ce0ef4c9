//! `ext4kit-debugfs`: look into an ext2, ext3 or ext4 filesystem.

use std::process::ExitCode;

fn main() -> ExitCode {
    ext4kit_debugfs::run(std::env::args_os())
}
