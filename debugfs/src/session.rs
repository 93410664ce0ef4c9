//! The open filesystem, and where in it the user stands.

use std::ffi::OsStr;

use ext4kit_cli::device;
use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_cli::size::parse_number;
use ext4kit_cli::time;
use ext4kit_format::image::{Image, OpenOptions, SuperblockChoice};
use ext4kit_format::store::Access;
use ext4kit_format::txn::{Overlay, OverlayOptions};
use ext4kit_format::{BlockNumber, InodeNumber};
use jiff::tz::TimeZone;

use crate::options::Options;

/// What commands work on.
pub struct Session {
    /// The filesystem; `None` where none was named or it could not be opened.
    pub open: Option<Open>,
    /// In which times are shown.
    pub zone: TimeZone,
    /// Set by `quit`.
    pub done: bool,
}

/// An open filesystem.
pub struct Open {
    /// As it was named.
    pub name: String,
    /// The filesystem.
    pub image: Image,
    /// Through which it is read.
    pub txn: Overlay,
    /// Where absolute paths begin.
    pub root: InodeNumber,
    /// Where relative paths begin.
    pub current: InodeNumber,
    /// Whether bitmaps may be read.
    pub bitmaps: bool,
}

impl Session {
    /// A session without a filesystem.
    pub fn new() -> Self {
        Self { open: None, zone: time::local_zone(), done: false }
    }

    /// The filesystem, or that there is none.
    pub fn open(&self, command: &str) -> Result<&Open, Failure> {
        self.open.as_ref().ok_or_else(|| not_open(command))
    }

    /// The filesystem for changing where the user stands.
    pub fn open_mut(&mut self, command: &str) -> Result<&mut Open, Failure> {
        self.open.as_mut().ok_or_else(|| not_open(command))
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

fn not_open(command: &str) -> Failure {
    Failure::new(FailureKind::Invalid, command, "Filesystem not open")
}

/// Refuses the options that need what is not built.
pub fn refuse_unbuilt(options: &Options) -> Result<(), Failure> {
    let refused = [
        (options.write, "-w", "writing is not built yet; the filesystem can be looked at without it"),
        (options.undo.is_some(), "-z", "writing, and with it undo files, is not built yet"),
        (options.image_file, "-i", "images made by e2image are not read yet"),
        (options.data_source.is_some(), "-d", "images made by e2image are not read yet"),
    ];
    match refused.into_iter().find(|(given, ..)| *given) {
        Some((_, option, why)) => {
            Err(Failure { kind: FailureKind::Unsupported, ..Failure::usage(option, why) })
        }
        None => Ok(()),
    }
}

/// Opens the filesystem that the options name.
///
/// The device is never locked against others and never written: to look at what is in use is what debugfs is for.
pub fn open(typed: &OsStr, options: &Options) -> Result<Open, Failure> {
    let superblock = superblock_choice(options)?;
    let device = device::open(typed, Access::ReadOnly, true)?;
    let verify = !options.no_checksums;
    let choice = OpenOptions { superblock, verify, allow_short: options.catastrophic };
    let image = Image::open_with(device.store, choice)
        .map_err(|error| Failure::from_error(&device.name.typed, &error))?;
    Ok(Open::new(device.name.typed, image, verify, !options.catastrophic))
}

fn superblock_choice(options: &Options) -> Result<SuperblockChoice, Failure> {
    let read = |option: &str, value: &Option<String>| match value {
        None => Ok(None),
        Some(value) => {
            parse_number(value).map(Some).map_err(|error| Failure::usage(option, error.to_string()))
        }
    };
    let (block, size) = (read("-s", &options.superblock)?, read("-b", &options.block_size)?);
    let Some(block) = block else { return Ok(SuperblockChoice::Primary) };
    let Some(size) = size else {
        return Err(Failure::usage("-s", "the block size has to be given with -b"));
    };
    let block_size = u32::try_from(size).ok().filter(|size| size.is_power_of_two() && *size >= 1024);
    let Some(block_size) = block_size.filter(|size| *size <= 65536) else {
        return Err(Failure::usage("-b", format!("{size} is no block size")));
    };
    Ok(SuperblockChoice::Copy { block: BlockNumber(block), block_size })
}

impl Open {
    /// An open filesystem, with the user at its root.
    pub fn new(name: String, image: Image, verify: bool, bitmaps: bool) -> Self {
        let txn = image.overlay(OverlayOptions { verify, ..OverlayOptions::default() });
        Self { name, image, txn, root: InodeNumber::ROOT, current: InodeNumber::ROOT, bitmaps }
    }
}
