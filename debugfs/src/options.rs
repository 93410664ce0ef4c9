//! The command line, as typed values.
//!
//! Letters and meaning are those of debugfs. What is new has a long option.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

/// Look into an ext2, ext3 or ext4 filesystem.
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "debugfs", disable_version_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of debugfs")]
pub struct Options {
    /// Block size in bytes, for -s
    #[arg(short = 'b', value_name = "SIZE")]
    pub block_size: Option<String>,
    /// Block that holds the copy of the superblock to use; needs -b
    #[arg(short = 's', value_name = "BLOCK")]
    pub superblock: Option<String>,
    /// Run the commands of a file
    #[arg(short = 'f', value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Run one command
    #[arg(short = 'R', value_name = "COMMAND")]
    pub request: Option<OsString>,
    /// Open for writing
    #[arg(short = 'w')]
    pub write: bool,
    /// Do not read bitmaps, for filesystems that are badly damaged
    #[arg(short = 'c')]
    pub catastrophic: bool,
    /// Do not verify checksums
    #[arg(short = 'n')]
    pub no_checksums: bool,
    /// The file is an image made by e2image
    #[arg(short = 'i')]
    pub image_file: bool,
    /// Device that holds the data of an e2image file
    #[arg(short = 'd', value_name = "DEVICE")]
    pub data_source: Option<PathBuf>,
    /// Write an undo file before each change
    #[arg(short = 'z', value_name = "FILE")]
    pub undo: Option<PathBuf>,
    /// Read past the cache of the machine
    #[arg(short = 'D')]
    pub direct: bool,
    /// Print the version and leave
    #[arg(short = 'V', long = "version")]
    pub version: bool,
    /// Answer as JSON, one line for each command
    #[arg(long)]
    pub json: bool,
    /// A command that fails makes the run fail
    #[arg(long)]
    pub strict: bool,
    /// The file or device
    #[arg(value_name = "DEVICE")]
    pub device: Option<OsString>,
}
