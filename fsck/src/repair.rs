//! What a repair would do, as data: `-n` prints it, appliers carry it out, tests compare it.

use std::fmt;

use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber};

/// One repair of one finding. The place is the finding's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// Rewrite the primary superblock from the copy that was used.
    RestoreSuperblock,
    /// Write superblock and descriptors to all backup groups again.
    RewriteBackups,
    /// Write the descriptor that was taken instead of the primary one.
    RestoreDescriptor,
    /// Store a field's right value; the name is the kernel's.
    SetField {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Turn a feature off in the superblock.
    ClearFeature(&'static str),
    /// Turn a feature on in the superblock.
    SetFeature(&'static str),
    /// Compute the checksum anew; the contents were found sound.
    RefreshChecksum,
    /// Move a group's bitmap or table to free blocks.
    Relocate(GroupNumber),
    /// Flip one bit of the inode or block.
    FlipBit {
        /// The byte, from the start of the structure.
        byte: u32,
        /// The bit in it, 0 for the lowest.
        bit: u8,
    },
    /// Take flags off an inode.
    ClearInodeFlags(u32),
    /// Put flags on an inode.
    SetInodeFlags(u32),
    /// Free the inode and everything in it.
    ClearInode(InodeNumber),
    /// Cut the file or directory to this size.
    Truncate {
        /// The size in bytes.
        size: u64,
    },
    /// Take one mapping out of the file.
    Unmap {
        /// The first logical block.
        logical: u64,
        /// How many blocks.
        length: u64,
    },
    /// Build the extent tree or block map anew from what can be read of it.
    RebuildMap,
    /// Give each owner a copy of its own.
    CloneBlocks,
    /// Take the extended attributes away that are wrong.
    ClearAttributes,
    /// Build the directory block anew from the entries that can be read.
    SalvageBlock,
    /// Take one entry out of its directory.
    ClearEntry {
        /// Where it begins in its block, in bytes.
        offset: u32,
    },
    /// Give the entry another name.
    RenameEntry {
        /// Where it begins in its block, in bytes.
        offset: u32,
    },
    /// Make the entry name this inode.
    SetEntryTarget {
        /// Where it begins in its block, in bytes.
        offset: u32,
        /// The inode.
        inode: InodeNumber,
    },
    /// Store the file type that the inode has.
    SetEntryType {
        /// Where it begins in its block, in bytes.
        offset: u32,
        /// The type.
        kind: u8,
    },
    /// Give a hole of a directory an empty block.
    AllocateBlock {
        /// The logical block.
        logical: u32,
    },
    /// Build the directory's index anew.
    RebuildIndex,
    /// Take the whole table of an inode's group for used, so that all of it is checked.
    ReadWholeTable(InodeNumber),
    /// Make the root directory anew.
    CreateRoot,
    /// Make `/lost+found`.
    CreateLostAndFound,
    /// Name the inode in `/lost+found`.
    Reconnect(InodeNumber),
    /// Mark what is in use in the bitmap and free what is not.
    RewriteBitmap,
    /// Make the journal anew.
    RecreateJournal,
    /// Make the resize inode anew.
    RecreateResizeInode,
    /// Empty the list or file of orphans.
    ClearOrphans,
    /// Make the multi-mount protection block anew.
    ResetMmp,
    /// Write the block to the right place again.
    RewriteBlock(BlockNumber),
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestoreSuperblock => write!(f, "restore the superblock from its copy"),
            Self::RewriteBackups => write!(f, "rewrite the copies of superblock and descriptors"),
            Self::RestoreDescriptor => write!(f, "restore the descriptor"),
            Self::SetField { field, value } => write!(f, "set {field} to {value}"),
            Self::ClearFeature(name) => write!(f, "turn feature {name} off"),
            Self::SetFeature(name) => write!(f, "turn feature {name} on"),
            Self::RefreshChecksum => write!(f, "refresh the checksum"),
            Self::Relocate(group) => write!(f, "move metadata of group {group}"),
            Self::FlipBit { byte, bit } => write!(f, "flip bit {bit} of byte {byte}"),
            Self::ClearInodeFlags(flags) => write!(f, "clear flags {flags:#x}"),
            Self::SetInodeFlags(flags) => write!(f, "set flags {flags:#x}"),
            Self::ClearInode(inode) => write!(f, "clear inode {inode}"),
            Self::Truncate { size } => write!(f, "cut to {size} bytes"),
            Self::Unmap { logical, length } => write!(f, "unmap {length} blocks from {logical}"),
            Self::RebuildMap => write!(f, "rebuild the map"),
            Self::CloneBlocks => write!(f, "copy the shared blocks"),
            Self::ClearAttributes => write!(f, "clear the attributes"),
            Self::SalvageBlock => write!(f, "salvage the block"),
            Self::ClearEntry { .. } => write!(f, "clear the entry"),
            Self::RenameEntry { .. } => write!(f, "rename the entry"),
            Self::SetEntryTarget { inode, .. } => write!(f, "make the entry name inode {inode}"),
            Self::SetEntryType { kind, .. } => write!(f, "set the entry's type to {kind}"),
            Self::AllocateBlock { logical } => write!(f, "allocate block {logical}"),
            Self::RebuildIndex => write!(f, "rebuild the index"),
            Self::ReadWholeTable(inode) => write!(f, "check the whole table of inode {inode}"),
            Self::CreateRoot => write!(f, "make the root directory"),
            Self::CreateLostAndFound => write!(f, "make /lost+found"),
            Self::Reconnect(inode) => write!(f, "connect inode {inode} to /lost+found"),
            Self::RewriteBitmap => write!(f, "rewrite the bitmap"),
            Self::RecreateJournal => write!(f, "recreate the journal"),
            Self::RecreateResizeInode => write!(f, "recreate the resize inode"),
            Self::ClearOrphans => write!(f, "clear the orphans"),
            Self::ResetMmp => write!(f, "reset the protection block"),
            Self::RewriteBlock(block) => write!(f, "rewrite block {block}"),
        }
    }
}
