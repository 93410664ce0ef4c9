//! What can go wrong, and where.
//!
//! Errors are split by who must act: the device ([`Error::Io`]), whoever wrote the image ([`Error::Corrupt`],
//! [`Error::Unsupported`], [`Error::NotFilesystem`]), or the caller (the rest). A leaf that finds something wrong
//! returns a [`Defect`]; the caller who knows the place adds it with [`Defect::at`].

use std::fmt;
use std::io;

use crate::ids::{BlockNumber, GroupNumber, InodeNumber, LogicalBlock};

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in reading, checking or changing an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device or file failed.
    #[error("{place}: {source}")]
    Io {
        /// What was being read or written.
        place: Place,
        /// What the system said.
        source: io::Error,
    },
    /// The image contradicts the format or itself.
    #[error("{place}: {defect}")]
    Corrupt {
        /// The damaged structure.
        place: Place,
        /// What is wrong with it.
        defect: Defect,
    },
    /// Sound, as far as can be told, but beyond what this version handles. The text names the feature.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// There is no ext2/3/4 filesystem here.
    #[error("not an ext2/3/4 filesystem: {0}")]
    NotFilesystem(String),
    /// No free block is left that the request could take.
    #[error("no free block is left")]
    NoSpace,
    /// No free inode is left.
    #[error("no free inode is left")]
    NoInodes,
    /// The name is not in the directory, or the attribute is not on the inode.
    #[error("{0}: not found")]
    NotFound(String),
    /// The name is already in the directory, or the attribute already on the inode.
    #[error("{0}: already exists")]
    AlreadyExists(String),
    /// A directory was needed.
    #[error("inode {0} is not a directory")]
    NotADirectory(InodeNumber),
    /// Something that is not a directory was needed.
    #[error("inode {0} is a directory")]
    IsADirectory(InodeNumber),
    /// The directory still has entries.
    #[error("directory {0} is not empty")]
    NotEmpty(InodeNumber),
    /// A name is empty, longer than 255 bytes, or holds a byte that no name may hold.
    #[error("{0}")]
    BadName(String),
    /// The inode has as many links as the format allows.
    #[error("inode {0} has as many links as the format allows")]
    TooManyLinks(InodeNumber),
    /// The file would be larger than its mapping or the format allows.
    #[error("inode {0} would be larger than the format allows")]
    FileTooBig(InodeNumber),
    /// An extended attribute does not fit where the format lets it be.
    #[error("extended attribute {0} does not fit")]
    AttributeTooBig(String),
    /// The store cannot be written.
    #[error("opened read-only")]
    ReadOnly,
    /// Somebody else has the image in use.
    #[error("{0}")]
    InUse(String),
    /// Something went wrong with a file of a tree that is being copied.
    #[error("{path}: {source}")]
    InSource {
        /// The file's path from the tree's root.
        path: String,
        /// What went wrong.
        source: Box<Error>,
    },
    /// The caller asked for something that cannot be; the text says what and why.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// An I/O error at a place.
    pub fn io(place: Place) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { place, source }
    }

    /// Whether the image is damaged, as opposed to the device failing or the caller being wrong.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}

/// A structure of the image, named so that a person finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The primary superblock.
    Superblock,
    /// The copy of the superblock in a block.
    SuperblockCopy(BlockNumber),
    /// The descriptor of a group.
    GroupDescriptor(GroupNumber),
    /// The block bitmap of a group.
    BlockBitmap(GroupNumber),
    /// The inode bitmap of a group.
    InodeBitmap(GroupNumber),
    /// The inode table of a group.
    InodeTable(GroupNumber),
    /// An inode.
    Inode(InodeNumber),
    /// The extent tree of an inode: a block, or `None` for the root inside the inode.
    ExtentNode {
        /// The tree's owner.
        inode: InodeNumber,
        /// Where the node lies, or `None` for the root.
        block: Option<BlockNumber>,
    },
    /// A block of an inode's block map.
    IndirectBlock {
        /// The map's owner.
        inode: InodeNumber,
        /// Where the block lies.
        block: BlockNumber,
    },
    /// A block of a directory.
    DirectoryBlock {
        /// The directory.
        inode: InodeNumber,
        /// Which of its blocks, where that is known.
        logical: Option<LogicalBlock>,
        /// Where the block lies.
        block: BlockNumber,
    },
    /// The inline data of an inode.
    InlineData(InodeNumber),
    /// What of an inode's inline data lies in its attribute `system.data`.
    InlineRest(InodeNumber),
    /// Extended attributes inside an inode.
    InodeAttributes(InodeNumber),
    /// A block of extended attributes.
    AttributeBlock(BlockNumber),
    /// A block of a file.
    FileBlock {
        /// The file.
        inode: InodeNumber,
        /// Where the block lies.
        block: BlockNumber,
    },
    /// A block of the orphan file.
    OrphanBlock(BlockNumber),
    /// The multi-mount protection block.
    MmpBlock(BlockNumber),
    /// A block of a quota file.
    QuotaBlock {
        /// The quota file.
        inode: InodeNumber,
        /// Which 1024-byte block of it.
        index: u32,
    },
    /// A block of a journal, counted from the journal's start.
    JournalBlock(u32),
    /// A block of the filesystem whose use is not known.
    Block(BlockNumber),
    /// Bytes of the store.
    Bytes {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// A file beside the image: undo file, redo log.
    File(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => write!(f, "superblock"),
            Self::SuperblockCopy(block) => write!(f, "copy of the superblock in block {block}"),
            Self::GroupDescriptor(group) => write!(f, "descriptor of group {group}"),
            Self::BlockBitmap(group) => write!(f, "block bitmap of group {group}"),
            Self::InodeBitmap(group) => write!(f, "inode bitmap of group {group}"),
            Self::InodeTable(group) => write!(f, "inode table of group {group}"),
            Self::Inode(inode) => write!(f, "inode {inode}"),
            Self::ExtentNode { inode, block: Some(block) } => {
                write!(f, "extent block {block} of inode {inode}")
            }
            Self::ExtentNode { inode, block: None } => write!(f, "extent root of inode {inode}"),
            Self::IndirectBlock { inode, block } => write!(f, "indirect block {block} of inode {inode}"),
            Self::DirectoryBlock { inode, logical: Some(logical), block } => {
                write!(f, "directory {inode}, block {logical} (at {block})")
            }
            Self::DirectoryBlock { inode, logical: None, block } => {
                write!(f, "directory {inode}, block at {block}")
            }
            Self::InlineData(inode) => write!(f, "inline data of inode {inode}"),
            Self::InlineRest(inode) => write!(f, "rest of the inline data of inode {inode}"),
            Self::InodeAttributes(inode) => write!(f, "extended attributes in inode {inode}"),
            Self::AttributeBlock(block) => write!(f, "extended attribute block {block}"),
            Self::FileBlock { inode, block } => write!(f, "block {block} of inode {inode}"),
            Self::OrphanBlock(block) => write!(f, "orphan file block {block}"),
            Self::MmpBlock(block) => write!(f, "multi-mount protection block {block}"),
            Self::QuotaBlock { inode, index } => write!(f, "quota file {inode}, block {index}"),
            Self::JournalBlock(block) => write!(f, "journal block {block}"),
            Self::Block(block) => write!(f, "block {block}"),
            Self::Bytes { offset, length } => write!(f, "{length} bytes at offset {offset}"),
            Self::File(path) => write!(f, "{path}"),
        }
    }
}

/// What is wrong with a structure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// The stored checksum is not that of the contents.
    #[error("checksum is {stored:#010x}, contents give {computed:#010x}")]
    Checksum {
        /// As stored, widened to 32 bits.
        stored: u32,
        /// As computed over the contents, widened to 32 bits.
        computed: u32,
    },
    /// The structure does not begin with its magic number.
    #[error("magic number is {found:#x}, not {wanted:#x}")]
    Magic {
        /// What is there.
        found: u32,
        /// What should be.
        wanted: u32,
    },
    /// A field holds a number outside the range that it may have here.
    #[error("{field} is {value}, which is outside {least}..={most}")]
    Range {
        /// The field's name as the kernel spells it.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The smallest value allowed here.
        least: u64,
        /// The largest value allowed here.
        most: u64,
    },
    /// The structure ends before the field or record does.
    #[error("{what} is cut short")]
    Truncated {
        /// What is cut.
        what: &'static str,
    },
    /// Parts of the structure contradict each other; the text says which.
    #[error("{0}")]
    Contradiction(String),
    /// A walk met the same place again, or went deeper than the format allows.
    #[error("{what} runs in a loop or deeper than the format allows")]
    Loop {
        /// What was walked.
        what: &'static str,
    },
}

impl Defect {
    /// The error of this defect at a place.
    pub fn at(self, place: Place) -> Error {
        Error::Corrupt { place, defect: self }
    }

    /// Checks that a field's value lies in the inclusive range that it may have.
    pub fn check_range(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), Self> {
        if (least..=most).contains(&value) { Ok(()) } else { Err(Self::Range { field, value, least, most }) }
    }
}
