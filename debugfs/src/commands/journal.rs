//! `logdump`: what lies in the journal.
//!
//! The log is walked as debugfs does, block by block, so that what it would print is printed; what the journal engine
//! thinks of the log stands beside it in the data.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::disk::bitmap::Bits;
use ext4kit_format::disk::fast_commit::{RawRecord, Record};
use ext4kit_format::disk::jbd2::superblock::JournalSuperblock;
use ext4kit_format::disk::jbd2::tags::{TagFlags, Tags};
use ext4kit_format::disk::jbd2::{
    BlockHeader, BlockType, ChecksumVersion, CompatFeatures, IncompatFeatures, revoke, unescape,
};
use ext4kit_format::journal::{Journal, open_internal};
use ext4kit_format::tree::{group, inode};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{BlockNumber, InodeNumber, Result};
use serde::Serialize;

use super::dumps::hexdump;
use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::paths;
use crate::table::Call;
use crate::words::{Flags, number_or, text};

#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum Step {
    Block {
        block: u32,
        sequence: u32,
        block_type: u32,
    },
    Descriptor {
        block: u32,
        sequence: u32,
    },
    Tag {
        target: u64,
        block: u32,
        sequence: u32,
        flags: u32,
        #[serde(skip)]
        brief: bool,
        #[serde(skip)]
        contents: Option<Vec<u8>>,
    },
    RevokeTable {
        block: u32,
        sequence: u32,
    },
    Revoke {
        target: u64,
    },
    BitmapBit {
        block: u64,
        set: bool,
    },
    OtherSequence {
        block: u32,
        found: u32,
        wanted: u32,
    },
    NoMagic {
        block: u32,
    },
    UnknownType {
        block: u32,
        block_type: u32,
    },
    AllRecords {
        count: u64,
    },
    Bad {
        block: u32,
        what: String,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "tag")]
enum FastStep {
    Head { features: u32, transaction: u32 },
    AddRange { inode: u32, logical: u32, block: u64, length: u32 },
    DeleteRange { inode: u32, logical: u32, length: u32 },
    Name { what: &'static str, parent: u32, inode: u32, name: Bytes },
    Inode { inode: u32 },
    Pad,
    Tail { transaction: u32 },
}

#[derive(Serialize)]
struct Features {
    names: Vec<&'static str>,
    block_size: u32,
    blocks: u32,
    transaction_limit: u32,
    fast_commit_blocks: u32,
    sequence: u32,
    start: u32,
    users: u32,
    checksum: Option<u32>,
    errno: u32,
}

#[derive(Serialize)]
struct Log {
    superblock: Option<Features>,
    inode_place: Option<(u32, u32, u64, usize)>,
    start: u32,
    sequence: u32,
    steps: Vec<Step>,
    /// Why a replay would stop where it does.
    replay_stops: String,
    /// How many transactions a replay would write.
    replayable: usize,
    fast_commits: Vec<FastStep>,
    #[serde(skip)]
    has_fast_area: bool,
}

fn type_name(block_type: u32) -> &'static str {
    match BlockType(block_type) {
        BlockType::DESCRIPTOR => "descriptor block",
        BlockType::COMMIT => "commit block",
        BlockType::SUPERBLOCK_V1 => "V1 superblock",
        BlockType::SUPERBLOCK_V2 => "V2 superblock",
        BlockType::REVOKE => "revoke table",
        _ => "unknown type",
    }
}

impl Report for Log {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        if let Some((inode, group, block, offset)) = self.inode_place {
            writeln!(to, "Inode {inode} is at group {group}, block {block}, offset {offset}")?;
        }
        if let Some(features) = &self.superblock {
            features.text(to)?;
        }
        writeln!(to, "Journal starts at block {}, transaction {}", self.start, self.sequence)?;
        self.steps.iter().try_for_each(|step| step.text(to))?;
        if self.has_fast_area {
            writeln!(to, "\n*** Fast Commit Area ***")?;
            self.fast_commits.iter().try_for_each(|step| step.text(to))?;
        }
        Ok(())
    }
}

impl Features {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "Journal features:        ")?;
        if self.names.is_empty() {
            write!(to, " (none)")?;
        }
        self.names.iter().try_for_each(|name| write!(to, " {name}"))?;
        let kilobytes = u64::from(self.block_size) * u64::from(self.blocks) / 1024;
        let size = if kilobytes < 8192 { format!("{kilobytes}k") } else { format!("{}M", kilobytes >> 10) };
        writeln!(to, "\nTotal journal size:       {size}")?;
        writeln!(to, "Total journal blocks:     {}", self.blocks)?;
        writeln!(to, "Max transaction length:   {}", self.transaction_limit)?;
        writeln!(to, "Fast commit length:       {}", self.fast_commit_blocks)?;
        writeln!(to, "Journal sequence:         0x{:08x}", self.sequence)?;
        writeln!(to, "Journal start:            {}", self.start)?;
        if self.names.contains(&"journal_checksum") {
            writeln!(to, "Journal checksum type:    crc32")?;
        }
        if let Some(checksum) = self.checksum {
            writeln!(to, "Journal checksum type:    crc32c")?;
            writeln!(to, "Journal checksum:         0x{checksum:08x}")?;
        }
        if self.errno != 0 {
            writeln!(to, "Journal errno:            {}", self.errno.cast_signed())?;
        }
        writeln!(to)
    }
}

impl Step {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Block { block, sequence, block_type } => {
                let name = type_name(*block_type);
                writeln!(
                    to,
                    "Found expected sequence {sequence}, type {block_type} ({name}) at block {block}"
                )
            }
            Self::Descriptor { block, sequence } => {
                writeln!(to, "Dumping descriptor block, sequence {sequence}, at block {block}:")
            }
            Self::Tag { target, block, sequence, flags, brief, contents } => {
                if *brief {
                    write!(to, "  FS block {target} logged at sequence {sequence}, journal block {block}")?;
                } else {
                    write!(to, "  FS block {target} logged at journal block {block}")?;
                }
                writeln!(to, " (flags {flags:#x})")?;
                contents.as_ref().map_or(Ok(()), |contents| hexdump(to, contents))
            }
            Self::RevokeTable { block, sequence } => {
                writeln!(to, "Dumping revoke block, sequence {sequence}, at block {block}:")
            }
            Self::BitmapBit { block, set } => {
                let state = if *set { "SET" } else { "CLEAR" };
                writeln!(to, "    (block bitmap for block {block}: block is {state})")
            }
            Self::Revoke { target } => writeln!(to, "  Revoke FS block {target}"),
            Self::OtherSequence { block, found, wanted } => {
                writeln!(to, "Found sequence {found} (not {wanted}) at block {block}: end of journal.")
            }
            Self::NoMagic { block } => writeln!(to, "No magic number at block {block}: end of journal."),
            Self::UnknownType { block, block_type } => {
                writeln!(to, "Unexpected block type {block_type} at block {block}.")
            }
            Self::AllRecords { count } => writeln!(to, "Dump all {count} journal records."),
            Self::Bad { block, what } => writeln!(to, "Block {block}: {what}"),
        }
    }
}

impl FastStep {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Head { features, transaction } => {
                writeln!(to, "tag HEAD, features {features:#x}, tid {transaction}")
            }
            Self::AddRange { inode, logical, block, length } => {
                writeln!(to, "tag ADD_RANGE, inode {inode}, lblk {logical}, pblk {block}, len {length}")
            }
            Self::DeleteRange { inode, logical, length } => {
                writeln!(to, "tag DEL_RANGE, inode {inode}, lblk {logical}, len {length}")
            }
            Self::Name { what, parent, inode, name } => {
                write!(to, "tag {what}, parent {parent}, ino {inode}, name \"")?;
                to.write_all(&name.0)?;
                writeln!(to, "\"")
            }
            Self::Inode { inode } => writeln!(to, "tag INODE, inode {inode}"),
            Self::Pad => writeln!(to, "tag PAD"),
            Self::Tail { transaction } => writeln!(to, "tag TAIL, tid {transaction}"),
        }
    }

    fn of(record: &Record<'_>) -> Self {
        match record {
            Record::Head { features, transaction } => {
                Self::Head { features: *features, transaction: transaction.0 }
            }
            Record::AddRange { inode, extent } => {
                let extent = extent.extent();
                let (logical, block) = (extent.logical.0, extent.physical.0);
                Self::AddRange { inode: inode.get(), logical, block, length: extent.length }
            }
            Record::DeleteRange { inode, start, count } => {
                Self::DeleteRange { inode: inode.get(), logical: start.0, length: *count }
            }
            Record::Create(change) => Self::name("CREAT_DENTRY", change.parent, change.inode, change.name),
            Record::Link(change) => Self::name("LINK_DENTRY", change.parent, change.inode, change.name),
            Record::Unlink(change) => Self::name("UNLINK_DENTRY", change.parent, change.inode, change.name),
            Record::Inode { inode, .. } => Self::Inode { inode: inode.get() },
            Record::Pad => Self::Pad,
            Record::Tail { transaction, .. } => Self::Tail { transaction: transaction.0 },
        }
    }

    fn name(what: &'static str, parent: InodeNumber, inode: InodeNumber, name: &[u8]) -> Self {
        Self::Name { what, parent: parent.get(), inode: inode.get(), name: name.into() }
    }
}

/// What of the log is wanted.
struct Wanted {
    all: bool,
    contents: bool,
    old: bool,
    block: Option<u64>,
    /// Where the bitmap of the wanted block lies, and its bit there.
    bitmap: Option<(u64, u32)>,
    limit: Option<u64>,
}

/// A walk over the log; no block is looked at twice.
struct Walk<'a> {
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
        let mut buffer = Vec::new();
        while self.left > 0 {
            if self.wanted.limit.is_some_and(|limit| records >= limit) {
                break;
            }
            let block = self.cursor;
            let bytes = self.journal.blocks().read(block, &mut buffer)?.to_vec();
            let Some(header) = BlockHeader::of(&bytes) else {
                self.steps.push(Step::NoMagic { block });
                break;
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
        if self.wanted.limit.is_some() {
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
            let contents = if self.wanted.contents || bitmap.is_some() {
                let mut bytes = self.journal.blocks().read(block, &mut Vec::new())?.to_vec();
                if tag.flags.contains(TagFlags::ESCAPE) {
                    unescape(&mut bytes);
                }
                Some(bytes)
            } else {
                None
            };
            let bit = bitmap.zip(contents.as_ref()).map(|((_, bit), bytes)| Bits(bytes).is_set(bit));
            let contents = contents.filter(|_| self.wanted.contents);
            let (flags, brief) = (tag.flags.bits(), !self.wanted.all);
            self.steps.push(Step::Tag { target: tag.block, block, sequence, flags, brief, contents });
            let wanted = self.wanted.block.unwrap_or(0);
            self.steps.extend(bit.map(|set| Step::BitmapBit { block: wanted, set }));
        }
        Ok(())
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

fn describe(superblock: &JournalSuperblock) -> Features {
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
        blocks: superblock.s_maxlen.get(),
        transaction_limit: superblock.s_maxlen.get().saturating_sub(fast),
        fast_commit_blocks: fast,
        sequence: superblock.s_sequence.get(),
        start: superblock.s_start.get(),
        users: superblock.s_nr_users.get(),
        checksum: sums.then(|| superblock.s_checksum.get()),
        errno: superblock.s_errno.get(),
    }
}

fn wanted_of(call: &Call<'_>, flags: &Flags) -> std::result::Result<Wanted, Failure> {
    if flags.has('s') || flags.has('f') {
        let what = "journals outside of the filesystem (-f), or found by the superblock alone (-s), are not read yet";
        return Err(Failure::new(FailureKind::Unsupported, call.name.clone(), what));
    }
    let value = |letter: char, what: &str| {
        flags.value(letter).map(|word| number_or(&call.name, what, word)).transpose()
    };
    Ok(Wanted {
        all: flags.has('a'),
        contents: flags.has('c'),
        old: flags.has('O'),
        block: value('b', "block")?,
        bitmap: None,
        limit: value('n', "number of transactions")?,
    })
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
    }
    let found = open_internal(&open.image).map_err(|error| call.failed(&error))?;
    let problem = found.inode_damage.map(|error| call.failed(&error));
    let journal = found.journal;
    let superblock = journal.superblock();
    let start = superblock.s_start.get();
    let scan =
        journal.scan(open.txn.layout().geometry.blocks_count()).map_err(|error| call.failed(&error))?;
    let cursor = if start == 0 { journal.extent().first } else { start };
    let left = if start == 0 && !wanted.old { 0 } else { journal.extent().length() };
    let mut walk = Walk { journal: &journal, wanted, steps: Vec::new(), cursor, left };
    walk.run(superblock.s_sequence.get()).map_err(|error| call.failed(&error))?;
    let steps = walk.steps;
    let fast_commits = fast_steps(&journal).map_err(|error| call.failed(&error))?;
    let log = Log {
        superblock: flags.has('S').then(|| describe(superblock)),
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
    let mut file = io::BufWriter::new(File::create(std::ffi::OsStr::from_bytes(path)).map_err(failed)?);
    log.text(&mut file).and_then(|()| file.flush()).map_err(failed)?;
    Ok(Answer::silent().with(problem))
}
