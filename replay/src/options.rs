//! The command line, as typed values.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

/// Replay the journal of an ext3 or ext4 filesystem, or look into it.
///
/// Exit codes: 0 nothing to do, 1 recovered, 4 the journal was damaged and the image is recovered to its last good
/// transaction, 8 it could not be done.
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "replay", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct Options {
    /// The journal, if it lies on another device or in another file
    #[arg(short = 'j', long = "journal", value_name = "DEVICE")]
    pub journal: Option<OsString>,
    /// List what the journal holds, and change nothing
    #[arg(short, long)]
    pub list: bool,
    /// With --list: every block and what it is
    #[arg(short, long)]
    pub verbose: bool,
    /// Say what a replay would do, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Stop after this transaction. What follows it is lost
    #[arg(long, value_name = "SEQUENCE", conflicts_with = "list")]
    pub until: Option<u32>,
    /// Write the recovered image to a new file, and leave the input alone
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "dry_run", "journal"])]
    pub to: Option<PathBuf>,
    /// Replay although the device seems to be in use
    #[arg(long)]
    pub force: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
    /// The file or device
    #[arg(value_name = "DEVICE")]
    pub device: OsString,
}
