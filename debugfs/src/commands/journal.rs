//! `logdump`: what lies in the journal.
//!
//! The log is walked as debugfs does, block by block, so that what it would print is printed; what the journal engine
//! thinks of the log stands beside it in the data.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ext4kit_cli::device;
use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::disk::bitmap::Bits;
use ext4kit_format::disk::fast_commit::{RawRecord, Record};
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::disk::jbd2::superblock::JournalSuperblock;
use ext4kit_format::disk::jbd2::tags::{TagFlags, Tags};
use ext4kit_format::disk::jbd2::{
    BlockHeader, BlockType, ChecksumVersion, CompatFeatures, IncompatFeatures, revoke, unescape,
};
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::journal::{Journal, LogBlocks, open_by_superblock, open_internal};
use ext4kit_format::store::{Access, Store};
use ext4kit_format::tree::{group, inode};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, Result};
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::files::{Stat, describe_copy};
use super::journal_text::{FastStep, Features, JournalDevice, Log, Step};
use crate::answer::{Answer, Outcome, Report};
use crate::paths;
use crate::session::Open;
use crate::table::Call;
use crate::words::{Flags, number_or, text};

/// What of the log is wanted.
struct Wanted {
    all: bool,
    contents: bool,
    old: bool,
    block: Option<u64>,
    /// Where the bitmap of the wanted block lies, and its bit there.
    bitmap: Option<(u64, u32)>,
    /// An inode and the byte in its block where it begins.
    inode: Option<(InodeNumber, usize)>,
    limit: Option<u64>,
}

/// A walk over the log; no block is looked at twice.
struct Walk<'a> {
    open: &'a Open,
    zone: &'a TimeZone,
    journal: &'a Journal,
    wanted: Wanted,
    steps: Vec<Step>,
    cursor: u32,
    left: u32,
}

impl Walk<'_> {
    fn advance(&mut self) {
        self.cursor = self.journal.extent().after(self.cursor);
        self.left = self.left.saturating_sub(1);
    }

    fn run(&mut self, mut sequence: u32) -> Result<()> {
        let narrow = self.wanted.block.is_some();
        let mut records = 0u64;
        let mut gap_told = false;
        let mut buffer = Vec::new();
        while self.left > 0 {
            if self.wanted.limit.is_some_and(|limit| records >= limit) {
                break;
            }
            let block = self.cursor;
            let bytes = self.journal.blocks().read(block, &mut buffer)?.to_vec();
            let Some(header) = BlockHeader::of(&bytes) else {
                if !gap_told {
                    self.steps.push(Step::NoMagic { block });
                }
                gap_told = true;
                if self.wanted.limit.is_none() {
                    break;
                }
                self.advance();
                continue;
            };
            let found = header.h_sequence.get();
            if found != sequence {
                self.steps.push(Step::OtherSequence { block, found, wanted: sequence });
                if !self.wanted.old {
                    break;
                }
            }
            let block_type = header.kind().0;
            if !narrow || self.wanted.all && self.wanted.block.is_none() {
                self.steps.push(Step::Block { block, sequence: found, block_type });
            }
            self.advance();
            match header.kind() {
                BlockType::DESCRIPTOR => self.descriptor(block, found, &bytes)?,
                BlockType::COMMIT => {
                    sequence = sequence.wrapping_add(1);
                    records += 1;
                }
                BlockType::REVOKE => self.revokes(block, found, &bytes),
                _ => {
                    self.steps.push(Step::UnknownType { block, block_type });
                    break;
                }
            }
        }
        if self.wanted.limit.is_some() && self.left == 0 {
            self.steps.push(Step::AllRecords { count: records });
        }
        Ok(())
    }

    fn descriptor(&mut self, at: u32, sequence: u32, bytes: &[u8]) -> Result<()> {
        if self.wanted.all {
            self.steps.push(Step::Descriptor { block: at, sequence });
        }
        for tag in Tags::new(self.journal.format(), bytes) {
            if self.left == 0 {
                break;
            }
            let block = self.cursor;
            self.advance();
            let bitmap = self.wanted.bitmap.filter(|(at, _)| *at == tag.block);
            let named = self.wanted.block == Some(tag.block) || bitmap.is_some();
            if !self.wanted.all && !named {
                continue;
            }
            let (flags, brief) = (tag.flags.bits(), !self.wanted.all);
            self.steps.push(Step::Tag { target: tag.block, block, sequence, flags, brief });
            if !named && !self.wanted.contents {
                continue;
            }
            let mut bytes = self.journal.blocks().read(block, &mut Vec::new())?.to_vec();
            if tag.flags.contains(TagFlags::ESCAPE) {
                unescape(&mut bytes);
            }
            if let Some((_, bit)) = bitmap {
                let set = Bits(&bytes).is_set(bit);
                self.steps.push(Step::BitmapBit { block: self.wanted.block.unwrap_or(0), set });
            }
            if self.wanted.block == Some(tag.block) {
                self.steps
                    .extend(self.copy_of_inode(&bytes).map(|copy| Step::Inode { copy: Box::new(copy) }));
            }
            if self.wanted.contents {
                self.steps.push(Step::Contents { bytes });
            }
        }
        Ok(())
    }

    /// The wanted inode as it is in a copy of its block.
    fn copy_of_inode(&self, bytes: &[u8]) -> Option<Stat> {
        let (number, offset) = self.wanted.inode?;
        let size = usize::from(self.open.image.superblock().inode_size());
        let slot = bytes.get(offset..offset.checked_add(size)?)?;
        Some(describe_copy(self.open, &Inode::from_slot(number, slot).ok()?, self.zone))
    }

    fn revokes(&mut self, at: u32, sequence: u32, bytes: &[u8]) {
        if self.wanted.all {
            self.steps.push(Step::RevokeTable { block: at, sequence });
        }
        match revoke::records(&self.journal.format(), bytes) {
            Ok(records) => {
                let wanted = &self.wanted;
                let shown = records.filter(|target| wanted.all || wanted.block == Some(*target));
                self.steps.extend(shown.map(|target| Step::Revoke { target }));
            }
            Err(defect) => self.steps.push(Step::Bad { block: at, what: defect.to_string() }),
        }
    }
}

/// Every record of the fast-commit area up to the first that belongs to another transaction or is none.
fn fast_steps(journal: &Journal) -> Result<Vec<FastStep>> {
    let extent = journal.extent();
    let mut steps = Vec::new();
    let mut transaction = None;
    let mut buffer = Vec::new();
    for block in extent.fast_commit..extent.end {
        let bytes = journal.blocks().read(block, &mut buffer)?;
        let mut offset = 0;
        while offset + 4 <= bytes.len() {
            let Ok(raw) = RawRecord::at(bytes, offset) else { return Ok(steps) };
            let Ok(record) = raw.parse() else { return Ok(steps) };
            if let Record::Head { transaction: id, .. } | Record::Tail { transaction: id, .. } = &record
                && *transaction.get_or_insert(*id) != *id
            {
                return Ok(steps);
            }
            if transaction.is_none() {
                return Ok(steps);
            }
            // Padding is not listed.
            if !matches!(record, Record::Pad) {
                steps.push(FastStep::of(&record));
            }
            offset = raw.end();
        }
    }
    Ok(steps)
}

fn describe(superblock: &JournalSuperblock, filesystem_block_size: u32) -> Features {
    let (compat, incompat) = (superblock.compat(), superblock.incompat());
    let names = [
        (compat.contains(CompatFeatures::CHECKSUM), "journal_checksum"),
        (incompat.contains(IncompatFeatures::REVOKE), "journal_incompat_revoke"),
        (incompat.contains(IncompatFeatures::WIDE), "journal_64bit"),
        (incompat.contains(IncompatFeatures::ASYNC_COMMIT), "journal_async_commit"),
        (incompat.contains(IncompatFeatures::CHECKSUM_V2), "journal_checksum_v2"),
        (incompat.contains(IncompatFeatures::CHECKSUM_V3), "journal_checksum_v3"),
        // e2fsprogs has no name for this one.
        (incompat.contains(IncompatFeatures::FAST_COMMIT), "FEATURE_I5"),
    ];
    let sums = matches!(superblock.checksums(), ChecksumVersion::V2 | ChecksumVersion::V3);
    let fast = superblock.fast_commit_blocks();
    Features {
        names: names.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect(),
        block_size: superblock.s_blocksize.get(),
        filesystem_block_size,
        blocks: superblock.s_maxlen.get(),
        transaction_limit: superblock.s_maxlen.get().saturating_sub(fast),
        fast_commit_blocks: fast,
        sequence: superblock.s_sequence.get(),
        start: superblock.s_start.get(),
        users: superblock.s_nr_users.get(),
        checksum: sums.then(|| superblock.s_checksum.get()),
        errno: superblock.s_errno.get(),
        first: superblock.s_first.get(),
        user_names: superblock
            .users()
            .iter()
            .filter(|user| **user != [0; 16])
            .map(|user| Uuid::from_bytes(*user).to_string())
            .collect(),
    }
}

fn wanted_of(call: &Call<'_>, flags: &Flags) -> std::result::Result<Wanted, Failure> {
    let value = |letter: char, what: &str| {
        flags.value(letter).map(|word| number_or(&call.name, what, word)).transpose()
    };
    Ok(Wanted {
        all: flags.has('a'),
        contents: flags.has('c'),
        old: flags.has('O'),
        block: value('b', "block")?,
        bitmap: None,
        inode: None,
        // Without -O debugfs reads the number and does nothing with it.
        limit: value('n', "number of transactions")?.filter(|_| flags.has('O')),
    })
}

/// A journal to look at.
struct Found {
    journal: Journal,
    device: Option<JournalDevice>,
    problem: Option<Failure>,
}

/// The journal that is asked for: of the filesystem, by its superblock alone, or in a file or device of its own.
fn find_journal(call: &Call<'_>, open: &Open, flags: &Flags) -> std::result::Result<Found, Failure> {
    if let Some(path) = flags.value('f') {
        return open_elsewhere(path);
    }
    if open.image.superblock().journal_inode().is_none() {
        return Err(call.refuse("filesystem has no journal"));
    }
    if flags.has('s') {
        let journal = open_by_superblock(&open.image).map_err(|error| call.failed(&error))?;
        return Ok(Found { journal, device: None, problem: None });
    }
    let found = open_internal(&open.image).map_err(|error| call.failed(&error))?;
    let problem = found.inode_damage.map(|error| call.failed(&error));
    Ok(Found { journal: found.journal, device: None, problem })
}

/// A journal in a file: as a device of its own, which begins with a filesystem's superblock, or as the contents of a
/// journal's inode.
fn open_elsewhere(path: &[u8]) -> std::result::Result<Found, Failure> {
    let device = device::open(OsStr::from_bytes(path), Access::ReadOnly, true)?;
    let failed = |error: &ext4kit_format::Error| Failure::from_error(&device.name.typed, error);
    let store: Arc<dyn Store> = device.store;
    let mut bytes = [0; 1024];
    let read = |offset: u64, bytes: &mut [u8]| store.read_at(offset, bytes).is_ok();
    let filesystem = if read(1024, &mut bytes) { Superblock::parse(&bytes).ok() } else { None };
    let beginning = filesystem.map(|superblock| JournalDevice {
        uuid: Uuid::from_bytes(superblock.s_uuid).to_string(),
        block_size: 1024 << superblock.s_log_block_size.get().min(6),
        blocks: superblock.blocks_count(),
    });
    let blocks = if let Some(JournalDevice { block_size: size, .. }) = beginning {
        LogBlocks::external(store, size).map_err(|error| failed(&error))?
    } else {
        let wrong =
            || Failure::new(FailureKind::Invalid, text(path), "Journal superblock magic number invalid!");
        let head = if read(0, &mut bytes) { JournalSuperblock::read(&bytes).ok() } else { None };
        let size = head.ok_or_else(wrong)?.s_blocksize.get();
        if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
            return Err(Failure::new(FailureKind::Corrupt, text(path), format!("{size} is no block size")));
        }
        let run = BlockRun { start: BlockNumber(0), length: store.size() / u64::from(size) };
        LogBlocks::internal(store, size, &[run]).map_err(|error| failed(&error))?
    };
    let journal = Journal::open(blocks).map_err(|error| failed(&error))?;
    Ok(Found { journal, device: beginning, problem: None })
}

/// `logdump`.
pub fn logdump(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("acsOSb:n:i:f:", 0, 1)?;
    let mut wanted = wanted_of(call, &flags)?;
    let open = call.open()?;
    if let Some((group, bit)) =
        wanted.block.and_then(|block| open.txn.layout().geometry.bit_of(BlockNumber(block)))
    {
        let descriptor = group::read_descriptor(&open.txn, group).map_err(|error| call.failed(&error))?;
        wanted.bitmap = Some((descriptor.block_bitmap.0, bit));
    }
    let mut inode_place = None;
    if let Some(word) = flags.value('i') {
        let number = paths::find(open, word).map_err(|error| call.not_found(word, &error))?;
        let (block, offset) = inode::locate(&open.txn, number).map_err(|error| call.failed(&error))?;
        let group = open.txn.layout().geometry.inode_place(number).map_or(0, |(group, _)| group.0);
        inode_place = Some((number.get(), group, block.0, offset));
        wanted.block = Some(block.0);
        wanted.inode = Some((number, offset));
    }
    let Found { journal, device, problem } = find_journal(call, open, &flags)?;
    let superblock = journal.superblock();
    let start = superblock.s_start.get();
    let scan =
        journal.scan(open.txn.layout().geometry.blocks_count()).map_err(|error| call.failed(&error))?;
    let cursor = if start == 0 { journal.extent().first } else { start };
    let left = if start == 0 && !wanted.old { 0 } else { journal.extent().length() };
    let all = wanted.all;
    let block_size = open.txn.layout().geometry.block_size();
    let mut walk =
        Walk { open, zone: &call.session.zone, journal: &journal, wanted, steps: Vec::new(), cursor, left };
    walk.run(superblock.s_sequence.get()).map_err(|error| call.failed(&error))?;
    let steps = walk.steps;
    let fast_commits = fast_steps(&journal).map_err(|error| call.failed(&error))?;
    let log = Log {
        device,
        all,
        superblock: flags.has('S').then(|| describe(superblock, block_size)),
        inode_place,
        start,
        sequence: superblock.s_sequence.get(),
        steps,
        replay_stops: scan.stop().to_string(),
        replayable: scan.transactions().len(),
        fast_commits,
        has_fast_area: journal.extent().fast_commit < journal.extent().end,
    };
    let Some(path) = flags.rest.first() else { return Ok(Answer::of(log).with(problem)) };
    let failed = |error: io::Error| Failure::new(FailureKind::Io, text(path), error.to_string());
    let mut file = io::BufWriter::new(File::create(OsStr::from_bytes(path)).map_err(failed)?);
    log.text(&mut file).and_then(|()| file.flush()).map_err(failed)?;
    Ok(Answer::silent().with(problem))
}
