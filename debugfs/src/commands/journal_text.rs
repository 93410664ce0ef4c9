//! What `logdump` prints, in the words of debugfs.

use std::io::{self, Write};

use ext4kit_format::InodeNumber;
use ext4kit_format::disk::fast_commit::Record;
use ext4kit_format::disk::jbd2::BlockType;
use serde::Serialize;

use super::dumps::word_dump;
use super::files::Stat;
use crate::answer::{Bytes, Report};

#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(super) enum Step {
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
    },
    /// The bytes of the block before.
    Contents {
        #[serde(skip)]
        bytes: Vec<u8>,
    },
    /// The inode that was asked for, as it is in the block before.
    Inode {
        copy: Box<Stat>,
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
pub(super) enum FastStep {
    Head { features: u32, transaction: u32 },
    AddRange { inode: u32, logical: u32, block: u64, length: u32 },
    DeleteRange { inode: u32, logical: u32, length: u32 },
    Name { what: &'static str, parent: u32, inode: u32, name: Bytes },
    Inode { inode: u32 },
    Pad,
    Tail { transaction: u32 },
}

#[derive(Serialize)]
pub(super) struct Features {
    pub names: Vec<&'static str>,
    pub block_size: u32,
    #[serde(skip)]
    pub filesystem_block_size: u32,
    pub blocks: u32,
    pub transaction_limit: u32,
    pub fast_commit_blocks: u32,
    pub sequence: u32,
    pub start: u32,
    pub users: u32,
    pub checksum: Option<u32>,
    pub errno: u32,
    pub first: u32,
    /// Filesystems that use an external journal.
    pub user_names: Vec<String>,
}

/// The filesystem's superblock with which a journal on a device of its own begins.
#[derive(Serialize)]
pub(super) struct JournalDevice {
    pub uuid: String,
    pub block_size: u32,
    pub blocks: u64,
}

#[derive(Serialize)]
pub(super) struct Log {
    /// Of a journal on a device of its own.
    pub device: Option<JournalDevice>,
    #[serde(skip)]
    pub all: bool,
    pub superblock: Option<Features>,
    pub inode_place: Option<(u32, u32, u64, usize)>,
    pub start: u32,
    pub sequence: u32,
    pub steps: Vec<Step>,
    /// Why a replay would stop where it does.
    pub replay_stops: String,
    /// How many transactions a replay would write.
    pub replayable: usize,
    pub fast_commits: Vec<FastStep>,
    #[serde(skip)]
    pub has_fast_area: bool,
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
        if let Some(device) = &self.device {
            writeln!(to, "Ext2 superblock header found.")?;
            if self.all {
                writeln!(to, "\tuuid={}", device.uuid)?;
                writeln!(to, "\tblocksize={}", device.block_size)?;
                writeln!(to, "\tjournal data size {}", device.blocks)?;
            }
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
        if self.block_size != self.filesystem_block_size {
            writeln!(to, "Journal block size:       {}", self.block_size)?;
        }
        writeln!(to, "Total journal blocks:     {}", self.blocks)?;
        writeln!(to, "Max transaction length:   {}", self.transaction_limit)?;
        writeln!(to, "Fast commit length:       {}", self.fast_commit_blocks)?;
        if self.first != 1 {
            writeln!(to, "Journal first block:      {}", self.first)?;
        }
        writeln!(to, "Journal sequence:         0x{:08x}", self.sequence)?;
        writeln!(to, "Journal start:            {}", self.start)?;
        if self.users != 1 {
            writeln!(to, "Journal number of users:  {}", self.users)?;
        }
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
        for (at, user) in self.user_names.iter().enumerate() {
            writeln!(to, "{:<26}{user}", if at == 0 { "Journal users:" } else { "" })?;
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
            Self::Tag { target, block, sequence, flags, brief } => {
                if *brief {
                    write!(to, "  FS block {target} logged at sequence {sequence}, journal block {block}")?;
                } else {
                    write!(to, "  FS block {target} logged at journal block {block}")?;
                }
                writeln!(to, " (flags {flags:#x})")
            }
            Self::Contents { bytes } => word_dump(to, bytes),
            Self::Inode { copy } => {
                writeln!(to, "    (inode block for inode {}):", copy.inode)?;
                copy.text(to)
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

    pub fn of(record: &Record<'_>) -> Self {
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
