//! Finding names through the hash tree of an indexed directory.
//!
//! The tree's nodes are blocks of the directory: block 0 is the root, and up to two levels of inner nodes lie between
//! it and the leaves. Children are named by logical block, so every number is checked against the directory's size, and
//! depth is bounded by what the root states.

use super::Found;
use super::blocks::{self, Shape};
use super::linear;
use crate::disk::dirhash::{self, HashVersion, NameHash};
use crate::disk::features::Incompat;
use crate::disk::htree::{Index, MAX_INDIRECT_LEVELS, MAX_INDIRECT_LEVELS_LARGE, Root};
use crate::disk::inode::{Inode, InodeFlags};
use crate::error::{Defect, Error, Result};
use crate::ids::{BlockNumber, LogicalBlock};
use crate::txn::{Block, BlockKind, Transaction};

/// How an indexed directory hashes names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    pub version: HashVersion,
    pub seed: [u32; 4],
}

impl Hasher {
    pub fn hash(self, name: &[u8]) -> NameHash {
        dirhash::hash(self.version, self.seed, name).unwrap_or(NameHash { major: 0, minor: 0 })
    }
}

/// How the directory's tree hashes names; `None` if it has no tree that can be followed: not indexed, or hashed by a key or
/// by folded names, which then are searched block by block.
pub(super) fn hasher(txn: &dyn Transaction, dir: &Inode, shape: &Shape) -> Result<Option<Hasher>> {
    let flags = dir.view().flags();
    if !flags.contains(InodeFlags::INDEX)
        || flags.contains(InodeFlags::CASEFOLD)
        || !txn.layout().has_directory_index()
    {
        return Ok(None);
    }
    let (block, bytes) = read_node(txn, dir, LogicalBlock(0))?;
    let root = Root::parse(&bytes, shape.checksummed)
        .map_err(|defect| defect.at(blocks::place(dir, LogicalBlock(0), block)))?;
    let hash = txn.layout().directory_hash;
    let hasher = Hasher { version: root.hash_version().with_unsigned(hash.unsigned), seed: hash.seed };
    Ok(dirhash::hash(hasher.version, hasher.seed, b"x").map(|_| hasher))
}

/// A node on the way from the root to a leaf, and which of its children was taken.
pub(super) struct Frame {
    pub logical: LogicalBlock,
    pub block: BlockNumber,
    pub bytes: Block,
    pub position: usize,
}

impl Frame {
    pub fn index(&self, dir: &Inode, shape: &Shape) -> Result<Index<'_>> {
        Index::parse(&self.bytes, shape.checksummed)
            .map_err(|defect| defect.at(blocks::place(dir, self.logical, self.block)))
    }
}

fn read_node(txn: &dyn Transaction, dir: &Inode, logical: LogicalBlock) -> Result<(BlockNumber, Block)> {
    let Some(block) = blocks::locate(txn, dir, logical)? else {
        let defect = Defect::Contradiction(format!("block {logical} of the index is a hole"));
        return Err(defect.at(crate::Place::Inode(dir.number())));
    };
    Ok((block, txn.read(block, BlockKind::DirectoryIndex(dir.owner(), logical))?))
}

/// How many levels of inner nodes the root states, checked.
pub(super) fn levels(txn: &dyn Transaction, dir: &Inode, shape: &Shape, root: &Frame) -> Result<u8> {
    let parsed = Root::parse(&root.bytes, shape.checksummed);
    let info = parsed.map_err(|defect| defect.at(blocks::place(dir, root.logical, root.block)))?.info;
    let most = most_levels(txn);
    Defect::check_range("indirect_levels", info.indirect_levels.into(), 0, most.into())
        .map_err(|defect| defect.at(blocks::place(dir, root.logical, root.block)))?;
    Ok(info.indirect_levels)
}

/// How many levels of inner nodes the filesystem allows.
pub(super) fn most_levels(txn: &dyn Transaction) -> u8 {
    if txn.layout().features().incompat.contains(Incompat::LARGE_DIR) {
        MAX_INDIRECT_LEVELS_LARGE
    } else {
        MAX_INDIRECT_LEVELS
    }
}

/// The way to the leaf that takes a hash: the root, then its inner nodes.
pub(super) fn probe(txn: &dyn Transaction, dir: &Inode, shape: &Shape, hash: u32) -> Result<Vec<Frame>> {
    let (block, bytes) = read_node(txn, dir, LogicalBlock(0))?;
    let mut root = Frame { logical: LogicalBlock(0), block, bytes, position: 0 };
    root.position = root.index(dir, shape)?.position(hash);
    let levels = levels(txn, dir, shape, &root)?;
    let mut frames = vec![root];
    for _ in 0..levels {
        let logical = child(dir, shape, &frames)?;
        let (block, bytes) = read_node(txn, dir, logical)?;
        let mut frame = Frame { logical, block, bytes, position: 0 };
        frame.position = frame.index(dir, shape)?.position(hash);
        frames.push(frame);
    }
    Ok(frames)
}

/// The child that the last frame takes, checked to be a block of the directory other than the root.
pub(super) fn child(dir: &Inode, shape: &Shape, frames: &[Frame]) -> Result<LogicalBlock> {
    let Some(frame) = frames.last() else { return Err(Error::NotADirectory(dir.number())) };
    let child = frame.index(dir, shape)?.child(frame.position).unwrap_or_default();
    let most = (dir.view().size() >> shape.block_bits).saturating_sub(1);
    Defect::check_range("dx_entry block", child.0.into(), 1, most)
        .map_err(|defect| defect.at(blocks::place(dir, frame.logical, frame.block)))?;
    Ok(child)
}

/// Moves on to the next leaf if names of this hash go on there.
pub(super) fn advance(
    txn: &dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    frames: &mut Vec<Frame>,
    hash: u32,
) -> Result<bool> {
    let depth = frames.len();
    // Up to the lowest node that has a next child.
    while let Some(frame) = frames.last() {
        let next = frame.position.saturating_add(1);
        let index = frame.index(dir, shape)?;
        if next < index.count() {
            if !index.continues(next, hash) {
                return Ok(false);
            }
            break;
        }
        frames.pop();
    }
    let Some(frame) = frames.last_mut() else { return Ok(false) };
    frame.position = frame.position.saturating_add(1);
    while frames.len() < depth {
        let logical = child(dir, shape, frames)?;
        let (block, bytes) = read_node(txn, dir, logical)?;
        let frame = Frame { logical, block, bytes, position: 0 };
        frame.index(dir, shape)?;
        frames.push(frame);
    }
    Ok(true)
}

/// The entry of a name, through the tree.
pub(super) fn lookup(
    txn: &dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    hasher: Hasher,
    name: &[u8],
) -> Result<Option<Found>> {
    let hash = hasher.hash(name).major;
    let mut frames = probe(txn, dir, shape, hash)?;
    // Each leaf is visited once, so their number bounds the walk also where children are named twice.
    for _ in 0..blocks::most(txn, dir, shape) {
        let leaf = child(dir, shape, &frames)?;
        if let Some(found) = linear::lookup_in(txn, dir, shape, leaf, name)? {
            return Ok(Some(found));
        }
        if !advance(txn, dir, shape, &mut frames, hash)? {
            break;
        }
    }
    Ok(None)
}
