//! The command line, as typed values.
//!
//! Letters and meaning are those of mke2fs. What is new has a long option.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

/// Make an ext2, ext3 or ext4 filesystem in a file or on a device.
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "mkfs", disable_version_flag = true, args_override_self = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of mke2fs")]
pub struct Options {
    /// Block size in bytes: 1024 to 65536, a power of two
    #[arg(short = 'b', value_name = "SIZE", allow_hyphen_values = true)]
    pub block_size: Option<String>,
    /// Cluster size in bytes, with the feature bigalloc
    #[arg(short = 'C', value_name = "SIZE")]
    pub cluster_size: Option<String>,
    /// Fill the filesystem from a directory
    #[arg(short = 'd', value_name = "DIRECTORY")]
    pub source: Option<PathBuf>,
    /// What the kernel does when it meets an error: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    pub errors: Option<String>,
    /// Extended options, separated by commas; may be repeated
    #[arg(short = 'E', value_name = "OPTIONS")]
    pub extended: Vec<String>,
    /// Do not ask; twice: also where the target is in use
    #[arg(short = 'F', action = clap::ArgAction::Count)]
    pub force: u8,
    /// Blocks in a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    pub blocks_per_group: Option<String>,
    /// Groups whose bitmaps and tables lie together: a power of two
    #[arg(short = 'G', value_name = "GROUPS")]
    pub flex_groups: Option<String>,
    /// Bytes of the filesystem for each inode
    #[arg(short = 'i', value_name = "BYTES")]
    pub inode_ratio: Option<String>,
    /// Inode size in bytes: 128 to the block size, a power of two
    #[arg(short = 'I', value_name = "SIZE")]
    pub inode_size: Option<String>,
    /// Have a journal (ext3)
    #[arg(short = 'j')]
    pub journal: bool,
    /// Journal options: size=MEGABYTES, `fast_commit_size=KILOBYTES`
    #[arg(short = 'J', value_name = "OPTIONS")]
    pub journal_options: Vec<String>,
    /// Volume label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    pub label: Option<OsString>,
    /// Share of the blocks kept for the super-user, in percent, 0 to 50
    #[arg(short = 'm', value_name = "PERCENT")]
    pub reserved_percent: Option<String>,
    /// Directory that the filesystem says it was last mounted on
    #[arg(short = 'M', value_name = "DIRECTORY")]
    pub last_mounted: Option<OsString>,
    /// Say what would be made, and write nothing
    #[arg(short = 'n', long = "dry-run")]
    pub dry_run: bool,
    /// Number of inodes
    #[arg(short = 'N', value_name = "COUNT")]
    pub inode_count: Option<String>,
    /// Creator operating system: linux, GNU/hurd, freebsd, lites or a number
    #[arg(short = 'o', value_name = "SYSTEM")]
    pub creator_os: Option<String>,
    /// Features, separated by commas; `^feature` leaves one out, `none` all of them; may be repeated
    #[arg(short = 'O', value_name = "FEATURES")]
    pub features: Vec<String>,
    /// Say nothing
    #[arg(short = 'q', long = "quiet")]
    pub quiet: bool,
    /// Revision of the format: 0 or 1
    #[arg(short = 'r', value_name = "REVISION")]
    pub revision: Option<String>,
    /// Kind of filesystem: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE")]
    pub kind: Option<String>,
    /// What it is for: floppy, small, default, big, huge, news, largefile, largefile4; several with commas
    #[arg(short = 'T', value_name = "USAGE")]
    pub usage: Option<String>,
    /// UUID, or clear, random or time
    #[arg(short = 'U', value_name = "UUID")]
    pub uuid: Option<String>,
    /// Say more
    #[arg(short = 'v', long = "verbose")]
    pub verbose: bool,
    /// Print the version and leave
    #[arg(short = 'V', long = "version")]
    pub version: bool,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
    /// The file or device
    #[arg(value_name = "DEVICE", required_unless_present = "version")]
    pub device: Option<OsString>,
    /// Size: in KiB, or in blocks after -b, or with a suffix k, m, g, t or s (sectors)
    #[arg(value_name = "SIZE")]
    pub size: Option<String>,
}
