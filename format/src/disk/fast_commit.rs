//! Fast-commit records in the tail of a journal.
//!
//! The area is a sequence of blocks of tag-length-value records, little-endian unlike the rest of the journal. A
//! record never crosses a block. The area's first record is a [`Record::Head`]; each commit ends in a
//! [`Record::Tail`], whose checksum covers every record since the previous tail, and whose length reaches to the end
//! of its block. Only what a good tail of the right transaction covers counts.
//!
//! Facts: the kernel's on-disk header of fast commits, checked on areas that kernels left behind.

use zerocopy::{FromBytes, IntoBytes};

use crate::bytes;
use crate::disk::crc::crc32c;
use crate::disk::extent::ExtentLeaf;
use crate::error::Defect;
use crate::ids::{InodeNumber, LogicalBlock, TransactionId};
use crate::num::{index, wide};

/// The kind of a record. Values without a constant here are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordTag(pub u16);

impl RecordTag {
    /// [`Record::AddRange`].
    pub const ADD_RANGE: Self = Self(1);
    /// [`Record::DeleteRange`].
    pub const DELETE_RANGE: Self = Self(2);
    /// [`Record::Create`].
    pub const CREATE: Self = Self(3);
    /// [`Record::Link`].
    pub const LINK: Self = Self(4);
    /// [`Record::Unlink`].
    pub const UNLINK: Self = Self(5);
    /// [`Record::Inode`].
    pub const INODE: Self = Self(6);
    /// [`Record::Pad`].
    pub const PAD: Self = Self(7);
    /// [`Record::Tail`].
    pub const TAIL: Self = Self(8);
    /// [`Record::Head`].
    pub const HEAD: Self = Self(9);
}

/// Bytes of tag and length before each value.
pub const HEADER_SIZE: usize = 4;

/// Bytes of a tail's value that mean something; the rest pads to the end of the block.
const TAIL_SIZE: usize = 8;

/// Bytes of an inode that exist in every filesystem.
const LEAST_INODE: usize = 128;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameChange<'a> {
    /// The directory.
    pub parent: InodeNumber,
    /// What the name stands for.
    pub inode: InodeNumber,
    /// The name, 1 to 255 bytes without a terminating zero. Any byte may occur: in an encrypted directory the name
    /// is ciphertext.
    pub name: &'a [u8],
}

/// One record, its value checked as far as it can be without the filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The first record of the area.
    Head {
        /// Features of the area; no bit is known, and a reader that does not know one must not replay.
        features: u32,
        /// The transaction that was running: the first one after the log.
        transaction: TransactionId,
    },
    /// An extent of an inode is mapped so.
    AddRange {
        /// The inode.
        inode: InodeNumber,
        /// The extent, as in a leaf of an extent tree.
        extent: ExtentLeaf,
    },
    /// Blocks of an inode are unmapped.
    DeleteRange {
        /// The inode.
        inode: InodeNumber,
        /// The first of the blocks.
        start: LogicalBlock,
        /// How many.
        count: u32,
    },
    /// A name of a new inode.
    Create(NameChange<'a>),
    /// A further name of an inode.
    Link(NameChange<'a>),
    /// A name is gone.
    Unlink(NameChange<'a>),
    /// The inode's bytes: the first 128, and `i_extra_isize` more where the filesystem has large inodes.
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// At least 128 bytes.
        raw: &'a [u8],
    },
    /// Nothing; fills a block.
    Pad,
    /// The end of a commit.
    Tail {
        /// The transaction that was running.
        transaction: TransactionId,
        /// Checksum of the commit ([`Checksum`]).
        checksum: u32,
    },
}

/// A record where it lies in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// What it is.
    pub tag: RecordTag,
    /// Byte of the block where the record's header begins.
    pub offset: usize,
    /// Header and value.
    pub bytes: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// The record at a byte of a block, or what is wrong with it. The tag is not judged.
    pub fn at(block: &'a [u8], offset: usize) -> Result<Self, Defect> {
        let cut = Defect::Truncated { what: "fast-commit record" };
        let tag = bytes::le16(block, offset).ok_or_else(|| cut.clone())?;
        let length =
            offset.checked_add(2).and_then(|at| bytes::le16(block, at)).ok_or_else(|| cut.clone())?;
        let whole = HEADER_SIZE.saturating_add(usize::from(length));
        let bytes = bytes::span(block, offset, whole).ok_or(cut)?;
        Ok(Self { tag: RecordTag(tag), offset, bytes })
    }

    /// The byte of the block just past the record.
    pub fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes.len())
    }

    /// The value after tag and length.
    pub fn value(&self) -> &'a [u8] {
        self.bytes.get(HEADER_SIZE..).unwrap_or_default()
    }

    /// What the record says.
    pub fn parse(&self) -> Result<Record<'a>, Defect> {
        let value = self.value();
        let sized = |field, least: usize, most: usize| {
            Defect::check_range(field, wide(value.len()), wide(least), wide(most))
        };
        match self.tag {
            RecordTag::HEAD => {
                sized("fc_len of HEAD", 8, 8)?;
                Ok(Record::Head { features: word(value, 0)?, transaction: TransactionId(word(value, 4)?) })
            }
            RecordTag::ADD_RANGE => {
                sized("fc_len of ADD_RANGE", 16, 16)?;
                let cut = |_| Defect::Truncated { what: "fast-commit record" };
                let (_, extent) = ExtentLeaf::read_from_suffix(value).map_err(cut)?;
                Ok(Record::AddRange { inode: inode(value, 0)?, extent })
            }
            RecordTag::DELETE_RANGE => {
                sized("fc_len of DEL_RANGE", 12, 12)?;
                let start = LogicalBlock(word(value, 4)?);
                Ok(Record::DeleteRange { inode: inode(value, 0)?, start, count: word(value, 8)? })
            }
            RecordTag::CREATE => Ok(Record::Create(name_change(value, "fc_len of CREAT")?)),
            RecordTag::LINK => Ok(Record::Link(name_change(value, "fc_len of LINK")?)),
            RecordTag::UNLINK => Ok(Record::Unlink(name_change(value, "fc_len of UNLINK")?)),
            RecordTag::INODE => {
                sized("fc_len of INODE", LEAST_INODE.saturating_add(4), usize::from(u16::MAX))?;
                Ok(Record::Inode { inode: inode(value, 0)?, raw: value.get(4..).unwrap_or_default() })
            }
            RecordTag::PAD => Ok(Record::Pad),
            RecordTag::TAIL => {
                sized("fc_len of TAIL", TAIL_SIZE, usize::from(u16::MAX))?;
                Ok(Record::Tail { transaction: TransactionId(word(value, 0)?), checksum: word(value, 4)? })
            }
            RecordTag(other) => {
                Err(Defect::Range { field: "fc_tag", value: u64::from(other), least: 1, most: 9 })
            }
        }
    }
}

fn word(value: &[u8], at: usize) -> Result<u32, Defect> {
    bytes::le32(value, at).ok_or(Defect::Truncated { what: "fast-commit record" })
}

fn inode(value: &[u8], at: usize) -> Result<InodeNumber, Defect> {
    let number = word(value, at)?;
    InodeNumber::new(number).ok_or(Defect::Range {
        field: "fc_ino",
        value: 0,
        least: 1,
        most: u64::from(u32::MAX),
    })
}

fn name_change<'a>(value: &'a [u8], field: &'static str) -> Result<NameChange<'a>, Defect> {
    Defect::check_range(field, wide(value.len()), 9, 8 + 255)?;
    let name = value.get(8..).unwrap_or_default();
    Ok(NameChange { parent: inode(value, 0)?, inode: inode(value, 4)?, name })
}

/// The checksum of one commit while its records are met in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum(u32);

impl Checksum {
    /// Takes in a record that is not a tail, header included.
    pub fn add(&mut self, record: &RawRecord<'_>) {
        self.0 = crc32c(self.0, record.bytes);
    }

    /// What the checksum in this tail should be: it covers the tail's header and transaction too.
    pub fn of_tail(self, tail: &RawRecord<'_>) -> u32 {
        crc32c(self.0, tail.bytes.get(..HEADER_SIZE.saturating_add(4)).unwrap_or_default())
    }
}

/// Builds the blocks of a fast-commit area, records in order.
#[derive(Clone, Debug)]
pub struct AreaWriter {
    block_size: usize,
    done: Vec<u8>,
    block: Vec<u8>,
    register: u32,
}

impl AreaWriter {
    /// An empty area of blocks of this many bytes, at most 64 KiB.
    pub fn new(block_size: u32) -> Self {
        Self { block_size: index(block_size), done: Vec::new(), block: Vec::new(), register: 0 }
    }

    /// Adds a record, padding the block first if the record does not fit. A [`Record::Tail`] gets its checksum and
    /// its length here. `false` if the record is larger than a block.
    #[must_use]
    pub fn push(&mut self, record: &Record<'_>) -> bool {
        let (tag, value) = encode(record);
        let needed = value.len().saturating_add(HEADER_SIZE);
        // A tail needs to fit behind any record, and a pad behind any record that a tail does not follow.
        if needed > self.block_size {
            return false;
        }
        if needed > self.room() {
            self.fill(RecordTag::PAD);
        }
        if tag == RecordTag::TAIL {
            self.push_tail(&value);
        } else {
            self.append(tag, value.len(), &value);
        }
        true
    }

    /// The finished blocks.
    pub fn finish(mut self) -> Vec<u8> {
        if !self.block.is_empty() {
            self.end_block();
        }
        self.done
    }

    fn room(&self) -> usize {
        self.block_size.saturating_sub(self.block.len())
    }

    fn append(&mut self, tag: RecordTag, length: usize, value: &[u8]) {
        let from = self.block.len();
        self.block.extend_from_slice(&tag.0.to_le_bytes());
        self.block.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        self.block.extend_from_slice(value);
        self.register = crc32c(self.register, self.block.get(from..).unwrap_or_default());
    }

    /// A record of zeroes to the end of the block; where not even a header fits, the rest stays zero.
    fn fill(&mut self, tag: RecordTag) {
        if let Some(length) = self.room().checked_sub(HEADER_SIZE) {
            self.append(tag, length, &vec![0; length]);
        }
        self.end_block();
    }

    fn push_tail(&mut self, value: &[u8]) {
        let length = self.room().saturating_sub(HEADER_SIZE);
        self.append(RecordTag::TAIL, length, value.get(..4).unwrap_or_default());
        self.block.extend_from_slice(&self.register.to_le_bytes());
        self.register = 0;
        self.end_block();
    }

    fn end_block(&mut self) {
        self.block.resize(self.block_size, 0);
        self.done.append(&mut self.block);
    }
}

fn encode(record: &Record<'_>) -> (RecordTag, Vec<u8>) {
    let words = |words: &[u32], rest: &[u8]| {
        let mut value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        value.extend_from_slice(rest);
        value
    };
    let name = |change: &NameChange<'_>| words(&[change.parent.get(), change.inode.get()], change.name);
    match record {
        Record::Head { features, transaction } => (RecordTag::HEAD, words(&[*features, transaction.0], &[])),
        Record::AddRange { inode, extent } => {
            (RecordTag::ADD_RANGE, words(&[inode.get()], extent.as_bytes()))
        }
        Record::DeleteRange { inode, start, count } => {
            (RecordTag::DELETE_RANGE, words(&[inode.get(), start.0, *count], &[]))
        }
        Record::Create(change) => (RecordTag::CREATE, name(change)),
        Record::Link(change) => (RecordTag::LINK, name(change)),
        Record::Unlink(change) => (RecordTag::UNLINK, name(change)),
        Record::Inode { inode, raw } => (RecordTag::INODE, words(&[inode.get()], raw)),
        Record::Pad => (RecordTag::PAD, Vec::new()),
        Record::Tail { transaction, .. } => (RecordTag::TAIL, words(&[transaction.0, 0], &[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::extent::Extent;
    use crate::ids::BlockNumber;

    fn ino(number: u32) -> InodeNumber {
        InodeNumber::new(number).unwrap()
    }

    fn parse(bytes: &[u8]) -> Result<Record<'_>, Defect> {
        RawRecord::at(bytes, 0)?.parse()
    }

    #[test]
    fn every_record_comes_back() {
        let raw = [5; 160];
        let (logical, physical) = (LogicalBlock(3), BlockNumber(0x5_0000_0006));
        let extent = Extent { logical, physical, length: 9, unwritten: true };
        let change = NameChange { parent: ino(2), inode: ino(12), name: b"name" };
        let records = [
            Record::Head { features: 0, transaction: TransactionId(7) },
            Record::AddRange { inode: ino(12), extent: ExtentLeaf::new(extent).unwrap() },
            Record::DeleteRange { inode: ino(12), start: LogicalBlock(9), count: 3 },
            Record::Create(change),
            Record::Link(change),
            Record::Unlink(change),
            Record::Inode { inode: ino(12), raw: &raw },
            Record::Pad,
        ];
        let mut writer = AreaWriter::new(1024);
        for record in &records {
            assert!(writer.push(record));
        }
        assert!(writer.push(&Record::Tail { transaction: TransactionId(7), checksum: 0 }));
        let area = writer.finish();
        assert_eq!(area.len(), 1024);
        let (mut at, mut checksum) = (0, Checksum::default());
        for wanted in &records {
            let record = RawRecord::at(&area, at).unwrap();
            assert_eq!(record.parse().as_ref(), Ok(wanted));
            checksum.add(&record);
            at = record.end();
        }
        let tail = RawRecord::at(&area, at).unwrap();
        assert_eq!(tail.end(), 1024);
        let wanted = Record::Tail { transaction: TransactionId(7), checksum: checksum.of_tail(&tail) };
        assert_eq!(tail.parse(), Ok(wanted));
    }

    #[test]
    fn a_record_that_does_not_fit_goes_to_the_next_block() {
        let mut writer = AreaWriter::new(1024);
        let raw = [1; 600];
        let record = Record::Inode { inode: ino(12), raw: &raw };
        assert!(writer.push(&record) && writer.push(&record));
        assert!(!writer.push(&Record::Inode { inode: ino(12), raw: &[0; 1020] }));
        let area = writer.finish();
        assert_eq!(area.len(), 2048);
        let pad = RawRecord::at(&area[..1024], 608).unwrap();
        assert_eq!((pad.parse(), pad.end()), (Ok(Record::Pad), 1024));
        assert_eq!(RawRecord::at(&area[1024..], 0).unwrap().parse(), Ok(record));
    }

    #[test]
    fn records_of_wrong_length_or_content_are_defects() {
        assert!(parse(&[9, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "short head");
        assert!(parse(&[1, 0, 16, 0, 1]).is_err(), "value leaves the block");
        assert!(parse(&[10, 0, 0, 0]).is_err(), "unknown tag");
        assert!(parse(&[0, 0, 0, 0]).is_err(), "no tag");
        assert!(parse(&[7, 0, 0]).is_err(), "header leaves the block");
        assert_eq!(parse(&[7, 0, 0, 0]), Ok(Record::Pad));
        assert!(parse(&[2, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "inode 0");
        let named = |name: &[u8]| {
            let length = u8::try_from(8 + name.len()).unwrap();
            let mut bytes = vec![3, 0, length, 0, 2, 0, 0, 0, 12, 0, 0, 0];
            bytes.extend_from_slice(name);
            parse(&bytes).is_ok()
        };
        assert!(named(b"a") && named(b"a/\0") && !named(b""));
    }
}
