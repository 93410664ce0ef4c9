//! Directories: `ls` and `dirsearch`.

use std::io::{self, Write};

use ext4kit_format::disk::inode::{FileKind, Inode};
use ext4kit_format::tree::inode;
use ext4kit_format::{Error, InodeNumber};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::listing::{self, Listed};
use crate::session::Open;
use crate::table::Call;

/// Columns of a short list.
const WIDTH: usize = 80;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Short,
    Long,
    Parsable,
}

#[derive(Serialize)]
struct Row {
    inode: u32,
    name: Bytes,
    record_length: usize,
    file_type: u8,
    removed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<u32>,
}

#[derive(Serialize)]
struct Details {
    kind: &'static str,
    mode: u16,
    user: u32,
    group: u32,
    size: u64,
    modified: i64,
    #[serde(skip)]
    directory: bool,
    #[serde(skip)]
    date: String,
}

#[derive(Serialize)]
struct Listing {
    entries: Vec<Row>,
    #[serde(skip)]
    form: Form,
}

impl Report for Listing {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut column = 0;
        for row in &self.entries {
            match self.form {
                Form::Short => row.short(to, &mut column)?,
                Form::Long => row.long(to)?,
                Form::Parsable => row.parsable(to)?,
            }
        }
        writeln!(to)
    }
}

impl Row {
    /// The inode's number in a form with details, where debugfs has none for a removed entry: its inode may be
    /// another file's by now.
    fn number(&self) -> u32 {
        if self.removed { 0 } else { self.inode }
    }

    fn brackets(&self) -> (char, char) {
        if self.removed { ('<', '>') } else { (' ', ' ') }
    }

    fn short(&self, to: &mut dyn Write, column: &mut usize) -> io::Result<()> {
        let (left, right) = self.brackets();
        let mut text = format!("{left}{}{right} ({}) ", self.inode, self.record_length).into_bytes();
        if let Some(checksum) = self.checksum {
            text = format!("{left}{}{right} (dirblock checksum: 0x{checksum:08x})", self.inode).into_bytes();
        }
        text.extend_from_slice(&self.name.0);
        text.extend_from_slice(b"   ");
        if *column + text.len() > WIDTH {
            writeln!(to)?;
            *column = 0;
        }
        *column += text.len();
        to.write_all(&text)
    }

    fn long(&self, to: &mut dyn Write) -> io::Result<()> {
        let (left, right) = self.brackets();
        if let Some(checksum) = self.checksum {
            return writeln!(to, "{left}{:6}{right} (dirblock checksum: 0x{checksum:08x})", self.inode);
        }
        let empty = Details {
            kind: "",
            mode: 0,
            user: 0,
            group: 0,
            size: 0,
            modified: 0,
            directory: false,
            date: String::new(),
        };
        let details = self.details.as_ref().unwrap_or(&empty);
        write!(
            to,
            "{left}{:6}{right} {:6o} ({})  {:5}  {:5}   {:5} {:17} ",
            self.number(),
            details.mode,
            self.file_type,
            details.user.cast_signed(),
            details.group.cast_signed(),
            details.size,
            details.date
        )?;
        to.write_all(&self.name.0)?;
        writeln!(to)
    }

    fn parsable(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.checksum.is_some() {
            return Ok(());
        }
        let (mode, user, group) =
            self.details.as_ref().map_or((0, 0, 0), |found| (found.mode, found.user, found.group));
        write!(to, "/{}/{mode:06o}/{}/{}/", self.number(), user.cast_signed(), group.cast_signed())?;
        to.write_all(&self.name.0)?;
        match &self.details {
            Some(details) if details.directory => writeln!(to, "//"),
            details => writeln!(to, "/{}/", details.as_ref().map_or(0, |details| details.size)),
        }
    }
}

/// `ls`.
pub fn ls(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("cdlpr", 0, 1)?;
    let directory = call.directory(flags.rest.first().map_or(&b"."[..], Vec::as_slice))?;
    let open = call.open()?;
    let form = match (flags.has('l'), flags.has('p')) {
        (_, true) => Form::Parsable,
        (true, false) => Form::Long,
        (false, false) => Form::Short,
    };
    let found =
        listing::entries(&open.txn, &directory, flags.has('d')).map_err(|error| call.failed(&error))?;
    let mut errors = found.errors;
    let with_details = form != Form::Short || call.json;
    let wanted = found.entries.iter().filter(|entry| entry.checksum.is_none() || flags.has('c'));
    let entries: Vec<Row> =
        wanted.map(|entry| row(open, entry, with_details, &call.session.zone, &mut errors)).collect();
    Ok(Answer::of(Listing { entries, form }).with(errors.iter().map(|error| call.failed(error))))
}

fn row(open: &Open, entry: &Listed, details: bool, zone: &TimeZone, errors: &mut Vec<Error>) -> Row {
    let read = |number: InodeNumber| inode::read(&open.txn, number);
    let inode = entry
        .inode
        .filter(|_| details && !entry.removed)
        .and_then(|number| read(number).map_err(|e| errors.push(e)).ok());
    Row {
        inode: entry.inode.map_or(0, InodeNumber::get),
        name: Bytes(entry.name.clone()),
        record_length: entry.rec_len,
        file_type: entry.file_type,
        removed: entry.removed,
        details: inode.map(|inode| details_of(&inode, zone)),
        checksum: entry.checksum,
    }
}

fn details_of(inode: &Inode, zone: &TimeZone) -> Details {
    let view = inode.view();
    let modified = view.modification_time().seconds;
    let date = Timestamp::from_second(modified).map_or_else(
        |_| format!("@{modified}"),
        |time| time.to_zoned_datetime(zone.clone()).strftime("%e-%b-%Y %H:%M").to_string(),
    );
    let directory = view.kind() == Some(FileKind::Directory);
    Details {
        kind: super::files::kind_text(view.kind()),
        mode: view.mode(),
        user: view.uid(),
        group: view.gid(),
        size: view.size(),
        modified,
        directory,
        date,
    }
}

#[derive(Serialize)]
struct Where {
    logical: u64,
    block: u64,
    offset: usize,
}

#[derive(Serialize)]
struct Found {
    found: Option<Where>,
}

impl Report for Found {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Some(found) = &self.found else { return Ok(()) };
        let Where { logical, block, offset } = found;
        writeln!(to, "Entry found at logical block {logical}, phys {block}, offset {offset}")?;
        writeln!(to, "offset {offset}")
    }
}

/// `dirsearch`.
pub fn dirsearch(call: &mut Call<'_>) -> Outcome {
    let words = call.words(2, 2)?;
    let directory = call.directory(&words[0])?;
    let found =
        listing::entries(&call.open()?.txn, &directory, false).map_err(|error| call.failed(&error))?;
    let entry = found.entries.iter().find(|entry| entry.inode.is_some() && entry.name == words[1]);
    let place = entry.map(|entry| Where { logical: entry.logical, block: entry.block, offset: entry.offset });
    Ok(Answer::of(Found { found: place }).with(found.errors.iter().map(|error| call.failed(error))))
}
