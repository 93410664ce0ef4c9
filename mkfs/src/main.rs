//! `ext4kit-mkfs`: make an ext2, ext3 or ext4 filesystem.

use std::process::ExitCode;

fn main() -> ExitCode {
    ext4kit_mkfs::run(std::env::args_os())
}
