//! The blocks of a directory: how they look, reading them, adding one.

use crate::disk::dirent::{self, EntryFormat};
use crate::disk::features::Incompat;
use crate::disk::htree;
use crate::disk::inode::{Inode, InodeFlags};
use crate::error::{Defect, Error, Place, Result};
use crate::ids::{BlockNumber, BlockRun, LogicalBlock};
use crate::tree::map::{self, State};
use crate::txn::{Block, BlockKind, BlockRequest, Transaction, create};

/// How the blocks of one directory look.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How entries look.
    pub format: EntryFormat,
    /// Whether leaves end in a checksum tail.
    pub checksummed: bool,
    /// Base-2 logarithm of the block size.
    pub block_bits: u32,
}

/// How the blocks of a directory look; an error if the inode is none.
pub fn shape(txn: &dyn Transaction, dir: &Inode) -> Result<Shape> {
    if !dir.view().is_directory() {
        return Err(Error::NotADirectory(dir.number()));
    }
    let flags = dir.view().flags();
    let layout = txn.layout();
    let format = EntryFormat {
        block_size: layout.geometry.block_size(),
        file_type: layout.features().incompat.contains(Incompat::FILETYPE),
        hashed: flags.contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD),
    };
    Ok(Shape {
        format,
        checksummed: layout.checksum_seed.is_some(),
        block_bits: layout.geometry.block_bits(),
    })
}

/// What to call a block of a directory.
pub(super) fn place(dir: &Inode, logical: LogicalBlock, block: BlockNumber) -> Place {
    Place::DirectoryBlock { inode: dir.number(), logical: Some(logical), block }
}

/// How many blocks the directory's size stands for, but no more than the filesystem has: a size that is wrong must not
/// make a walk endless.
pub(super) fn most(txn: &dyn Transaction, dir: &Inode, shape: &Shape) -> u64 {
    (dir.view().size() >> shape.block_bits).min(txn.layout().geometry.blocks_count())
}

/// Every block within the directory's size that is mapped, in order. Holes, which an intact directory has not, are passed
/// over by segment, since a size that is wrong may stand for billions of them.
pub(super) fn mapped<'a>(
    txn: &'a dyn Transaction,
    dir: &'a Inode,
    shape: &Shape,
) -> impl Iterator<Item = Result<LogicalBlock>> + use<'a> {
    let size = dir.view().size() >> shape.block_bits;
    let most = usize::try_from(most(txn, dir, shape)).unwrap_or(usize::MAX);
    let segments = map::segments(txn, dir, LogicalBlock(0)).take_while(move |segment| {
        segment.as_ref().map_or(true, |segment| u64::from(segment.logical.0) < size)
    });
    let blocks = segments.flat_map(move |segment| {
        let (range, error) = match segment {
            Ok(segment) => (u64::from(segment.logical.0)..segment.end().min(size), None),
            Err(error) => (0..0, Some(Err(error))),
        };
        range
            .filter_map(|logical| u32::try_from(logical).ok())
            .map(|logical| Ok(LogicalBlock(logical)))
            .chain(error)
    });
    blocks.take(most)
}

/// Where a block of the directory lies; `None` for a hole, which an intact directory has not.
pub(super) fn locate(
    txn: &dyn Transaction,
    dir: &Inode,
    logical: LogicalBlock,
) -> Result<Option<BlockNumber>> {
    match map::lookup(txn, dir, logical)?.state {
        State::Written(block) => Ok(Some(block)),
        State::Hole | State::Unwritten(_) => Ok(None),
    }
}

/// A block of entries, its checksum verified. `None` for a hole and for a node of the hash tree. The root of a tree is
/// passed too: its `.` and `..` are entries like any.
pub(super) fn read_leaf(
    txn: &dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    logical: LogicalBlock,
) -> Result<Option<(BlockNumber, Block)>> {
    let Some(block) = locate(txn, dir, logical)? else { return Ok(None) };
    let may_be_index = dir.view().flags().contains(InodeFlags::INDEX);
    if may_be_index {
        let bytes = txn.read(block, BlockKind::Plain)?;
        if let Some(entries) = htree::entries_offset(&bytes)
            && dirent::tail_offset(&bytes).is_none_or(|_| !shape.checksummed)
            && (shape.checksummed || entries == htree::ROOT_ENTRIES)
        {
            let bytes = txn.read(block, BlockKind::DirectoryIndex(dir.owner(), logical))?;
            return Ok((entries == htree::ROOT_ENTRIES).then_some((block, dots_of(&bytes, shape))));
        }
    }
    let bytes = txn.read(block, BlockKind::DirectoryLeaf(dir.owner(), logical))?;
    Ok(Some((block, bytes)))
}

/// The root of a tree as a leaf would look: its `..` ends before where a tail would be.
fn dots_of(root: &Block, shape: &Shape) -> Block {
    if !shape.checksummed {
        return root.clone();
    }
    let mut bytes = root.to_vec();
    let rest = bytes.len().saturating_sub(dirent::MIN_RECORD).saturating_sub(dirent::TAIL_SIZE);
    if let Ok(length) = dirent::encode_rec_len(rest, shape.format.block_size) {
        // `..` begins behind `.`, and its length lies four bytes into it.
        let _ = crate::bytes::put_le16(&mut bytes, dirent::MIN_RECORD.saturating_add(4), length);
    }
    Block::new(bytes.into())
}

/// Adds a block behind the last and returns its place; the directory grows by it. `kind` says what it will be.
pub(super) fn append(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
) -> Result<(LogicalBlock, BlockNumber)> {
    let count = dir.view().size() >> shape.block_bits;
    let logical = u32::try_from(count).map_err(|_| Error::FileTooBig(dir.number()))?;
    let logical = LogicalBlock(logical);
    let large = txn.layout().features().incompat.contains(Incompat::LARGE_DIR);
    let size = count.saturating_add(1) << shape.block_bits;
    if !large && size > i32::MAX.unsigned_abs().into() {
        return Err(Error::FileTooBig(dir.number()));
    }
    let block = take_block(txn, dir, logical)?;
    map::insert(txn, dir, logical, BlockRun::single(block), false)?;
    dir.set_size(size);
    Ok((logical, block))
}

/// The block that a directory's next block goes to: in the cluster that it owns already, or a free one near its last.
fn take_block(txn: &mut dyn Transaction, dir: &Inode, logical: LogicalBlock) -> Result<BlockNumber> {
    let geometry = txn.layout().geometry.clone();
    let bits = geometry.cluster_bits();
    let within = u64::from(logical.0) & u64::from(geometry.blocks_per_cluster().saturating_sub(1));
    if within > 0
        && let Some(start) = map::block_in_cluster(txn, dir, u64::from(logical.0) >> bits)?
    {
        return Ok(BlockNumber(start.0.saturating_add(within)));
    }
    let last = logical.0.checked_sub(1).map(LogicalBlock);
    let after_last = match last {
        Some(last) => locate(txn, dir, last)?.and_then(|block| block.checked_add(1)),
        None => None,
    };
    let group = geometry.inode_place(dir.number()).map(|(group, _)| geometry.group_start(group));
    let goal = after_last.or(group).unwrap_or_default();
    let run = txn.allocate_blocks(BlockRequest { goal, wanted: 1, owner: dir.number() })?;
    Ok(BlockNumber(run.start.0.saturating_add(within)))
}

/// Adds a leaf behind the last block and fills its area of entries.
pub(super) fn append_leaf(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Defect>,
) -> Result<(LogicalBlock, BlockNumber)> {
    let (logical, block) = append(txn, dir, shape)?;
    create(txn, block, BlockKind::DirectoryLeaf(dir.owner(), logical), |bytes| {
        write_leaf(bytes, shape, fill)
    })?
    .map_err(|defect| defect.at(place(dir, logical, block)))?;
    Ok((logical, block))
}

/// Fills a leaf's area of entries and gives it its tail.
pub(super) fn write_leaf(
    bytes: &mut [u8],
    shape: &Shape,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Defect>,
) -> Result<(), Defect> {
    fill(dirent::leaf_area_mut(bytes, shape.checksummed))?;
    if shape.checksummed { dirent::write_tail(bytes) } else { Ok(()) }
}
