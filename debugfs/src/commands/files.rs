//! `stat`: an inode with everything that hangs from it.

use std::io::{self, Write};

use ext4kit_cli::time::classic_text;
use ext4kit_format::bytes::le32;
use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::disk::inode::{FileKind, HEAD_SIZE, Inode, InodeFlags, Timestamp, short_symlink_target};
use ext4kit_format::tree::inode;
use ext4kit_format::txn::Transaction;
use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};

use super::xattrs::ShownAttribute;
use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::session::Open;
use crate::table::Call;
use crate::walk::{self, Piece};
use crate::{attributes, paths};

/// A time, as stored and as meant.
struct Time {
    stored: u32,
    extra: Option<u32>,
    meant: Timestamp,
    text: String,
}

impl Time {
    fn new(stored: u32, extra: Option<u32>, zone: &TimeZone) -> Self {
        let meant = Timestamp::decode(stored, extra);
        Self { stored, extra, meant, text: classic_text(meant.seconds, zone) }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Plain<'a> {
            seconds: i64,
            nanoseconds: u32,
            text: &'a str,
        }
        let Timestamp { seconds, nanoseconds } = self.meant;
        Plain { seconds, nanoseconds, text: &self.text }.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum Hanging {
    FastLink {
        target: Bytes,
    },
    Device {
        major: u32,
        minor: u32,
        new_style: bool,
    },
    Inline {
        size: usize,
    },
    Map {
        extents: bool,
        pieces: Vec<Piece>,
    },
    /// What a copy of the inode in the journal tells by itself.
    Copy {
        extents: bool,
        pieces: Vec<Piece>,
        link: Option<Bytes>,
        device: Option<(u32, u32)>,
    },
}

#[derive(Serialize)]
pub(super) struct Stat {
    pub inode: u32,
    file_type: &'static str,
    mode: u16,
    flags: u32,
    generation: u32,
    version: u64,
    user: u32,
    group: u32,
    project: Option<u32>,
    size: u64,
    attribute_block: u64,
    links: u16,
    sectors: u64,
    fragment_address: u32,
    ctime: Time,
    atime: Time,
    mtime: Time,
    crtime: Option<Time>,
    dtime: Option<Time>,
    extra_size: Option<u16>,
    attributes: Vec<ShownAttribute>,
    checksum: Option<u32>,
    contents: Hanging,
    #[serde(skip)]
    short: bool,
    /// What most lines begin with.
    #[serde(skip)]
    prefix: &'static str,
}

/// The word for a kind of file.
pub fn kind_text(kind: Option<FileKind>) -> &'static str {
    match kind {
        Some(FileKind::Regular) => "regular",
        Some(FileKind::Directory) => "directory",
        Some(FileKind::CharacterDevice) => "character special",
        Some(FileKind::BlockDevice) => "block special",
        Some(FileKind::Symlink) => "symlink",
        Some(FileKind::Fifo) => "FIFO",
        Some(FileKind::Socket) => "socket",
        None => "bad type",
    }
}

impl Report for Stat {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let prefix = self.prefix;
        writeln!(
            to,
            "{prefix}Inode: {}   Type: {}    {prefix}Mode:  {:04o}   Flags: {:#x}",
            self.inode,
            self.file_type,
            self.mode & 0o7777,
            self.flags
        )?;
        let (high, low) = (self.version >> 32, self.version & 0xffff_ffff);
        if self.short {
            writeln!(to, "{prefix}Generation: {}    Version: 0x{low:08x}", self.generation)?;
        } else {
            writeln!(to, "{prefix}Generation: {}    Version: 0x{high:08x}:{low:08x}", self.generation)?;
        }
        // debugfs prints owners as signed numbers.
        write!(to, "{prefix}User: {:5}   Group: {:5}", self.user.cast_signed(), self.group.cast_signed())?;
        if let Some(project) = self.project {
            write!(to, "   Project: {:5}", project.cast_signed())?;
        }
        writeln!(to, "   Size: {}", self.size)?;
        writeln!(to, "{prefix}File ACL: {}", self.attribute_block)?;
        writeln!(to, "{prefix}Links: {}   Blockcount: {}", self.links, self.sectors)?;
        writeln!(to, "{prefix}Fragment:  Address: {}    Number: 0    Size: 0", self.fragment_address)?;
        self.times(to)?;
        if let Some(size) = self.extra_size {
            writeln!(to, "Size of extra inode fields: {size}")?;
        }
        if !self.attributes.is_empty() {
            writeln!(to, "Extended attributes:")?;
            self.attributes.iter().try_for_each(|attribute| attribute.line(to))?;
        }
        if let Some(checksum) = self.checksum {
            writeln!(to, "Inode checksum: 0x{checksum:08x}")?;
        }
        self.contents(to)
    }
}

impl Stat {
    fn times(&self, to: &mut dyn Write) -> io::Result<()> {
        let prefix = self.prefix;
        let mut line = |name: &str, time: &Time| match (self.short, time.extra) {
            (true, _) => writeln!(to, "{prefix}{name}: 0x{:08x} -- {}", time.stored, time.text),
            (false, extra) => {
                let extra = extra.unwrap_or(0);
                writeln!(to, "{prefix}{name:>6}: 0x{:08x}:{extra:08x} -- {}", time.stored, time.text)
            }
        };
        line("ctime", &self.ctime)?;
        line("atime", &self.atime)?;
        line("mtime", &self.mtime)?;
        if let Some(time) = &self.crtime {
            line("crtime", time)?;
        }
        match &self.dtime {
            Some(time) if self.short => line("dtime", time),
            // The extra word that debugfs shows here is the one of the change time, by which it reads the epoch.
            Some(time) => {
                let extra = time.extra.unwrap_or(0);
                writeln!(to, "{prefix} dtime: 0x{:08x}:({extra:08x}) -- {}", time.stored, time.text)
            }
            None => Ok(()),
        }
    }

    fn contents(&self, to: &mut dyn Write) -> io::Result<()> {
        match &self.contents {
            Hanging::FastLink { target } => link_text(to, target),
            Hanging::Device { major, minor, new_style } => {
                let style = if *new_style { "(New-style) " } else { "" };
                writeln!(
                    to,
                    "{style}Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})"
                )
            }
            Hanging::Copy { extents, pieces, link, device } => {
                if let Some(target) = link {
                    write!(to, "{}", self.prefix)?;
                    link_text(to, target)?;
                }
                if let Some((major, minor)) = device {
                    writeln!(
                        to,
                        "Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})"
                    )?;
                }
                let texts: String = pieces.iter().map(copied_piece_text).collect();
                writeln!(to, "{}{}:  {texts}", self.prefix, if *extents { "Extents" } else { "Blocks" })
            }
            Hanging::Inline { size } => writeln!(to, "Size of inline data: {size}"),
            Hanging::Map { extents, pieces } => {
                writeln!(to, "{}", if *extents { "EXTENTS:" } else { "BLOCKS:" })?;
                let texts: Vec<String> = pieces.iter().map(piece_text).collect();
                write!(to, "{}", texts.join(", "))?;
                if *extents {
                    return if texts.is_empty() { Ok(()) } else { writeln!(to) };
                }
                let total: u64 = pieces
                    .iter()
                    .map(|piece| match piece {
                        Piece::Data { length, .. } => *length,
                        _ => 1,
                    })
                    .sum();
                if total > 0 {
                    writeln!(to, "\nTOTAL: {total}")?;
                }
                writeln!(to)
            }
        }
    }
}

fn link_text(to: &mut dyn Write, target: &Bytes) -> io::Result<()> {
    write!(to, "Fast link dest: \"")?;
    to.write_all(&target.0)?;
    writeln!(to, "\"")
}

fn copied_piece_text(piece: &Piece) -> String {
    match *piece {
        Piece::Data { logical, block, length, .. } => format!("({logical}+{length}): {block} "),
        other => piece_text(&other).replace("):", "): ") + " ",
    }
}

fn piece_text(piece: &Piece) -> String {
    match *piece {
        Piece::ExtentNode { level, block } => format!("(ETB{level}):{block}"),
        Piece::Pointers { levels, block } => {
            let name = ["IND", "DIND", "TIND"].get(usize::from(levels.wrapping_sub(1))).unwrap_or(&"IND");
            format!("({name}):{block}")
        }
        Piece::Data { logical, block, length, unwritten } => {
            let mark = if unwritten { "[u]" } else { "" };
            if length == 1 {
                return format!("({logical}{mark}):{block}");
            }
            let (last, end) =
                (logical.wrapping_add(length).wrapping_sub(1), block.wrapping_add(length).wrapping_sub(1));
            format!("({logical}-{last}{mark}):{block}-{end}")
        }
    }
}

/// `stat`.
pub fn stat(call: &mut Call<'_>) -> Outcome {
    let inode = call.inode(&call.words(1, 1)?[0])?;
    let open = call.open()?;
    let (stat, errors) = describe(open, &inode, &call.session.zone);
    let problems: Vec<_> = errors.iter().map(|error| call.failed(error)).collect();
    Ok(Answer::of(stat).with(problems))
}

/// An inode and what hangs from it, as far as it can be read.
pub(super) fn describe(open: &Open, inode: &Inode, zone: &TimeZone) -> (Stat, Vec<ext4kit_format::Error>) {
    let (listed, mut errors) = attributes::list(&open.txn, inode);
    let contents = contents(open, inode, &mut errors);
    let attributes = listed.iter().map(ShownAttribute::of).collect();
    (Stat { attributes, ..fields(open, inode, (zone, contents)) }, errors)
}

/// A copy of an inode from the journal: what it says itself, for what it leads to may be of another time.
pub(super) fn describe_copy(open: &Open, inode: &Inode, zone: &TimeZone) -> Stat {
    let view = inode.view();
    let extents = view.flags().contains(InodeFlags::EXTENTS);
    let pieces = if extents { walk::root_pieces(inode) } else { walk::pointer_pieces(inode) };
    let is_device = matches!(view.kind(), Some(FileKind::CharacterDevice | FileKind::BlockDevice));
    let link =
        paths::is_fast_link(open, inode).then(|| short_symlink_target(view).unwrap_or_default().into());
    let contents = Hanging::Copy { extents, pieces, link, device: is_device.then(|| view.device()) };
    Stat { prefix: "    ", ..fields(open, inode, (zone, contents)) }
}

fn fields(open: &Open, inode: &Inode, (zone, contents): (&TimeZone, Hanging)) -> Stat {
    let view = inode.view();
    let head = view.head();
    let extra_size = view.extra_size();
    let reaches = |end: u16| extra_size.is_some_and(|size| size >= end);
    let extra = |at: usize, end: u16| reaches(end).then(|| le32(view.bytes(), HEAD_SIZE + at)).flatten();
    let short = !reaches(24);
    let crtime = extra(16, 20).map(|stored| Time::new(stored, extra(20, 24), zone));
    let ctime_extra = extra(4, 8);
    let dtime = view.deletion_time();
    let has_checksum = open.txn.layout().features().ro_compat.contains(RoCompat::METADATA_CSUM);
    Stat {
        inode: inode.number().get(),
        file_type: kind_text(view.kind()),
        mode: view.mode(),
        flags: view.flags().bits(),
        generation: view.generation(),
        version: view.version(),
        user: view.uid(),
        group: view.gid(),
        project: reaches(32).then(|| view.project()),
        size: view.size(),
        attribute_block: view.attribute_block().0,
        links: view.links(),
        sectors: inode::sectors(&open.txn, view),
        fragment_address: head.i_faddr.get(),
        ctime: Time::new(head.i_ctime.get(), ctime_extra, zone),
        atime: Time::new(head.i_atime.get(), extra(12, 16), zone),
        mtime: Time::new(head.i_mtime.get(), extra(8, 12), zone),
        crtime: crtime.filter(|_| !short),
        dtime: (dtime != 0).then(|| Time::new(dtime, ctime_extra.map(|extra| extra & 3), zone)),
        extra_size,
        attributes: Vec::new(),
        checksum: has_checksum.then(|| view.stored_checksum()),
        contents,
        short,
        prefix: "",
    }
}

fn contents(open: &Open, inode: &Inode, errors: &mut Vec<ext4kit_format::Error>) -> Hanging {
    let view = inode.view();
    if paths::is_fast_link(open, inode) {
        return Hanging::FastLink { target: short_symlink_target(view).unwrap_or_default().into() };
    }
    if matches!(view.kind(), Some(FileKind::CharacterDevice | FileKind::BlockDevice)) {
        let (major, minor) = view.device();
        let new_style = le32(view.map(), 0) == Some(0);
        return Hanging::Device { major, minor, new_style };
    }
    if view.flags().contains(InodeFlags::INLINE_DATA) && !view.flags().contains(InodeFlags::EXTENTS) {
        return Hanging::Inline { size: inline_room(open, inode) };
    }
    let walked = walk::pieces(&open.txn, inode);
    errors.extend(walked.errors);
    Hanging::Map { extents: view.flags().contains(InodeFlags::EXTENTS), pieces: walked.pieces }
}

/// Room that contents inside the inode take: `i_block`, and the value of `system.data`.
fn inline_room(open: &Open, inode: &Inode) -> usize {
    let (listed, _) = attributes::list(&open.txn, inode);
    let more = listed.iter().find(|attribute| attribute.name == b"system.data").map_or(0, |found| found.size);
    inode.view().map().len() + more as usize
}
