//! The fast-commit area behind the log: which commits in it count, what they do, and why reading ended.
//!
//! Reading is all that happens here; doing what the operations say needs the filesystem.

use std::fmt;

use super::Journal;
use crate::disk::extent::Extent;
use crate::disk::fast_commit::{Checksum, HEADER_SIZE, NameChange, RawRecord, Record};
use crate::error::{Defect, Result};
use crate::ids::{InodeNumber, LogicalBlock, TransactionId};

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// The journal block.
    pub block: u32,
    /// The byte of the block where the record's header begins.
    pub offset: usize,
}

/// One change that a fast commit makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An extent of an inode is mapped so.
    AddRange {
        /// The inode.
        inode: InodeNumber,
        /// The extent; its numbers are as stored, not checked against anything.
        extent: Extent,
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
    Create(DirectoryName),
    /// A further name of an inode.
    Link(DirectoryName),
    /// A name is gone.
    Unlink(DirectoryName),
    /// An inode gets these bytes.
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// At least the first 128 bytes of its slot.
        raw: Vec<u8>,
    },
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryName {
    /// The directory.
    pub parent: InodeNumber,
    /// What the name stands for.
    pub inode: InodeNumber,
    /// 1 to 255 bytes; any may occur.
    pub name: Vec<u8>,
}

/// One fast commit: what one `fsync` made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommit {
    /// The changes in order, each with its place.
    pub operations: Vec<(RecordPlace, Operation)>,
    /// Where its tail lies.
    pub tail: RecordPlace,
}

/// Why reading the area ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastStop {
    /// The journal has no fast-commit area.
    NoArea,
    /// The area is full.
    EndOfArea,
    /// The area does not begin with a head, so nothing was committed since it was last cleared.
    NoHead,
    /// A head or a tail belongs to another transaction: what follows is a leftover.
    OtherTransaction {
        /// Where.
        place: RecordPlace,
        /// The transaction there.
        found: TransactionId,
    },
    /// The head names features that are not known. What the area holds cannot be replayed.
    UnknownFeatures(u32),
    /// What lies here is no record: mostly the end of what was written.
    NotARecord {
        /// Where.
        place: RecordPlace,
        /// What is wrong.
        defect: Defect,
    },
    /// The checksum of a commit is wrong: it was cut short, or the rest is a leftover.
    BadChecksum {
        /// Where its tail lies.
        place: RecordPlace,
        /// What is wrong.
        defect: Defect,
    },
}

impl fmt::Display for FastStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoArea => write!(f, "the journal has no fast-commit area"),
            Self::EndOfArea => write!(f, "the fast-commit area is full"),
            Self::NoHead => write!(f, "the fast-commit area is unused"),
            Self::OtherTransaction { place, found } => {
                write!(f, "{place}: transaction {found} is not the one that counts")
            }
            Self::UnknownFeatures(bits) => write!(f, "fast-commit features {bits:#x} are not known"),
            Self::NotARecord { place, defect } | Self::BadChecksum { place, defect } => {
                write!(f, "{place}: {defect}")
            }
        }
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "journal block {}, byte {}", self.block, self.offset)
    }
}

/// What the area holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommits {
    /// The commits that count, oldest first.
    pub commits: Vec<FastCommit>,
    /// Why reading ended.
    pub stop: FastStop,
    /// How many operations were read behind the last good tail; they do not count.
    pub uncommitted: usize,
}

impl Journal {
    /// Reads the fast-commit area. `transaction` is the number that counts: [`super::Scan::next`] after a whole
    /// scan. After a replay that stops earlier, no fast commit counts.
    pub fn fast_commits(&self, transaction: TransactionId) -> Result<FastCommits> {
        let extent = self.extent();
        let mut reader =
            Reader { transaction, checksum: Checksum::default(), open: Vec::new(), commits: Vec::new() };
        let mut stop = if extent.fast_commit < extent.end { FastStop::EndOfArea } else { FastStop::NoArea };
        let mut buffer = Vec::new();
        for block in extent.fast_commit..extent.end {
            let bytes = self.blocks().read(block, &mut buffer)?;
            if let Err(reason) = reader.block(block, bytes, block == extent.fast_commit) {
                stop = reason;
                break;
            }
        }
        Ok(FastCommits { commits: reader.commits, stop, uncommitted: reader.open.len() })
    }
}

struct Reader {
    transaction: TransactionId,
    checksum: Checksum,
    /// Operations since the last tail.
    open: Vec<(RecordPlace, Operation)>,
    commits: Vec<FastCommit>,
}

impl Reader {
    fn block(&mut self, block: u32, bytes: &[u8], first: bool) -> Result<(), FastStop> {
        let mut offset = 0usize;
        // Records end where not even a header fits.
        while offset.checked_add(HEADER_SIZE).is_some_and(|end| end <= bytes.len()) {
            let place = RecordPlace { block, offset };
            let not_a_record = |defect| FastStop::NotARecord { place, defect };
            let raw = RawRecord::at(bytes, offset).map_err(not_a_record)?;
            let record = raw.parse().map_err(not_a_record);
            if first && offset == 0 && !matches!(record, Ok(Record::Head { .. })) {
                return Err(FastStop::NoHead);
            }
            self.record(place, &raw, record?)?;
            offset = raw.end();
        }
        Ok(())
    }

    fn record(
        &mut self,
        place: RecordPlace,
        raw: &RawRecord<'_>,
        record: Record<'_>,
    ) -> Result<(), FastStop> {
        let operation = match record {
            Record::Tail { transaction, checksum } => return self.tail(place, raw, (transaction, checksum)),
            Record::Head { features, transaction } => {
                if features != 0 {
                    return Err(FastStop::UnknownFeatures(features));
                }
                if transaction != self.transaction {
                    return Err(FastStop::OtherTransaction { place, found: transaction });
                }
                None
            }
            Record::Pad => None,
            Record::AddRange { inode, extent } => {
                Some(Operation::AddRange { inode, extent: extent.extent() })
            }
            Record::DeleteRange { inode, start, count } => {
                Some(Operation::DeleteRange { inode, start, count })
            }
            Record::Create(change) => Some(Operation::Create(change.into())),
            Record::Link(change) => Some(Operation::Link(change.into())),
            Record::Unlink(change) => Some(Operation::Unlink(change.into())),
            Record::Inode { inode, raw } => Some(Operation::Inode { inode, raw: raw.to_vec() }),
        };
        self.checksum.add(raw);
        self.open.extend(operation.map(|operation| (place, operation)));
        Ok(())
    }

    fn tail(
        &mut self,
        place: RecordPlace,
        raw: &RawRecord<'_>,
        (transaction, stored): (TransactionId, u32),
    ) -> Result<(), FastStop> {
        if transaction != self.transaction {
            return Err(FastStop::OtherTransaction { place, found: transaction });
        }
        let computed = self.checksum.of_tail(raw);
        if stored != computed {
            return Err(FastStop::BadChecksum { place, defect: Defect::Checksum { stored, computed } });
        }
        self.checksum = Checksum::default();
        let operations = std::mem::take(&mut self.open);
        self.commits.push(FastCommit { operations, tail: place });
        Ok(())
    }
}

impl From<NameChange<'_>> for DirectoryName {
    fn from(change: NameChange<'_>) -> Self {
        Self { parent: change.parent, inode: change.inode, name: change.name.to_vec() }
    }
}
