//! Putting an extent into a tree.
//!
//! An extent that continues a neighbour in its leaf is merged into it. Else it takes a slot; when its leaf is full,
//! room is made from the lowest node upwards that still has some: at the right edge of the tree by a new chain of
//! nodes that hold nothing but the new extent (files mostly grow at their end, and so stay densely packed), elsewhere
//! by splitting nodes in half from the top down. Each such step leaves a whole tree.

use super::extents::{Step, path, place};
use super::take_tree_block;
use crate::disk::extent::{Extent, ExtentIndex, ExtentLeaf, MAX_DEPTH, Node, NodeMut, slot_area};
use crate::disk::inode::Inode;
use crate::error::{Defect, Error, Result};
use crate::ids::{BlockNumber, LogicalBlock};
use crate::txn::{BlockKind, Transaction, create, modify};

/// How many metadata blocks one insertion changes at the most: a new root level and two nodes per level, each with
/// bitmap, descriptor and superblock.
pub(super) const CREDITS: u32 = 36;

/// Puts an extent into the tree; none of its blocks may be mapped.
pub(super) fn insert(txn: &mut dyn Transaction, inode: &mut Inode, extent: Extent) -> Result<()> {
    // Each round but the last gives one level of the tree room: a new root, then at most every level below it.
    for _ in 0..=MAX_DEPTH.saturating_mul(2).saturating_add(2) {
        let path = path(txn, inode, extent.logical)?;
        let Some(leaf) = path.last() else { break };
        refuse_overlap(leaf, inode, extent)?;
        if merge(txn, inode, &path, extent)? {
            return Ok(());
        }
        if !leaf.node(inode)?.is_full() {
            let position = leaf.position.map_or(0, |position| position.saturating_add(1));
            edit_node(txn, inode, leaf.block, |node| node.insert(position, &ExtentLeaf::new(extent)?))?;
            return lower_keys(txn, inode, &path, extent.logical);
        }
        if make_room(txn, inode, &path, extent)? == Room::Inserted {
            return Ok(());
        }
    }
    Err(Defect::Loop { what: "extent tree" }.at(place(inode, None)))
}

/// What making room has come to.
#[derive(PartialEq, Eq)]
enum Room {
    /// One level more has room.
    Made,
    /// The extent itself was put in on the way.
    Inserted,
}

/// Changes a node where it lies: in the inode, or in its block.
pub(super) fn edit_node<R>(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    block: Option<BlockNumber>,
    edit: impl FnOnce(&mut NodeMut<'_>) -> Result<R, Defect>,
) -> Result<R> {
    let place = place(inode, block);
    let edited = match block {
        None => NodeMut::parse(inode.map_mut()).and_then(|mut node| edit(&mut node)),
        Some(at) => modify(txn, at, BlockKind::ExtentNode(inode.owner()), |bytes| {
            NodeMut::parse(bytes).and_then(|mut node| edit(&mut node))
        })?,
    };
    edited.map_err(|defect| defect.at(place))
}

fn refuse_overlap(leaf: &Step, inode: &Inode, extent: Extent) -> Result<()> {
    let node = leaf.node(inode)?;
    let (before, after) = neighbours(leaf, &node);
    let overlaps = before.is_some_and(|before| before.logical_end() > extent.logical.0.into())
        || after.is_some_and(|after| u64::from(after.logical.0) < extent.logical_end());
    if overlaps {
        let logical = extent.logical;
        return Err(Defect::Contradiction(format!("block {logical} of the file is mapped already"))
            .at(place(inode, leaf.block)));
    }
    Ok(())
}

/// The extents of a leaf before and behind the path's logical block.
fn neighbours(leaf: &Step, node: &Node<'_>) -> (Option<Extent>, Option<Extent>) {
    let before = leaf.position.and_then(|position| node.extents().nth(position));
    let behind = leaf.position.map_or(0, |position| position.saturating_add(1));
    (before, node.extents().nth(behind))
}

/// Whether the second extent goes on where the first ends, and both fit one slot.
fn continues(first: Extent, second: Extent) -> bool {
    first.logical_end() == second.logical.0.into()
        && first.physical.checked_add(first.length.into()) == Some(second.physical)
        && first.unwritten == second.unwritten
        && first.length.checked_add(second.length).is_some_and(|sum| sum <= Extent::longest(first.unwritten))
}

fn joined(first: Extent, second: Extent) -> Extent {
    Extent { length: first.length.saturating_add(second.length), ..first }
}

/// Merges the extent with its neighbours in the leaf; `false` if it continues neither.
fn merge(txn: &mut dyn Transaction, inode: &mut Inode, path: &[Step], extent: Extent) -> Result<bool> {
    let Some(leaf) = path.last() else { return Ok(false) };
    let (before, after) = neighbours(leaf, &leaf.node(inode)?);
    let before = before.zip(leaf.position).filter(|(before, _)| continues(*before, extent));
    let after = after.filter(|after| continues(extent, *after));
    let behind = leaf.position.map_or(0, |position| position.saturating_add(1));
    match (before, after) {
        (Some((before, position)), Some(after)) if continues(joined(before, extent), after) => {
            let whole = joined(joined(before, extent), after);
            edit_node(txn, inode, leaf.block, |node| {
                node.replace(position, &ExtentLeaf::new(whole)?)?;
                node.remove(behind..behind.saturating_add(1))
            })?;
        }
        (Some((before, position)), _) => {
            let whole = joined(before, extent);
            edit_node(txn, inode, leaf.block, |node| node.replace(position, &ExtentLeaf::new(whole)?))?;
        }
        (None, Some(after)) => {
            let whole = joined(extent, after);
            edit_node(txn, inode, leaf.block, |node| node.replace(behind, &ExtentLeaf::new(whole)?))?;
            lower_keys(txn, inode, path, extent.logical)?;
        }
        (None, None) => return Ok(false),
    }
    Ok(true)
}

/// After the first slot of a leaf has moved down: makes each parent's key reach down to it.
fn lower_keys(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    path: &[Step],
    logical: LogicalBlock,
) -> Result<()> {
    for step in path.iter().rev().skip(1) {
        let position = step.position.unwrap_or(0);
        let key = step.node(inode)?.indexes().get(position).map(ExtentIndex::logical);
        if key.is_none_or(|key| key <= logical) {
            break;
        }
        edit_node(txn, inode, step.block, |node| node.set_logical(position, logical))?;
    }
    Ok(())
}

/// Makes room in a tree whose leaf is full.
fn make_room(txn: &mut dyn Transaction, inode: &mut Inode, path: &[Step], extent: Extent) -> Result<Room> {
    let mut with_room = None;
    for (level, step) in path.iter().enumerate().rev() {
        if !step.node(inode)?.is_full() {
            with_room = Some((level, step));
            break;
        }
    }
    let Some((level, parent)) = with_room else {
        grow_root(txn, inode, extent.physical)?;
        return Ok(Room::Made);
    };
    if is_right_edge(path, inode)? {
        append_chain(txn, inode, path, level, extent)?;
        return Ok(Room::Inserted);
    }
    let child = path.get(level.saturating_add(1)).and_then(|step| step.block);
    let child = child.ok_or(Error::FileTooBig(inode.number()))?;
    split_child(txn, inode, parent.block, parent.position.unwrap_or(0), child)?;
    Ok(Room::Made)
}

/// Whether the path runs along the right edge of the tree and the new extent goes behind everything.
fn is_right_edge(path: &[Step], inode: &Inode) -> Result<bool> {
    for step in path {
        let entries = usize::from(step.node(inode)?.entries());
        if step.position.map(|position| position.saturating_add(1)) != Some(entries) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Moves the root's slots into a block of their own, below a root that has this block as its only child.
fn grow_root(txn: &mut dyn Transaction, inode: &mut Inode, goal: BlockNumber) -> Result<()> {
    let root_bytes = *inode.view().map();
    let root = Node::parse(&root_bytes).map_err(|defect| defect.at(place(inode, None)))?;
    let depth = root.depth();
    if depth >= MAX_DEPTH {
        return Err(Error::FileTooBig(inode.number()));
    }
    let first = first_key(&root).unwrap_or_default();
    let slots = slot_area(&root_bytes, 0..root.entries().into()).unwrap_or_default();
    let block = take_tree_block(txn, inode, goal)?;
    create(txn, block, BlockKind::ExtentNode(inode.owner()), |bytes| {
        NodeMut::create(bytes, depth).and_then(|mut node| node.append_raw(slots))
    })?
    .map_err(|defect| defect.at(place(inode, Some(block))))?;
    let place = place(inode, None);
    let map = inode.map_mut();
    map.fill(0);
    NodeMut::create(map, depth.saturating_add(1))
        .and_then(|mut node| node.insert(0, &ExtentIndex::new(first, block)?))
        .map_err(|defect| defect.at(place))
}

/// The logical block that a node's first slot names.
fn first_key(node: &Node<'_>) -> Option<LogicalBlock> {
    let leaf = node.extents().next().map(|extent| extent.logical);
    leaf.or_else(|| node.indexes().first().map(ExtentIndex::logical))
}

/// Hangs a chain of new nodes that holds only the new extent behind the last slot of the node at `level`.
fn append_chain(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    path: &[Step],
    level: usize,
    extent: Extent,
) -> Result<()> {
    let logical = extent.logical;
    let mut below: Option<BlockNumber> = None;
    let mut depth: u16 = 0;
    for _ in level.saturating_add(1)..path.len() {
        let block = take_tree_block(txn, inode, extent.physical)?;
        create(txn, block, BlockKind::ExtentNode(inode.owner()), |bytes| {
            let mut node = NodeMut::create(bytes, depth)?;
            match below {
                None => node.insert(0, &ExtentLeaf::new(extent)?),
                Some(child) => node.insert(0, &ExtentIndex::new(logical, child)?),
            }
        })?
        .map_err(|defect| defect.at(place(inode, Some(block))))?;
        below = Some(block);
        depth = depth.saturating_add(1);
    }
    let (Some(step), Some(child)) = (path.get(level), below) else {
        return Err(Error::FileTooBig(inode.number()));
    };
    let position = step.position.map_or(0, |position| position.saturating_add(1));
    edit_node(txn, inode, step.block, |node| node.insert(position, &ExtentIndex::new(logical, child)?))
}

/// Moves the upper half of a full child into a new node behind it. The parent has room.
fn split_child(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    parent: Option<BlockNumber>,
    position: usize,
    child: BlockNumber,
) -> Result<()> {
    let kind = BlockKind::ExtentNode(inode.owner());
    let old = txn.read(child, kind)?;
    let node = Node::parse(&old).map_err(|defect| defect.at(place(inode, Some(child))))?;
    let (entries, depth) = (usize::from(node.entries()), node.depth());
    let middle = entries / 2;
    let upper = slot_area(&old, middle..entries).unwrap_or_default();
    let leaf_key = node.extents().nth(middle).map(|extent| extent.logical);
    let Some(key) = leaf_key.or_else(|| node.indexes().get(middle).map(ExtentIndex::logical)) else {
        return Err(
            Defect::Contradiction("a full node has no middle".to_owned()).at(place(inode, Some(child)))
        );
    };
    let block = take_tree_block(txn, inode, child)?;
    create(txn, block, kind, |bytes| {
        NodeMut::create(bytes, depth).and_then(|mut node| node.append_raw(upper))
    })?
    .map_err(|defect| defect.at(place(inode, Some(block))))?;
    let behind = position.saturating_add(1);
    edit_node(txn, inode, parent, |node| node.insert(behind, &ExtentIndex::new(key, block)?))?;
    edit_node(txn, inode, Some(child), |node| node.remove(middle..entries))
}
