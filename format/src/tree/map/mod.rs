//! Which block of the filesystem holds which block of a file: extent trees and block maps behind one interface.
//!
//! A map is read with [`lookup`] and [`segments`], and changed with [`insert`], [`remove`] and [`mark_written`]. The
//! functions take the inode as a copy in memory and change its `i_block` and `i_blocks`; the caller holds the inode's
//! lock where there is one, and writes the inode back.
//!
//! Blocks of the tree itself come from the transaction's allocator and are counted in `i_blocks`. Blocks of the file
//! are the caller's to allocate ([`insert`] only maps and counts them), but [`remove`] gives them back.

mod extents;
mod extents_insert;
mod extents_remove;
mod indirect;
#[cfg(test)]
mod tests;

use crate::disk::extent::{MAX_UNWRITTEN_LENGTH, MAX_WRITTEN_LENGTH, NodeMut};
use crate::disk::inode::{Inode, InodeFlags};
use crate::error::{Defect, Error, Place, Result};
use crate::ids::{BlockNumber, BlockRun, LogicalBlock};
use crate::tree::inode;
use crate::txn::{BlockRequest, Transaction};

/// What the blocks of a segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is mapped; the file reads as zero.
    Hole,
    /// Mapped and written; the first block lies here.
    Written(BlockNumber),
    /// Mapped but never written: the file reads as zero. The first block lies here.
    Unwritten(BlockNumber),
}

/// Consecutive blocks of a file that are mapped alike: all holes, or to consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first block, within the file.
    pub logical: LogicalBlock,
    /// How many blocks, at least 1. A hole may reach to the end of what a file can have.
    pub length: u64,
    /// What they are.
    pub state: State,
}

/// The number of blocks that a file mapped by extents can have; the last logical block is kept back by the kernel.
pub const EXTENT_LIMIT: u64 = 0xffff_ffff;

impl Segment {
    /// The first logical block behind the segment.
    pub fn end(&self) -> u64 {
        u64::from(self.logical.0).saturating_add(self.length)
    }

    /// The run of blocks that it is mapped to; `None` for a hole.
    pub fn run(&self) -> Option<BlockRun> {
        match self.state {
            State::Hole => None,
            State::Written(start) | State::Unwritten(start) => Some(BlockRun { start, length: self.length }),
        }
    }

    /// The part of the segment from a logical block on; the block lies in it.
    fn from(self, logical: LogicalBlock) -> Self {
        let skipped = u64::from(logical.0.saturating_sub(self.logical.0));
        let shift = |start: BlockNumber| BlockNumber(start.0.saturating_add(skipped));
        let state = match self.state {
            State::Hole => State::Hole,
            State::Written(start) => State::Written(shift(start)),
            State::Unwritten(start) => State::Unwritten(shift(start)),
        };
        Self { logical, length: self.length.saturating_sub(skipped), state }
    }
}

/// Whether the inode maps its blocks by extents.
pub fn uses_extents(inode: &Inode) -> bool {
    inode.view().flags().contains(InodeFlags::EXTENTS)
}

/// Makes the map of a new inode, empty: an extent tree or a block map.
pub fn initialise(inode: &mut Inode, extents: bool) -> Result<()> {
    let mut flags = inode.view().flags();
    flags.set(InodeFlags::EXTENTS, extents);
    inode.set_flags(flags);
    let place = Place::ExtentNode { inode: inode.number(), block: None };
    let map = inode.map_mut();
    map.fill(0);
    if extents {
        NodeMut::create(map, 0).map_err(|defect| defect.at(place))?;
    }
    Ok(())
}

/// How many blocks a file of this inode's kind of map can have.
pub fn block_limit(txn: &dyn Transaction, inode: &Inode) -> u64 {
    if uses_extents(inode) { EXTENT_LIMIT } else { indirect::block_limit(&txn.layout().geometry) }
}

/// The segment of the file from a logical block on.
///
/// Ends where the mapping stops being alike, or at the end of a leaf; so neighbouring segments may be alike.
pub fn lookup(txn: &dyn Transaction, inode: &Inode, logical: LogicalBlock) -> Result<Segment> {
    if uses_extents(inode) {
        extents::lookup(txn, inode, logical)
    } else {
        indirect::lookup(txn, inode, logical)
    }
}

/// Every segment of the file from a logical block on that is not a hole, in order. Stops at the first error.
pub fn segments<'a>(
    txn: &'a dyn Transaction,
    inode: &'a Inode,
    from: LogicalBlock,
) -> impl Iterator<Item = Result<Segment>> + use<'a> {
    let limit = block_limit(txn, inode);
    let mut next = Some(u64::from(from.0));
    std::iter::from_fn(move || {
        loop {
            let logical = next.filter(|logical| *logical < limit)?;
            let segment = match lookup(txn, inode, LogicalBlock(u32::try_from(logical).ok()?)) {
                Ok(segment) => segment,
                Err(error) => {
                    next = None;
                    return Some(Err(error));
                }
            };
            next = Some(segment.end());
            if segment.state != State::Hole {
                return Some(Ok(segment));
            }
        }
    })
}

/// The blocks of the tree or map itself, outside the inode, in the order of a walk from the root.
pub fn own_blocks(txn: &dyn Transaction, inode: &Inode) -> Result<Vec<BlockNumber>> {
    if uses_extents(inode) { extents::own_blocks(txn, inode) } else { indirect::own_blocks(txn, inode) }
}

/// Maps blocks of the file, which must not be mapped yet, to a run of blocks, and counts them in `i_blocks`.
///
/// With clusters, the caller passes blocks whose clusters it holds; a cluster that the file already owns is not
/// counted again.
pub fn insert(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    logical: LogicalBlock,
    run: BlockRun,
    unwritten: bool,
) -> Result<()> {
    let end = u64::from(logical.0).saturating_add(run.length);
    if end > block_limit(txn, inode) {
        return Err(Error::FileTooBig(inode.number()));
    }
    if !txn.layout().geometry.contains_run(run) {
        return Err(Error::Invalid(format!("blocks from {} on do not lie in the filesystem", run.start)));
    }
    let clusters = new_clusters(txn, inode, logical, run.length)?;
    if uses_extents(inode) {
        let longest = if unwritten { MAX_UNWRITTEN_LENGTH } else { MAX_WRITTEN_LENGTH };
        let (mut logical, mut start, mut left) = (logical, run.start, run.length);
        while left > 0 {
            let length = u32::try_from(left).map_or(longest, |left| left.min(longest));
            txn.ensure_credits(extents_insert::CREDITS)?;
            let extent = crate::disk::extent::Extent { logical, physical: start, length, unwritten };
            extents_insert::insert(txn, inode, extent)?;
            logical = LogicalBlock(logical.0.saturating_add(length));
            start = BlockNumber(start.0.saturating_add(length.into()));
            left = left.saturating_sub(length.into());
        }
    } else if unwritten {
        return Err(Error::Invalid("a block map cannot hold unwritten blocks".to_owned()));
    } else {
        indirect::insert(txn, inode, logical, run)?;
    }
    let blocks = i64::from(clusters).saturating_mul(txn.layout().geometry.blocks_per_cluster().into());
    inode::change_blocks(txn, inode, blocks)
}

/// Unmaps blocks of the file, from one logical block up to another, and gives back what they were mapped to.
///
/// With clusters, a cluster is given back when no block of it is mapped any more.
pub fn remove(txn: &mut dyn Transaction, inode: &mut Inode, from: u64, to: u64) -> Result<()> {
    let to = to.min(block_limit(txn, inode));
    if from >= to {
        return Ok(());
    }
    if uses_extents(inode) {
        extents_remove::remove(txn, inode, from, to)
    } else {
        indirect::remove(txn, inode, from, to)
    }
}

/// Turns unwritten blocks of a file into written ones. Holes and written blocks in the range are left alone.
pub fn mark_written(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    from: LogicalBlock,
    length: u64,
) -> Result<()> {
    if !uses_extents(inode) {
        return Ok(());
    }
    let end = u64::from(from.0).saturating_add(length);
    let mut next = u64::from(from.0);
    while next < end {
        let Ok(logical) = u32::try_from(next) else { break };
        let segment = lookup(txn, inode, LogicalBlock(logical))?;
        let part = segment.length.min(end.saturating_sub(next));
        if let State::Unwritten(start) = segment.state {
            txn.ensure_credits(extents_insert::CREDITS.saturating_mul(2))?;
            let extent = crate::disk::extent::Extent {
                logical: segment.logical,
                physical: start,
                length: u32::try_from(part).unwrap_or(MAX_UNWRITTEN_LENGTH),
                unwritten: false,
            };
            extents_remove::unmap_within_extent(txn, inode, extent.logical, extent.length)?;
            extents_insert::insert(txn, inode, extent)?;
        }
        next = next.saturating_add(part.max(1));
    }
    Ok(())
}

/// How many clusters a range of the file touches that the file does not own yet.
fn new_clusters(txn: &dyn Transaction, inode: &Inode, logical: LogicalBlock, length: u64) -> Result<u32> {
    let bits = txn.layout().geometry.cluster_bits();
    let first = u64::from(logical.0) >> bits;
    let last = u64::from(logical.0).saturating_add(length.saturating_sub(1)) >> bits;
    let mut clusters = last.saturating_sub(first).saturating_add(1);
    if bits > 0 {
        let mut edges = vec![first, last];
        edges.dedup();
        for cluster in edges {
            if owns_part_of_cluster(txn, inode, cluster)? {
                clusters = clusters.saturating_sub(1);
            }
        }
    }
    u32::try_from(clusters).map_err(|_| Error::FileTooBig(inode.number()))
}

/// Whether any block of a logical cluster of the file is mapped.
fn owns_part_of_cluster(txn: &dyn Transaction, inode: &Inode, cluster: u64) -> Result<bool> {
    Ok(block_in_cluster(txn, inode, cluster)?.is_some())
}

/// The first block of the cluster that a logical cluster of the file is mapped to, if any block of it is mapped.
///
/// Blocks keep their place within their cluster, so one mapped block tells where the others have to go.
pub fn block_in_cluster(txn: &dyn Transaction, inode: &Inode, cluster: u64) -> Result<Option<BlockNumber>> {
    let geometry = &txn.layout().geometry;
    let mut next = cluster << geometry.cluster_bits();
    let end = next.saturating_add(geometry.blocks_per_cluster().into());
    while next < end {
        let Ok(logical) = u32::try_from(next) else { break };
        let segment = lookup(txn, inode, LogicalBlock(logical))?;
        if let Some(run) = segment.run() {
            return Ok(Some(geometry.cluster_start(run.start)));
        }
        next = segment.end();
    }
    Ok(None)
}

/// Gives back the blocks that a range of the file was mapped to, once it is unmapped. With clusters, the partial
/// clusters at the range's ends stay while the file still maps another block of theirs.
fn release_unmapped(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    logical: LogicalBlock,
    run: BlockRun,
) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    let bits = geometry.cluster_bits();
    if bits == 0 {
        txn.release_blocks(run)?;
        return inode::change_blocks(txn, inode, signed(run.length)?.saturating_neg());
    }
    let first = u64::from(logical.0) >> bits;
    let last = u64::from(logical.0).saturating_add(run.length.saturating_sub(1)) >> bits;
    let start = geometry.cluster_start(run.start);
    let mut released: u64 = 0;
    for cluster in first..=last {
        let inner = cluster != first && cluster != last;
        if inner || !owns_part_of_cluster(txn, inode, cluster)? {
            let distance = cluster.saturating_sub(first) << bits;
            let at = BlockNumber(start.0.saturating_add(distance));
            let length = geometry.blocks_count().saturating_sub(at.0).min(1 << bits);
            txn.release_blocks(BlockRun { start: at, length })?;
            released = released.saturating_add(1 << bits);
        }
    }
    inode::change_blocks(txn, inode, signed(released)?.saturating_neg())
}

fn signed(blocks: u64) -> Result<i64> {
    i64::try_from(blocks).map_err(|_| Error::Invalid(format!("{blocks} blocks are too many")))
}

/// Takes a block for a tree's own use, near a goal, and counts it in `i_blocks`. With clusters, it takes a whole one.
fn take_tree_block(txn: &mut dyn Transaction, inode: &mut Inode, goal: BlockNumber) -> Result<BlockNumber> {
    let wanted = u64::from(txn.layout().geometry.blocks_per_cluster());
    let run = txn.allocate_blocks(BlockRequest { goal, wanted, owner: inode.number() })?;
    inode::change_blocks(txn, inode, signed(wanted)?)?;
    Ok(run.start)
}

/// Gives back a block of a tree's own, with its whole cluster.
fn give_tree_block(txn: &mut dyn Transaction, inode: &mut Inode, block: BlockNumber) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    txn.forget(block)?;
    let start = geometry.cluster_start(block);
    let cluster = u64::from(geometry.blocks_per_cluster());
    let length = geometry.blocks_count().saturating_sub(start.0).min(cluster);
    txn.release_blocks(BlockRun { start, length })?;
    inode::change_blocks(txn, inode, signed(cluster)?.saturating_neg())
}

/// The error of a map that points outside the filesystem.
fn out_of_range(txn: &dyn Transaction, field: &'static str, block: BlockNumber, place: Place) -> Error {
    let geometry = &txn.layout().geometry;
    let (least, most) = (geometry.first_data_block().0, geometry.blocks_count().saturating_sub(1));
    Defect::Range { field, value: block.0, least, most }.at(place)
}
