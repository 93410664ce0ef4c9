//! The command line, as typed values.
//!
//! Letters and meaning are those of e2fsck. What is new has a long option.

use std::ffi::OsString;

use clap::Parser;

/// Check an ext2, ext3 or ext4 filesystem.
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "fsck", disable_version_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of e2fsck")]
pub struct Options {
    /// Repair what is safe without asking
    #[arg(short = 'p', short_alias = 'a')]
    pub preen: bool,
    /// Answer no to every question: check only
    #[arg(short = 'n')]
    pub no: bool,
    /// Answer yes to every question
    #[arg(short = 'y')]
    pub yes: bool,
    /// Block with a copy of the superblock to use
    #[arg(short = 'b', value_name = "BLOCK")]
    pub superblock: Option<String>,
    /// Size of a block in bytes, with -b
    #[arg(short = 'B', value_name = "SIZE")]
    pub block_size: Option<String>,
    /// Look for bad blocks
    #[arg(short = 'c', action = clap::ArgAction::Count)]
    pub bad_blocks: u8,
    /// Show progress: a descriptor for lines, 0 for a bar
    #[arg(short = 'C', value_name = "FD", allow_hyphen_values = true)]
    pub completion: Option<String>,
    /// Ignored, for callers that still give it: there is no debugging output
    #[arg(short = 'd')]
    pub debug: bool,
    /// Rebuild directories
    #[arg(short = 'D')]
    pub rebuild_directories: bool,
    /// Extended options, separated by commas
    #[arg(short = 'E', value_name = "OPTIONS")]
    pub extended: Vec<String>,
    /// Check even where the filesystem says that it is clean
    #[arg(short = 'f')]
    pub force: bool,
    /// Drop what the system has cached of the device first
    #[arg(short = 'F')]
    pub flush: bool,
    /// An external journal
    #[arg(short = 'j', value_name = "DEVICE")]
    pub journal: Option<OsString>,
    /// Keep the list of bad blocks; without -c nothing else happens to it
    #[arg(short = 'k')]
    pub keep_bad_blocks: bool,
    /// Add blocks to the list of bad blocks
    #[arg(short = 'l', value_name = "FILE")]
    pub add_bad_blocks: Option<OsString>,
    /// Replace the list of bad blocks
    #[arg(short = 'L', value_name = "FILE")]
    pub set_bad_blocks: Option<OsString>,
    /// Ignored, for callers that still give it
    #[arg(short = 'r')]
    pub interactive: bool,
    /// Say how long it took
    #[arg(short = 't', action = clap::ArgAction::Count)]
    pub timing: u8,
    /// Say more
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Print the version and leave
    #[arg(short = 'V', long = "version")]
    pub version: bool,
    /// Write an undo file
    #[arg(short = 'z', value_name = "FILE")]
    pub undo: Option<OsString>,
    /// How many threads to use; all that the machine has where not given
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// What to repair: safe, no-data-loss or all
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Write what would be done to a file, and nothing to the device
    #[arg(long, value_name = "FILE")]
    pub plan: Option<OsString>,
    /// Do what a plan says, or refuse if the device has changed
    #[arg(long, value_name = "FILE")]
    pub apply: Option<OsString>,
    /// Also tell what every implementation tolerates but a healthy filesystem should not have; exit code 64 if there is any
    #[arg(long)]
    pub lint: bool,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
    /// The file or device
    #[arg(value_name = "DEVICE", required_unless_present = "version")]
    pub device: Option<OsString>,
}
