//! Entries of a directory, unused and removed ones included.

use ext4kit_format::disk::dirent::{self, EntryFormat, MIN_RECORD};
use ext4kit_format::disk::htree;
use ext4kit_format::disk::inode::{Inode, InodeFlags};
use ext4kit_format::tree::dir;
use ext4kit_format::txn::{Block, BlockKind, Transaction};
use ext4kit_format::{BlockNumber, Error, InodeNumber, LogicalBlock, Place, Result};

use crate::walk::{self, Piece};

/// An entry as it lies in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it names; `None` where it is unused.
    pub inode: Option<InodeNumber>,
    /// Length of its record in bytes.
    pub rec_len: usize,
    /// The kind of file, as a number.
    pub file_type: u8,
    /// Its name, as stored.
    pub name: Vec<u8>,
    /// Whether it was removed: it lies in the room that the entry before it left.
    pub removed: bool,
    /// The stored checksum, for the record at the end of a block that holds it.
    pub checksum: Option<u32>,
    /// The directory's block.
    pub logical: u64,
    /// Where that lies.
    pub block: u64,
    /// The byte of the block at which the record begins.
    pub offset: usize,
}

/// A block of a directory.
pub struct DirectoryBlock {
    /// Its number in the directory.
    pub logical: u64,
    /// Where it lies.
    pub at: BlockNumber,
    /// Its bytes.
    pub bytes: Block,
    /// How entries look in it.
    pub format: EntryFormat,
    /// Whether it ends in a checksum record; else it is a node of the hash tree, or has no checksum.
    pub has_tail: bool,
    /// Whether it is a node of the hash tree.
    pub is_index: bool,
}

/// What was found, and what could not be read.
#[derive(Debug, Default)]
pub struct Listing {
    /// The entries in the order on disk.
    pub entries: Vec<Listed>,
    /// What could not be read.
    pub errors: Vec<Error>,
}

/// Calls `visit` for each block of a directory that can be read; what cannot be is returned. A directory has as many
/// blocks as its size says; those that its map has beyond are not its own.
pub fn blocks(
    txn: &dyn Transaction,
    directory: &Inode,
    visit: &mut dyn FnMut(&DirectoryBlock) -> Result<()>,
) -> Result<Vec<Error>> {
    let shape = dir::shape(txn, directory)?;
    if !walk::has_map(directory) {
        return Err(Error::Unsupported(format!(
            "inode {}: a directory inside its inode",
            directory.number()
        )));
    }
    let count = directory.view().size() >> shape.block_bits;
    let most = txn.layout().geometry.blocks_count();
    let walked = walk::pieces(txn, directory);
    let mut errors = walked.errors;
    // A hostile map may name the same blocks again and again; there are not more of them than the filesystem has.
    let mut read = 0;
    for piece in walked.pieces {
        let Piece::Data { logical, block, length, unwritten: false } = piece else { continue };
        for (logical, block) in (logical..logical.saturating_add(length)).zip(block..) {
            if logical >= count {
                break;
            }
            read += 1;
            if read > most {
                let text = "the directory has more blocks than the filesystem".to_owned();
                errors.push(ext4kit_format::Defect::Contradiction(text).at(Place::Inode(directory.number())));
                return Ok(errors);
            }
            let visited = read_block(txn, directory, shape, (logical, BlockNumber(block)));
            if let Err(error) = visited.and_then(|block| visit(&block)) {
                errors.push(error);
            }
        }
    }
    Ok(errors)
}

fn read_block(
    txn: &dyn Transaction,
    directory: &Inode,
    shape: dir::Shape,
    (logical, at): (u64, BlockNumber),
) -> Result<DirectoryBlock> {
    let number = LogicalBlock(u32::try_from(logical).map_err(|_| Error::FileTooBig(directory.number()))?);
    let plain = txn.read(at, BlockKind::Plain)?;
    let tail = dirent::tail_offset(&plain).is_some();
    let indexed = directory.view().flags().contains(InodeFlags::INDEX);
    let is_index = indexed
        && !(shape.checksummed && tail)
        && htree::entries_offset(&plain)
            .is_some_and(|entries| shape.checksummed || entries == htree::ROOT_ENTRIES || logical == 0);
    let kind = if is_index {
        BlockKind::DirectoryIndex(directory.owner(), number)
    } else {
        BlockKind::DirectoryLeaf(directory.owner(), number)
    };
    let bytes = txn.read(at, kind)?;
    Ok(DirectoryBlock {
        logical,
        at,
        bytes,
        format: shape.format,
        has_tail: shape.checksummed && !is_index,
        is_index,
    })
}

/// Every entry of a directory, unused ones and checksum records included, removed ones where asked for.
pub fn entries(txn: &dyn Transaction, directory: &Inode, with_removed: bool) -> Result<Listing> {
    if !walk::has_map(directory) {
        return inside(txn, directory);
    }
    let mut found = Vec::new();
    let errors = blocks(txn, directory, &mut |block| entries_of(directory, block, with_removed, &mut found))?;
    Ok(Listing { entries: found, errors })
}

/// The entries of a directory inside its inode. Records are told as long as their names need.
fn inside(txn: &dyn Transaction, directory: &Inode) -> Result<Listing> {
    let format = dir::shape(txn, directory)?.format;
    let mut entries = Vec::new();
    let walked = dir::for_each(txn, directory, &mut |entry| {
        entries.push(Listed {
            inode: Some(entry.found.inode),
            rec_len: format.needed(entry.name),
            file_type: entry.found.file_type.0,
            name: entry.name.to_vec(),
            removed: false,
            checksum: None,
            logical: 0,
            block: 0,
            offset: entry.found.location.offset,
        });
        Ok(std::ops::ControlFlow::Continue(()))
    });
    Ok(Listing { entries, errors: walked.err().into_iter().collect() })
}

fn entries_of(
    directory: &Inode,
    block: &DirectoryBlock,
    with_removed: bool,
    found: &mut Vec<Listed>,
) -> Result<()> {
    let place = || Place::DirectoryBlock {
        inode: directory.number(),
        logical: u32::try_from(block.logical).ok().map(LogicalBlock),
        block: block.at,
    };
    for entry in block.format.entries(dirent::leaf_area(&block.bytes, block.has_tail)) {
        let entry = entry.map_err(|bad| bad.defect.at(place()))?;
        let listed = Listed {
            inode: entry.inode,
            rec_len: entry.rec_len,
            file_type: entry.file_type.0,
            name: entry.name.to_vec(),
            removed: false,
            checksum: None,
            logical: block.logical,
            block: block.at.0,
            offset: entry.offset,
        };
        let slack = entry.offset + block.format.needed(entry.name)..entry.offset + entry.rec_len;
        found.push(listed);
        if with_removed && entry.inode.is_some() && !block.format.hashed && !block.is_index {
            removed(block, slack, found);
        }
    }
    if block.has_tail
        && let Some(at) = dirent::tail_offset(&block.bytes)
    {
        let stored = ext4kit_format::bytes::le32(&block.bytes, at + 8);
        found.push(Listed {
            inode: None,
            rec_len: dirent::TAIL_SIZE,
            file_type: dirent::FileType::TAIL.0,
            name: Vec::new(),
            removed: false,
            checksum: stored,
            logical: block.logical,
            block: block.at.0,
            offset: at,
        });
    }
    Ok(())
}

/// Removed entries in the room behind an entry: the records from one on have to end exactly where the room does.
fn removed(block: &DirectoryBlock, slack: std::ops::Range<usize>, found: &mut Vec<Listed>) {
    let mut at = slack.start;
    while at + MIN_RECORD <= slack.end {
        let room = block.bytes.get(at..slack.end).unwrap_or_default();
        let whole: Option<Vec<_>> = block.format.entries(room).map(Result::ok).collect();
        let Some(first) = whole.and_then(|entries| entries.first().copied()) else {
            at += 4;
            continue;
        };
        found.push(Listed {
            inode: first.inode,
            rec_len: first.rec_len,
            file_type: first.file_type.0,
            name: first.name.to_vec(),
            removed: true,
            checksum: None,
            logical: block.logical,
            block: block.at.0,
            offset: at,
        });
        at += block.format.needed(first.name);
    }
}
