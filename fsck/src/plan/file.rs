//! The file that holds a plan; `docs/plan.md` describes it for others.
//!
//! The first line is JSON and says what would be done in words. What follows it is binary, little-endian: for each change
//! the block before and after, then the checksum (CRC-32C) of each block that was read, then the checksum of the whole
//! file up to there. A file that is not exactly as long as its header calls for is refused before anything is allocated by
//! its numbers.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use ext4kit_format::disk::crc::crc32c;
use ext4kit_format::error::{Error, Place, Result};
use ext4kit_format::num::{index, wide};
use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::report::FindingObject;

/// What the header calls the format.
const FORMAT: &str = "ext4kit-plan";
/// The only version so far.
const VERSION: u32 = 1;
/// A header is at most so long, in bytes.
const MOST_HEADER: u64 = 1 << 30;

/// What would be done to an image.
pub struct Plan {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Size of the image in bytes.
    pub store_size: u64,
    /// What the check came to.
    pub outcome: Outcome,
    /// Blocks that were read, in ascending order, each with its checksum.
    pub seen: Vec<(u64, u32)>,
    /// Blocks that would be changed, in ascending order.
    pub changes: Vec<Change>,
}

/// A block that would be changed.
pub struct Change {
    /// Its number.
    pub block: u64,
    /// What it is.
    pub what: String,
    /// What it holds.
    pub before: Vec<u8>,
    /// What it would hold.
    pub after: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Header<F> {
    format: String,
    version: u32,
    block_size: u32,
    store_size: u64,
    time: u32,
    left: u64,
    journal_stays: bool,
    findings: Vec<F>,
    changes: Vec<ChangeLine>,
    /// First block and count of each run of blocks that were read.
    read: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct ChangeLine {
    block: u64,
    what: String,
}

/// A finding in a header that is read: it is for people, and changes nothing.
type Ignored = serde::de::IgnoredAny;

fn failed(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let name = path.display().to_string();
    move |error| Error::io(Place::File(name.clone()))(error)
}

impl Plan {
    /// Writes the plan to a file that is not there yet.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed(path))?;
        let mut out = Summed { inner: BufWriter::new(&file), register: u32::MAX };
        self.write_to(&mut out).map_err(failed(path))?;
        let register = out.register;
        out.inner
            .write_all(&register.to_le_bytes())
            .and_then(|()| out.inner.flush())
            .map_err(failed(path))?;
        drop(out);
        file.sync_all().map_err(failed(path))
    }

    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let line = |change: &Change| ChangeLine { block: change.block, what: change.what.clone() };
        let header: Header<&FindingObject> = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            block_size: self.block_size,
            store_size: self.store_size,
            time: self.outcome.time,
            left: self.outcome.left,
            journal_stays: self.outcome.journal_stays,
            findings: self.outcome.findings.iter().collect(),
            changes: self.changes.iter().map(line).collect(),
            read: self.runs(),
        };
        serde_json::to_writer(&mut *out, &header)?;
        out.write_all(b"\n")?;
        for change in &self.changes {
            out.write_all(&change.before)?;
            out.write_all(&change.after)?;
        }
        self.seen.iter().try_for_each(|(_, checksum)| out.write_all(&checksum.to_le_bytes()))
    }

    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (block, _) in &self.seen {
            match runs.last_mut() {
                Some((first, count)) if first.checked_add(*count) == Some(*block) => {
                    *count = count.saturating_add(1);
                }
                _ => runs.push((*block, 1)),
            }
        }
        runs
    }

    /// Reads a plan, which may have come from anywhere.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(failed(path))?;
        let length = file.metadata().map_err(failed(path))?.len();
        Self::read_from(BufReader::new(file), length).map_err(|error| match error.kind() {
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                let why = error.to_string();
                Error::Invalid(format!("{} is no plan of this version: {why}", path.display()))
            }
            _ => failed(path)(error),
        })
    }

    fn read_from(from: impl BufRead, length: u64) -> io::Result<Self> {
        let mut from = Summed { inner: from, register: u32::MAX };
        let mut line = Vec::new();
        (&mut from.inner).take(MOST_HEADER).read_until(b'\n', &mut line)?;
        from.register = crc32c(from.register, &line);
        if line.pop() != Some(b'\n') {
            return Err(wrong("it does not begin with a line"));
        }
        let header: Header<Ignored> =
            serde_json::from_slice(&line).map_err(|error| wrong(&error.to_string()))?;
        let sights = header.check(wide(line.len()).saturating_add(1), length)?;
        let mut changes = Vec::new();
        for ChangeLine { block, what } in header.changes {
            let (mut before, mut after) =
                (vec![0; index(header.block_size)], vec![0; index(header.block_size)]);
            from.read_exact(&mut before)?;
            from.read_exact(&mut after)?;
            changes.push(Change { block, what, before, after });
        }
        let mut seen = Vec::with_capacity(ext4kit_format::num::index64(sights));
        for (first, count) in header.read {
            for block in first..first.saturating_add(count) {
                let mut checksum = [0; 4];
                from.read_exact(&mut checksum)?;
                seen.push((block, u32::from_le_bytes(checksum)));
            }
        }
        let (register, mut stored) = (from.register, [0; 4]);
        from.inner.read_exact(&mut stored)?;
        if u32::from_le_bytes(stored) != register {
            return Err(wrong("its checksum is wrong"));
        }
        let (left, journal_stays, time) = (header.left, header.journal_stays, header.time);
        let outcome = Outcome { findings: Vec::new(), left, journal_stays, time };
        let (block_size, store_size) = (header.block_size, header.store_size);
        Ok(Self { block_size, store_size, outcome, seen, changes })
    }
}

impl<F> Header<F> {
    /// Refuses numbers that cannot be, and a file that is not as long as they call for; how many blocks were read.
    fn check(&self, header: u64, length: u64) -> io::Result<u64> {
        if self.format != FORMAT || self.version != VERSION {
            return Err(wrong(&format!("it calls itself {} version {}", self.format, self.version)));
        }
        if !self.block_size.is_power_of_two() || !(1024..=65_536).contains(&self.block_size) {
            return Err(wrong(&format!("{} is no block size", self.block_size)));
        }
        let most = self.store_size.div_ceil(self.block_size.into());
        let mut next = 0;
        for change in &self.changes {
            if change.block < next || change.block >= most {
                return Err(wrong("its changes are out of order or outside of the device"));
            }
            next = change.block.saturating_add(1);
        }
        let (mut next, mut sights) = (0, 0u64);
        for (first, count) in &self.read {
            let end = first.checked_add(*count).filter(|end| *end <= most);
            let Some(end) = end.filter(|_| *first >= next && *count > 0) else {
                return Err(wrong("what it read is out of order or outside of the device"));
            };
            next = end;
            sights = sights.saturating_add(*count);
        }
        let each = u64::from(self.block_size).saturating_mul(2);
        let wanted = wide(self.changes.len())
            .saturating_mul(each)
            .saturating_add(sights.saturating_mul(4))
            .saturating_add(header)
            .saturating_add(4);
        if wanted == length {
            Ok(sights)
        } else {
            Err(wrong(&format!("it has {length} bytes, not {wanted}")))
        }
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_owned())
}

/// A reader or writer that keeps the checksum of what went through it.
struct Summed<T> {
    inner: T,
    register: u32,
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.register = crc32c(self.register, bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.register = crc32c(self.register, buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}
