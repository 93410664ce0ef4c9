//! Contents of files: reading, writing, cutting, and the targets of symbolic links.
//!
//! File data goes to blocks through [`Transaction::write_data`], not into the transaction. Blocks that a write fills
//! only in part keep their other bytes, and read as zero where they were holes or never written.

use super::map::{self, State};
use super::{inline, inode, xattr};
use crate::disk::inode::{Inode, InodeFlags, MAP_SIZE, short_symlink_target};
use crate::error::{Defect, Error, Place, Result};
use crate::ids::{BlockNumber, BlockRun, InodeNumber, LogicalBlock};
use crate::num::{index64, wide};
use crate::txn::{BlockKind, BlockRequest, Transaction, create};

/// Longest target of a symbolic link, in bytes.
pub const MAX_SYMLINK: usize = 4095;
/// Most bytes of a file that are held in memory at once.
const CHUNK: u64 = 1 << 20;

/// Fills the buffer from a byte of the file on; how many bytes there were. Fewer than asked for come only at the end.
pub fn read(txn: &dyn Transaction, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    if is_inline(inode) {
        return inline::read(inode, offset, buffer);
    }
    let left = inode.view().size().saturating_sub(offset);
    let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
    let (mut at, mut rest) = (offset, buffer.get_mut(..length).unwrap_or_default());
    while !rest.is_empty() {
        let done = read_piece(txn, inode, at, rest)?.clamp(1, rest.len());
        at = at.saturating_add(wide(done));
        rest = rest.get_mut(done..).unwrap_or_default();
    }
    Ok(length)
}

/// Reads up to the end of a segment, or of what is held at once; how many bytes.
fn read_piece(txn: &dyn Transaction, inode: &Inode, at: u64, buffer: &mut [u8]) -> Result<usize> {
    let bits = txn.layout().geometry.block_bits();
    let logical = logical_of(inode, at >> bits)?;
    let segment = map::lookup(txn, inode, logical)?;
    let within = at.saturating_sub(u64::from(logical.0) << bits);
    let available = (segment.length << bits).saturating_sub(within);
    let length = wide(buffer.len()).min(available).min(CHUNK);
    let target = buffer.get_mut(..index64(length)).unwrap_or_default();
    match segment.state {
        State::Hole | State::Unwritten(_) => target.fill(0),
        State::Written(start) => {
            let blocks = within.saturating_add(length).div_ceil(1 << bits);
            let mut bytes = vec![0; index64(blocks << bits)];
            txn.read_data(start, &mut bytes)?;
            let from = bytes.get(index64(within)..).and_then(|bytes| bytes.get(..target.len()));
            target.copy_from_slice(from.unwrap_or_default());
        }
    }
    Ok(target.len())
}

/// All bytes of a file, if they are at most so many.
pub fn read_all(txn: &dyn Transaction, inode: &Inode, most: u64) -> Result<Vec<u8>> {
    let size = inode.view().size();
    Defect::check_range("i_size", size, 0, most).map_err(|defect| defect.at(Place::Inode(inode.number())))?;
    let mut bytes = vec![0; index64(size)];
    read(txn, inode, 0, &mut bytes)?;
    Ok(bytes)
}

fn logical_of(inode: &Inode, block: u64) -> Result<LogicalBlock> {
    u32::try_from(block).map(LogicalBlock).map_err(|_| Error::FileTooBig(inode.number()))
}

fn is_inline(inode: &Inode) -> bool {
    inode.view().flags().contains(InodeFlags::INLINE_DATA)
}

/// Writes bytes at a byte of the file, which grows if they reach beyond its end. Times are the caller's.
pub fn write(txn: &mut dyn Transaction, inode: &mut Inode, offset: u64, bytes: &[u8]) -> Result<()> {
    if is_inline(inode) {
        if inline::write(inode, offset, bytes)? {
            return Ok(());
        }
        inline::move_to_blocks(txn, inode)?;
    }
    let bits = txn.layout().geometry.block_bits();
    let Some(end) = offset.checked_add(wide(bytes.len())) else {
        return Err(Error::FileTooBig(inode.number()));
    };
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let first = at >> bits;
        let last = at.saturating_add(wide(rest.len()).min(CHUNK)).saturating_sub(1) >> bits;
        let (run, fresh) = writable_run(txn, inode, first, last.saturating_sub(first).saturating_add(1))?;
        let within = at.saturating_sub(first << bits);
        let length = (run.length << bits).saturating_sub(within).min(wide(rest.len())).min(CHUNK);
        let (piece, behind) = rest.split_at(index64(length));
        write_piece(txn, run, fresh, within, piece)?;
        map::mark_written(txn, inode, logical_of(inode, first)?, run.length)?;
        at = at.saturating_add(length);
        rest = behind;
    }
    if end > inode.view().size() {
        inode.set_size(end);
    }
    Ok(())
}

/// A run of blocks for the file's blocks from one on, at most so many, allocated where there is a hole; and whether it
/// has no contents yet. A run that was not written is passed with only as many blocks as the write will fill.
fn writable_run(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    first: u64,
    wanted: u64,
) -> Result<(BlockRun, bool)> {
    let logical = logical_of(inode, first)?;
    let segment = map::lookup(txn, inode, logical)?;
    let length = segment.length.min(wanted);
    match segment.state {
        State::Written(start) => Ok((BlockRun { start, length }, false)),
        State::Unwritten(start) => Ok((BlockRun { start, length }, true)),
        State::Hole => {
            let run = take_blocks(txn, inode, logical, length)?;
            map::insert(txn, inode, logical, run, false)?;
            Ok((run, true))
        }
    }
}

/// Takes blocks for a hole of the file, near what is mapped before it: at most so many, in one run. With clusters, a
/// hole in a cluster that the file owns in part gets the blocks of that cluster.
pub fn take_blocks(
    txn: &mut dyn Transaction,
    inode: &Inode,
    logical: LogicalBlock,
    wanted: u64,
) -> Result<BlockRun> {
    let geometry = txn.layout().geometry.clone();
    let per_cluster = u64::from(geometry.blocks_per_cluster());
    let within = u64::from(logical.0) & per_cluster.saturating_sub(1);
    if per_cluster > 1
        && let Some(start) =
            map::block_in_cluster(txn, inode, u64::from(logical.0) >> geometry.cluster_bits())?
    {
        let length = wanted.min(per_cluster.saturating_sub(within));
        return Ok(BlockRun { start: BlockNumber(start.0.saturating_add(within)), length });
    }
    let goal = goal(txn, inode, logical)?;
    let request = BlockRequest { goal, wanted: wanted.saturating_add(within), owner: inode.number() };
    let run = txn.allocate_blocks(request)?;
    let length = run.length.saturating_sub(within).min(wanted);
    // Whole clusters beyond what is wanted do not come: the request was rounded up only to the last one's end.
    let mut run = BlockRun { start: BlockNumber(run.start.0.saturating_add(within)), length };
    if per_cluster > 1 {
        run.length = up_to_owned_cluster(txn, inode, logical, run)?;
    }
    Ok(run)
}

/// The part of a fresh run whose last cluster the file does not own yet; what lies behind is given back.
fn up_to_owned_cluster(
    txn: &mut dyn Transaction,
    inode: &Inode,
    logical: LogicalBlock,
    run: BlockRun,
) -> Result<u64> {
    let bits = txn.layout().geometry.cluster_bits();
    let first = u64::from(logical.0) >> bits;
    let last = u64::from(logical.0).saturating_add(run.length).saturating_sub(1) >> bits;
    if last == first || map::block_in_cluster(txn, inode, last)?.is_none() {
        return Ok(run.length);
    }
    let kept = (last << bits).saturating_sub(logical.0.into());
    let start = BlockNumber(run.start.0.saturating_add(kept));
    let end = txn.layout().geometry.blocks_count();
    let length = end.saturating_sub(start.0).min(1 << bits);
    txn.release_blocks(BlockRun { start, length })?;
    Ok(kept)
}

/// Where the block of a file should lie: behind the block before it, else at the start of the inode's group.
pub fn goal(txn: &dyn Transaction, inode: &Inode, logical: LogicalBlock) -> Result<BlockNumber> {
    if let Some(before) = logical.0.checked_sub(1)
        && let Some(run) = map::lookup(txn, inode, LogicalBlock(before))?.run()
    {
        return Ok(BlockNumber(run.start.0.saturating_add(1)));
    }
    let geometry = &txn.layout().geometry;
    Ok(geometry.inode_place(inode.number()).map_or(BlockNumber(0), |(group, _)| geometry.group_start(group)))
}

/// Writes bytes into a run of blocks, from a byte of the first on. The rest of the blocks at both ends is kept, or
/// zeroed if they have no contents yet.
fn write_piece(
    txn: &mut dyn Transaction,
    run: BlockRun,
    fresh: bool,
    within: u64,
    piece: &[u8],
) -> Result<()> {
    let bits = txn.layout().geometry.block_bits();
    let block = txn.layout().geometry.block_length();
    let whole = within == 0 && piece.len().is_multiple_of(block);
    if whole {
        txn.write_data(run.start, piece)?;
        return zero_rest(txn, run, wide(piece.len()) >> bits, fresh);
    }
    let blocks = within.saturating_add(wide(piece.len())).div_ceil(1 << bits);
    let mut bytes = vec![0; index64(blocks << bits)];
    if !fresh {
        txn.read_data(run.start, &mut bytes)?;
    }
    let target = bytes.get_mut(index64(within)..).and_then(|bytes| bytes.get_mut(..piece.len()));
    target.unwrap_or_default().copy_from_slice(piece);
    txn.write_data(run.start, &bytes)?;
    zero_rest(txn, run, blocks, fresh)
}

/// Zeroes the blocks of a fresh run behind those that were written.
fn zero_rest(txn: &mut dyn Transaction, run: BlockRun, written: u64, fresh: bool) -> Result<()> {
    if !fresh || written >= run.length {
        return Ok(());
    }
    let start = BlockNumber(run.start.0.saturating_add(written));
    txn.zero_data(BlockRun { start, length: run.length.saturating_sub(written) })
}

/// Cuts or lengthens a file. What is cut off is given back, and the rest of its last block is zeroed, so that a later
/// growth shows zeroes.
pub fn truncate(txn: &mut dyn Transaction, inode: &mut Inode, size: u64) -> Result<()> {
    if is_inline(inode) {
        if inline::truncate(inode, size)? {
            return Ok(());
        }
        inline::move_to_blocks(txn, inode)?;
    }
    let bits = txn.layout().geometry.block_bits();
    let limit = map::block_limit(txn, inode);
    if size.div_ceil(1 << bits) > limit {
        return Err(Error::FileTooBig(inode.number()));
    }
    if size < inode.view().size() {
        zero_tail(txn, inode, size)?;
        inode.set_size(size);
        map::remove(txn, inode, size.div_ceil(1 << bits), limit)?;
    }
    inode.set_size(size);
    Ok(())
}

/// Zeroes the block that a size cuts in two, from the cut on.
fn zero_tail(txn: &mut dyn Transaction, inode: &Inode, size: u64) -> Result<()> {
    let bits = txn.layout().geometry.block_bits();
    let within = index64(size & ((1u64 << bits).saturating_sub(1)));
    if within == 0 {
        return Ok(());
    }
    let State::Written(block) = map::lookup(txn, inode, logical_of(inode, size >> bits)?)?.state else {
        return Ok(());
    };
    let mut bytes = vec![0; txn.layout().geometry.block_length()];
    txn.read_data(block, &mut bytes)?;
    bytes.get_mut(within..).unwrap_or_default().fill(0);
    txn.write_data(block, &bytes)
}

/// The target of a symbolic link. Encrypted targets come as they are stored.
pub fn read_symlink(txn: &dyn Transaction, inode: &Inode) -> Result<Vec<u8>> {
    let view = inode.view();
    if view.flags().contains(InodeFlags::INLINE_DATA) {
        return inline::read_all(inode);
    }
    let attributes =
        xattr::charged_blocks(txn, inode)? << txn.layout().geometry.block_bits().saturating_sub(9);
    if inode::sectors(txn, view) == attributes
        && !view.flags().contains(InodeFlags::EXTENTS)
        && let Some(target) = short_symlink_target(view)
    {
        return Ok(target.to_vec());
    }
    read_all(txn, inode, txn.layout().geometry.block_size().into())
}

/// Gives a new symbolic link, whose map is untouched, its target: in the inode if it is short, else in a block.
pub fn write_symlink(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    target: &[u8],
    extents: bool,
) -> Result<()> {
    let most = MAX_SYMLINK.min(txn.layout().geometry.block_length().saturating_sub(1));
    if target.is_empty() || target.len() > most {
        let length = target.len();
        return Err(Error::BadName(format!(
            "the target of a symbolic link has {length} bytes, not 1 to {most}"
        )));
    }
    if target.len() < MAP_SIZE {
        let map = inode.map_mut();
        map.fill(0);
        map.get_mut(..target.len()).unwrap_or_default().copy_from_slice(target);
        inode.set_size(wide(target.len()));
        return Ok(());
    }
    map::initialise(inode, extents)?;
    let run = take_blocks(txn, inode, LogicalBlock(0), 1)?;
    let number: InodeNumber = inode.number();
    create(txn, run.start, BlockKind::Contents(number), |bytes| {
        bytes.get_mut(..target.len()).unwrap_or_default().copy_from_slice(target);
    })?;
    map::insert(txn, inode, LogicalBlock(0), BlockRun::single(run.start), false)?;
    inode.set_size(wide(target.len()));
    Ok(())
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
