//! The walk over a log: which transactions are whole, what they hold, and why the walk ended.
//!
//! What is kept is compact: 24 bytes for each logged block, 8 for each revoked one. Logged blocks are not read,
//! except with checksum version 1, where the commit covers them.

use std::fmt;
use std::ops::Range;

use super::Journal;
use crate::disk::crc::crc32_be;
use crate::disk::jbd2::commit::{self, CommitRecord};
use crate::disk::jbd2::tags::{Tag, TagFlags, Tags};
use crate::disk::jbd2::{BlockHeader, BlockType, ChecksumVersion, IncompatFeatures, LogFormat, revoke};
use crate::error::{Defect, Result};
use crate::ids::{BlockNumber, TransactionId};

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedBlock {
    /// The block of the filesystem.
    pub target: BlockNumber,
    /// Where in the log the copy lies.
    pub log_block: u32,
    /// Checksum of the copy, as its tag holds it.
    pub checksum: u32,
    /// Flags of its tag.
    pub flags: TagFlags,
}

/// A whole transaction: from its first block to a commit block that is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// Its sequence number.
    pub id: TransactionId,
    /// Log block where it begins.
    pub start: u32,
    /// Log block of its commit.
    pub commit: u32,
    /// When it was committed, in seconds since 1970. Some writers get it wrong.
    pub seconds: u64,
    /// Nanoseconds of that time.
    pub nanoseconds: u32,
    tags: Range<usize>,
    revokes: Range<usize>,
    control: Range<usize>,
}

/// The transaction at the end of a log that has no good commit, and is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its sequence number.
    pub id: TransactionId,
    /// Log block where it begins.
    pub start: u32,
    /// Copies that were met before the walk ended.
    pub copies: usize,
    /// Revokes that were met before the walk ended.
    pub revokes: usize,
}

/// A descriptor or revoke block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlBlock {
    /// Where in the log it lies.
    pub log_block: u32,
    /// [`BlockType::DESCRIPTOR`] or [`BlockType::REVOKE`].
    pub kind: BlockType,
}

/// Why a scan ended. `block` is the log block where it did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The superblock says that nothing is in the log.
    Empty,
    /// The block does not begin with the magic number.
    NoMagic {
        /// Where.
        block: u32,
    },
    /// The block belongs to another transaction.
    OtherSequence {
        /// Where.
        block: u32,
        /// The sequence number there.
        found: TransactionId,
    },
    /// The block is of no kind that a log is made of.
    OtherKind {
        /// Where.
        block: u32,
        /// The kind there.
        found: BlockType,
    },
    /// The block is left over from an earlier life of the log: its checksum is wrong, and no commit that is as new
    /// as the last good one follows.
    Stale {
        /// Where.
        block: u32,
        /// What is wrong with the block.
        defect: Defect,
    },
    /// The last commit was written before its blocks, as asynchronous commits are, and they did not all arrive.
    Torn {
        /// Where.
        block: u32,
        /// What is wrong with the commit.
        defect: Defect,
    },
    /// The log is full to the last block.
    FullLap,
    /// A transaction that was committed cannot be trusted. It is dropped, and so is all that follows.
    Damaged {
        /// Where.
        block: u32,
        /// The transaction.
        transaction: TransactionId,
        /// What is wrong.
        defect: Defect,
    },
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the log is empty"),
            Self::NoMagic { block } => write!(f, "journal block {block}: end of the log"),
            Self::OtherSequence { block, found } => {
                write!(f, "journal block {block}: end of the log, where a block of transaction {found} lies")
            }
            Self::OtherKind { block, found } => {
                write!(f, "journal block {block}: end of the log, where a block of kind {} lies", found.0)
            }
            Self::Stale { block, defect } => {
                write!(f, "journal block {block}: end of the log, where a leftover lies ({defect})")
            }
            Self::Torn { block, defect } => {
                write!(f, "journal block {block}: the last commit did not reach the disk whole ({defect})")
            }
            Self::FullLap => write!(f, "the log is full to its last block"),
            Self::Damaged { block, transaction, defect } => {
                write!(f, "journal block {block}: transaction {transaction} is damaged: {defect}")
            }
        }
    }
}

impl Stop {
    /// Whether something that was committed is lost.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

/// What a log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    transactions: Vec<LoggedTransaction>,
    tags: Vec<LoggedBlock>,
    revokes: Vec<u64>,
    control: Vec<ControlBlock>,
    stop: Stop,
    unfinished: Option<Unfinished>,
    head: u32,
    next: TransactionId,
    restart: TransactionId,
}

impl Scan {
    /// The whole transactions, oldest first.
    pub fn transactions(&self) -> &[LoggedTransaction] {
        &self.transactions
    }

    /// The copies in a transaction, in log order.
    pub fn blocks_of(&self, transaction: &LoggedTransaction) -> &[LoggedBlock] {
        self.tags.get(transaction.tags.clone()).unwrap_or_default()
    }

    /// The blocks that a transaction revokes, in log order. They are as stored, not checked against anything.
    pub fn revokes_of(&self, transaction: &LoggedTransaction) -> &[u64] {
        self.revokes.get(transaction.revokes.clone()).unwrap_or_default()
    }

    /// The descriptor and revoke blocks of a transaction, in log order.
    pub fn control_of(&self, transaction: &LoggedTransaction) -> &[ControlBlock] {
        self.control.get(transaction.control.clone()).unwrap_or_default()
    }

    /// Why the scan ended.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The transaction that the walk ended in, if anything of it was there.
    pub fn unfinished(&self) -> Option<Unfinished> {
        self.unfinished
    }

    /// Whether the log has nothing to replay and nothing to clear away.
    pub fn is_empty(&self) -> bool {
        self.stop == Stop::Empty
    }

    /// The log block after the last whole transaction.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The number that follows the last whole transaction's. Fast commits that count carry it.
    pub fn next(&self) -> TransactionId {
        self.next
    }

    /// The number that the first transaction after a replay takes: one that no block left in the log carries, so
    /// that leftovers can never continue a newer transaction.
    pub fn restart(&self) -> TransactionId {
        self.restart
    }
}

impl Journal {
    /// Walks the log. `device_blocks` is how many blocks the filesystem's device has; a tag beyond them is damage.
    /// The count in the superblock would be too small: a resize grows it through the log.
    pub fn scan(&self, device_blocks: u64) -> Result<Scan> {
        let superblock = self.superblock();
        let sequence = superblock.sequence();
        let start = superblock.s_start.get();
        let scan = Scan {
            transactions: Vec::new(),
            tags: Vec::new(),
            revokes: Vec::new(),
            control: Vec::new(),
            stop: Stop::Empty,
            unfinished: None,
            head: if superblock.is_empty() { self.extent().first } else { start },
            next: sequence,
            restart: sequence,
        };
        if superblock.is_empty() {
            return Ok(scan);
        }
        let mut walk = Walk {
            journal: self,
            format: self.format(),
            device_blocks,
            cursor: start,
            left: self.extent().length(),
            sequence,
            newest: 0,
            pending: Pending::begin(start, &scan),
            scan,
        };
        let stop = loop {
            if let Some(stop) = walk.step()? {
                break stop;
            }
        };
        walk.finish(stop)
    }
}

/// The transaction that the walk is in.
struct Pending {
    start: u32,
    first_tag: usize,
    first_revoke: usize,
    first_control: usize,
    /// CRC-32 over descriptors and logged blocks, for checksum version 1.
    covered: u32,
    /// What is wrong, which matters only if the transaction turns out to be committed.
    defect: Option<(u32, Defect)>,
    /// A descriptor whose list of tags has no end, which only a checksum can vouch for.
    endless: Option<u32>,
}

impl Pending {
    fn begin(start: u32, scan: &Scan) -> Self {
        Self {
            start,
            first_tag: scan.tags.len(),
            first_revoke: scan.revokes.len(),
            first_control: scan.control.len(),
            covered: u32::MAX,
            defect: None,
            endless: None,
        }
    }

    fn wrong(&mut self, block: u32, defect: Defect) {
        self.defect.get_or_insert((block, defect));
    }
}

struct Walk<'a> {
    journal: &'a Journal,
    format: LogFormat,
    device_blocks: u64,
    cursor: u32,
    /// Blocks that this lap still has.
    left: u32,
    /// The transaction that is expected at the cursor.
    sequence: TransactionId,
    /// Commit time of the last whole transaction, in seconds.
    newest: u64,
    pending: Pending,
    scan: Scan,
}

impl Walk<'_> {
    /// Takes the next block of the log; `None` if it is not there because the lap is over.
    fn take(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let block = self.cursor;
        self.cursor = self.journal.extent().after(block);
        Some(block)
    }

    /// One block that carries on the sequence, with the logged blocks that belong to it.
    fn step(&mut self) -> Result<Option<Stop>> {
        let Some(block) = self.take() else { return Ok(Some(Stop::FullLap)) };
        let mut buffer = Vec::new();
        let bytes = self.journal.blocks().read(block, &mut buffer)?;
        let Some(header) = BlockHeader::of(bytes) else { return Ok(Some(Stop::NoMagic { block })) };
        if header.sequence() != self.sequence {
            return Ok(Some(Stop::OtherSequence { block, found: header.sequence() }));
        }
        match header.kind() {
            BlockType::DESCRIPTOR => self.descriptor(block, bytes),
            BlockType::REVOKE => self.revoke(block, bytes),
            BlockType::COMMIT => self.commit(block, bytes),
            found => Ok(Some(Stop::OtherKind { block, found })),
        }
    }

    fn descriptor(&mut self, block: u32, bytes: &[u8]) -> Result<Option<Stop>> {
        if let Err(defect) = self.format.verify_tail(bytes) {
            return self.suspect(block, defect).map(Some);
        }
        self.scan.control.push(ControlBlock { log_block: block, kind: BlockType::DESCRIPTOR });
        let covers = self.format.checksums == ChecksumVersion::V1;
        if covers {
            self.pending.covered = crc32_be(self.pending.covered, bytes);
        }
        let mut buffer = Vec::new();
        let mut tags = Tags::new(self.format, bytes);
        for tag in tags.by_ref() {
            let Some(log_block) = self.take() else {
                // More tags than the log has blocks: there is no room left for a commit either.
                return Ok(Some(Stop::FullLap));
            };
            if covers {
                let copy = self.journal.blocks().read(log_block, &mut buffer)?;
                self.pending.covered = crc32_be(self.pending.covered, copy);
            }
            if let Err(defect) = self.check_target(tag) {
                self.pending.wrong(block, defect);
            }
            let target = BlockNumber(tag.block);
            let logged = LoggedBlock { target, log_block, checksum: tag.checksum, flags: tag.flags };
            self.scan.tags.push(logged);
        }
        if !tags.ended_with_last() && !self.format.has_block_checksums() {
            self.pending.endless.get_or_insert(block);
        }
        Ok(None)
    }

    fn check_target(&self, tag: Tag) -> Result<(), Defect> {
        let most = self.device_blocks.saturating_sub(1);
        Defect::check_range("t_blocknr", tag.block, 0, most)?;
        if self.journal.blocks().owns(BlockNumber(tag.block)) {
            let text = format!("a tag names block {}, which is the journal's own", tag.block);
            return Err(Defect::Contradiction(text));
        }
        Ok(())
    }

    fn revoke(&mut self, block: u32, bytes: &[u8]) -> Result<Option<Stop>> {
        if let Err(defect) = self.format.verify_tail(bytes) {
            return self.suspect(block, defect).map(Some);
        }
        self.scan.control.push(ControlBlock { log_block: block, kind: BlockType::REVOKE });
        match revoke::records(&self.format, bytes) {
            Ok(records) => self.scan.revokes.extend(records),
            Err(defect) => self.pending.wrong(block, defect),
        }
        Ok(None)
    }

    fn commit(&mut self, block: u32, bytes: &[u8]) -> Result<Option<Stop>> {
        let Some(record) = CommitRecord::of(bytes) else { return Ok(Some(Stop::NoMagic { block })) };
        let seconds = record.h_commit_sec.get();
        if let Err(defect) = commit::verify(&self.format, bytes, self.pending.covered) {
            return self.bad_commit(block, seconds, defect).map(Some);
        }
        // A version-1 commit that carries no checksum vouches for nothing.
        let vouched = self.format.checksums == ChecksumVersion::V1 && record.h_chksum_type != 0;
        if let Some(descriptor) = self.pending.endless.filter(|_| !vouched) {
            self.pending.wrong(descriptor, Defect::Truncated { what: "list of tags" });
        }
        if let Some((block, defect)) = self.pending.defect.take() {
            return Ok(Some(self.damaged(block, defect)));
        }
        self.scan.transactions.push(LoggedTransaction {
            id: self.sequence,
            start: self.pending.start,
            commit: block,
            seconds,
            nanoseconds: record.h_commit_nsec.get(),
            tags: self.pending.first_tag..self.scan.tags.len(),
            revokes: self.pending.first_revoke..self.scan.revokes.len(),
            control: self.pending.first_control..self.scan.control.len(),
        });
        self.newest = seconds;
        self.sequence = self.sequence.next();
        self.pending = Pending::begin(self.cursor, &self.scan);
        Ok(None)
    }

    /// A descriptor or revoke block with a wrong checksum: damage if its transaction was committed, else a leftover
    /// of an earlier life of the log or a transaction that the crash cut.
    fn suspect(&self, block: u32, defect: Defect) -> Result<Stop> {
        let ahead = self.look_ahead()?;
        let committed = ahead.commit_seconds.is_some_and(|seconds| seconds >= self.newest);
        Ok(if committed { self.damaged(block, defect) } else { Stop::Stale { block, defect } })
    }

    fn bad_commit(&self, block: u32, seconds: u64, defect: Defect) -> Result<Stop> {
        if seconds < self.newest {
            return Ok(Stop::Stale { block, defect });
        }
        let asynchronous = self.journal.superblock().incompat().contains(IncompatFeatures::ASYNC_COMMIT);
        // A commit that the next transaction follows was durable once, with all that it covers.
        if asynchronous && !self.newer_follows()? {
            return Ok(Stop::Torn { block, defect });
        }
        Ok(self.damaged(block, defect))
    }

    /// Whether the block at the cursor begins the next transaction.
    fn newer_follows(&self) -> Result<bool> {
        let mut buffer = Vec::new();
        let bytes = self.journal.blocks().read(self.cursor, &mut buffer)?;
        let header = BlockHeader::of(bytes).filter(|_| self.left > 0);
        Ok(header.is_some_and(|header| header.sequence() == self.sequence.next()))
    }

    fn damaged(&self, block: u32, defect: Defect) -> Stop {
        Stop::Damaged { block, transaction: self.sequence, defect }
    }

    /// What the rest of the lap holds. Logged blocks never begin with the magic number, so no list of tags is
    /// needed to find the blocks that do.
    fn look_ahead(&self) -> Result<Ahead> {
        let mut ahead = Ahead { commit_seconds: None, highest: self.sequence };
        let (mut cursor, mut buffer) = (self.cursor, Vec::new());
        for _ in 0..self.left {
            let bytes = self.journal.blocks().read(cursor, &mut buffer)?;
            if let Some(header) = BlockHeader::of(bytes) {
                ahead.meet(header, CommitRecord::of(bytes), self);
            }
            cursor = self.journal.extent().after(cursor);
        }
        Ok(ahead)
    }

    fn finish(mut self, stop: Stop) -> Result<Scan> {
        // Of a transaction that is not whole only the counts are kept.
        let copies = self.scan.tags.len().saturating_sub(self.pending.first_tag);
        let revokes = self.scan.revokes.len().saturating_sub(self.pending.first_revoke);
        if self.scan.control.len() > self.pending.first_control {
            let (id, start) = (self.sequence, self.pending.start);
            self.scan.unfinished = Some(Unfinished { id, start, copies, revokes });
        }
        self.scan.tags.truncate(self.pending.first_tag);
        self.scan.revokes.truncate(self.pending.first_revoke);
        self.scan.control.truncate(self.pending.first_control);
        self.scan.head = self.pending.start;
        self.scan.next = self.sequence;
        // One number is skipped for the transaction that may have been under way. Where later ones follow, behind
        // damage or a commit that was lost, their numbers must not come again either.
        let later = match stop {
            Stop::Damaged { .. } => true,
            Stop::OtherSequence { found, .. } => self.sequence.is_before(found),
            _ => false,
        };
        let highest = if later { self.look_ahead()?.highest } else { self.sequence };
        self.scan.restart = highest.next();
        self.scan.stop = stop;
        Ok(self.scan)
    }
}

/// What the rest of a lap holds.
struct Ahead {
    /// Time of the first commit of the expected transaction.
    commit_seconds: Option<u64>,
    /// The highest sequence number that a log of this length can hold.
    highest: TransactionId,
}

impl Ahead {
    fn meet(&mut self, header: BlockHeader, commit: Option<CommitRecord>, walk: &Walk<'_>) {
        let distance = header.sequence().0.wrapping_sub(walk.sequence.0);
        if distance == 0 {
            let seconds = commit.map(|record| record.h_commit_sec.get());
            self.commit_seconds = self.commit_seconds.or(seconds);
        } else if distance <= walk.journal.extent().length() {
            // Every transaction has a block of its own, so none further away is of this life of the log.
            if self.highest.is_before(header.sequence()) {
                self.highest = header.sequence();
            }
        }
    }
}
