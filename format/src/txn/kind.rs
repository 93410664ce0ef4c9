//! What a block is, and whose.

use crate::error::Place;
use crate::ids::{BlockNumber, GroupNumber, InodeNumber, LogicalBlock};

/// The inode that a block hangs from. Number and generation are the seed of the block's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The inode's number.
    pub inode: InodeNumber,
    /// Its `i_generation`.
    pub generation: u32,
}

/// The kind of a metadata block: which checksum it carries and what to call it.
///
/// Where many records share a block, the kind names the record that is read or changed; a transaction collects
/// those that were changed and puts each one's checksum right on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// The block that holds the primary superblock (at byte 1024 of the filesystem).
    Superblock,
    /// A block of group descriptors, asked for because of this group.
    Descriptor(GroupNumber),
    /// The block bitmap of a group; its checksum is kept in the group's descriptor.
    BlockBitmap(GroupNumber),
    /// The inode bitmap of a group; its checksum is kept in the group's descriptor.
    InodeBitmap(GroupNumber),
    /// A block of the inode table, asked for because of this inode.
    Inode(InodeNumber),
    /// A node of an extent tree outside the inode.
    ExtentNode(Owner),
    /// A block of pointers of a block map; it carries no checksum.
    IndirectBlock(InodeNumber),
    /// A directory block of entries that ends in a checksum tail.
    DirectoryLeaf(Owner, LogicalBlock),
    /// The root or an inner node of a directory's hash tree.
    DirectoryIndex(Owner, LogicalBlock),
    /// A block of extended attributes.
    Attributes,
    /// A block of the orphan file.
    Orphan(Owner),
    /// The multi-mount protection block.
    Mmp,
    /// A block of a quota file; it carries no checksum.
    Quota(InodeNumber),
    /// A block of the journal that is written outside of any log; whoever writes it puts its checksum right.
    Journal,
    /// File contents or a symlink's target inside a transaction; no checksum.
    Contents(InodeNumber),
    /// Anything else, taken as it is: boot block, backups, blocks written by hand.
    Plain,
}

impl BlockKind {
    /// What to call a block of this kind at a place, for errors and listings.
    pub fn place(self, block: BlockNumber) -> Place {
        match self {
            Self::Superblock => Place::Superblock,
            Self::Descriptor(group) => Place::GroupDescriptor(group),
            Self::BlockBitmap(group) => Place::BlockBitmap(group),
            Self::InodeBitmap(group) => Place::InodeBitmap(group),
            Self::Inode(inode) => Place::Inode(inode),
            Self::ExtentNode(owner) => Place::ExtentNode { inode: owner.inode, block: Some(block) },
            Self::IndirectBlock(inode) => Place::IndirectBlock { inode, block },
            Self::DirectoryLeaf(owner, logical) | Self::DirectoryIndex(owner, logical) => {
                Place::DirectoryBlock { inode: owner.inode, logical: Some(logical), block }
            }
            Self::Attributes => Place::AttributeBlock(block),
            Self::Orphan(_) => Place::OrphanBlock(block),
            Self::Mmp => Place::MmpBlock(block),
            Self::Quota(inode) | Self::Contents(inode) => Place::FileBlock { inode, block },
            Self::Journal | Self::Plain => Place::Block(block),
        }
    }
}
