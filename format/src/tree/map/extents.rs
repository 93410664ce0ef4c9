//! Reading extent trees: the path from the root to a leaf, and what it says of a logical block.
//!
//! Every walk is bounded by the depth that the root states, at most [`MAX_DEPTH`], and each child must be one level
//! lower than its parent, so that a tree that points into itself ends in an error.

use super::{EXTENT_LIMIT, Segment, State};
use crate::disk::extent::{ExtentIndex, MAX_DEPTH, Node, ROOT_SIZE};
use crate::disk::inode::Inode;
use crate::error::{Defect, Place, Result};
use crate::ids::{BlockNumber, LogicalBlock};
use crate::txn::{Block, BlockKind, Transaction};

/// The bytes of a node: the root lies in the inode, the others in blocks.
#[derive(Clone)]
pub(super) enum NodeBytes {
    Root([u8; ROOT_SIZE]),
    Block(Block),
}

/// One node on the way from the root to a leaf.
#[derive(Clone)]
pub(super) struct Step {
    /// Where the node lies; `None` for the root.
    pub block: Option<BlockNumber>,
    bytes: NodeBytes,
    /// The last slot that begins at or before the logical block; `None` if all begin behind it.
    pub position: Option<usize>,
    /// The first logical block behind what the node may map.
    pub end: u64,
}

impl Step {
    /// The node, which was checked when the path was made.
    pub fn node(&self, inode: &Inode) -> Result<Node<'_>> {
        parse(inode, self.block, self.bytes())
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            NodeBytes::Root(bytes) => bytes,
            NodeBytes::Block(block) => block,
        }
    }
}

/// What to call a node in errors.
pub(super) fn place(inode: &Inode, block: Option<BlockNumber>) -> Place {
    Place::ExtentNode { inode: inode.number(), block }
}

fn parse<'a>(inode: &Inode, block: Option<BlockNumber>, bytes: &'a [u8]) -> Result<Node<'a>> {
    Node::parse(bytes).map_err(|defect| defect.at(place(inode, block)))
}

/// Reads a child node and checks that it lies in the filesystem, one level below its parent.
fn read_child(txn: &dyn Transaction, inode: &Inode, child: BlockNumber, depth: u16) -> Result<NodeBytes> {
    if !txn.layout().geometry.contains(child) {
        return Err(super::out_of_range(txn, "ei_leaf", child, place(inode, None)));
    }
    let bytes = txn.read(child, BlockKind::ExtentNode(inode.owner()))?;
    let found = parse(inode, Some(child), &bytes)?.depth();
    if found == depth {
        Ok(NodeBytes::Block(bytes))
    } else {
        Err(Defect::Contradiction(format!("eh_depth is {found} where the parent calls for {depth}"))
            .at(place(inode, Some(child))))
    }
}

/// The path from the root to the leaf that may map a logical block. It has at least the root; its last step is a leaf.
pub(super) fn path(txn: &dyn Transaction, inode: &Inode, logical: LogicalBlock) -> Result<Vec<Step>> {
    let root = *inode.view().map();
    let mut path =
        vec![Step { block: None, bytes: NodeBytes::Root(root), position: None, end: EXTENT_LIMIT }];
    for _ in 0..=MAX_DEPTH {
        let Some(step) = path.last_mut() else { break };
        let (block, end) = (step.block, step.end);
        let node = parse(inode, block, step.bytes())?;
        let position = node.position(logical);
        let Some(depth) = node.depth().checked_sub(1) else {
            step.position = position;
            return Ok(path);
        };
        // A block before the first child belongs to the first child, whose range then grows.
        let taken = position.unwrap_or(0);
        let children = node.indexes();
        let child = children.get(taken).map(ExtentIndex::child);
        let next =
            children.get(taken.saturating_add(1)).map_or(end, |slot| u64::from(slot.logical().0).min(end));
        step.position = position;
        let Some(child) = child else {
            return Err(
                Defect::Contradiction("an inner node has no child".to_owned()).at(place(inode, block))
            );
        };
        let bytes = read_child(txn, inode, child, depth)?;
        path.push(Step { block: Some(child), bytes, position: None, end: next });
    }
    Err(Defect::Loop { what: "extent tree" }.at(place(inode, None)))
}

/// What the tree says of a logical block, and of those behind it that are alike.
pub(super) fn lookup(txn: &dyn Transaction, inode: &Inode, logical: LogicalBlock) -> Result<Segment> {
    let path = path(txn, inode, logical)?;
    let Some(leaf) = path.last() else {
        return Err(Defect::Truncated { what: "extent tree" }.at(place(inode, None)));
    };
    let node = leaf.node(inode)?;
    let extent = leaf.position.and_then(|position| node.extents().nth(position));
    if let Some(extent) = extent.filter(|extent| extent.contains(logical)) {
        let state = if extent.unwritten { State::Unwritten } else { State::Written };
        let segment =
            Segment { logical: extent.logical, length: extent.length.into(), state: state(extent.physical) };
        let segment = segment.from(logical);
        let run = segment.run().filter(|run| txn.layout().geometry.contains_run(*run));
        return match run {
            Some(_) => Ok(segment),
            None => Err(super::out_of_range(txn, "ee_start", extent.physical, place(inode, leaf.block))),
        };
    }
    let behind = leaf.position.map_or(0, |position| position.saturating_add(1));
    let next = node.extents().nth(behind).map_or(leaf.end, |extent| extent.logical.0.into());
    let length = next.saturating_sub(logical.0.into()).max(1);
    Ok(Segment { logical, length, state: State::Hole })
}

/// The tree's own blocks, parents before children. Bounded: a block that is met twice ends the walk with an error.
pub(super) fn own_blocks(txn: &dyn Transaction, inode: &Inode) -> Result<Vec<BlockNumber>> {
    let root = parse(inode, None, inode.view().map())?;
    let mut blocks = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    let mut level: Vec<BlockNumber> = root.indexes().iter().map(ExtentIndex::child).collect();
    let mut depth = root.depth();
    while let Some(below) = depth.checked_sub(1).filter(|_| !level.is_empty()) {
        let mut next = Vec::new();
        for child in level {
            if !seen.insert(child) {
                return Err(Defect::Loop { what: "extent tree" }.at(place(inode, Some(child))));
            }
            blocks.push(child);
            let bytes = read_child(txn, inode, child, below)?;
            if let NodeBytes::Block(bytes) = &bytes {
                next.extend(parse(inode, Some(child), bytes)?.indexes().iter().map(ExtentIndex::child));
            }
        }
        level = next;
        depth = below;
    }
    Ok(blocks)
}
