//! `ext4kit-fsck`: check an ext2, ext3 or ext4 filesystem.

use std::process::ExitCode;

fn main() -> ExitCode {
    ext4kit_fsck::run(std::env::args_os())
}
