//! Taking blocks out of an extent tree.
//!
//! Works extent by extent. Each step leaves a whole tree: keys of parents follow the first slot of their child, a
//! node that loses its last slot leaves the tree, and a tree that fits its root again moves there.

use super::extents::{Step, path, place};
use super::extents_insert::{CREDITS, edit_node, insert};
use super::{give_tree_block, release_unmapped};
use crate::disk::extent::{Extent, ExtentIndex, ExtentLeaf, MAX_DEPTH, Node, NodeMut, slot_area};
use crate::disk::inode::Inode;
use crate::error::{Defect, Result};
use crate::ids::{BlockNumber, BlockRun, LogicalBlock};
use crate::txn::{BlockKind, Transaction};

/// Unmaps and gives back the blocks from one logical block up to another.
pub(super) fn remove(txn: &mut dyn Transaction, inode: &mut Inode, from: u64, to: u64) -> Result<()> {
    let mut next = from;
    while next < to {
        let Ok(logical) = u32::try_from(next) else { break };
        let logical = LogicalBlock(logical);
        let path = path(txn, inode, logical)?;
        let Some(leaf) = path.last() else { break };
        let Some(extent) = extent_at_or_behind(leaf, inode, logical)? else {
            next = leaf.end.max(next.saturating_add(1));
            continue;
        };
        let start = next.max(extent.logical.0.into());
        let end = to.min(extent.logical_end());
        if start >= end {
            break;
        }
        let first = LogicalBlock(u32::try_from(start).unwrap_or(u32::MAX));
        let length = u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX);
        let Some(physical) = extent.physical_of(first) else { break };
        txn.ensure_credits(CREDITS.saturating_mul(2))?;
        unmap_within_extent(txn, inode, first, length)?;
        release_unmapped(txn, inode, first, BlockRun { start: physical, length: length.into() })?;
        next = end;
    }
    pull_up(txn, inode)
}

/// The extent of a leaf that holds a logical block, or the first one behind it.
fn extent_at_or_behind(leaf: &Step, inode: &Inode, logical: LogicalBlock) -> Result<Option<Extent>> {
    let node = leaf.node(inode)?;
    let found = node
        .extents()
        .skip(leaf.position.unwrap_or(0))
        .find(|extent| extent.logical_end() > logical.0.into());
    match found {
        Some(extent) if extent.length == 0 => {
            Err(Defect::Range { field: "ee_len", value: 0, least: 1, most: 32768 }
                .at(place(inode, leaf.block)))
        }
        found => Ok(found),
    }
}

/// Takes blocks that lie in one extent out of the tree, and leaves what lies before and behind them. The blocks
/// themselves are not given back.
pub(super) fn unmap_within_extent(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    logical: LogicalBlock,
    length: u32,
) -> Result<()> {
    let path = path(txn, inode, logical)?;
    let found = match path.last() {
        Some(leaf) => leaf.position.and_then(|position| {
            let extent = leaf.node(inode).ok()?.extents().nth(position)?;
            extent.contains(logical).then_some((leaf, position, extent))
        }),
        None => None,
    };
    let Some((leaf, position, extent)) = found else {
        return Err(Defect::Contradiction(format!("block {logical} of the file is not mapped"))
            .at(place(inode, None)));
    };
    let head = Extent { length: logical.0.saturating_sub(extent.logical.0), ..extent };
    let end = u64::from(logical.0).saturating_add(length.into());
    let tail = tail_of(extent, end);
    match (head.length > 0, tail) {
        (true, None) => {
            edit_node(txn, inode, leaf.block, |node| node.replace(position, &ExtentLeaf::new(head)?))
        }
        (true, Some(tail)) => {
            edit_node(txn, inode, leaf.block, |node| node.replace(position, &ExtentLeaf::new(head)?))?;
            insert(txn, inode, tail)
        }
        (false, Some(tail)) => {
            edit_node(txn, inode, leaf.block, |node| node.replace(position, &ExtentLeaf::new(tail)?))?;
            if position == 0 { set_keys(txn, inode, &path, tail.logical) } else { Ok(()) }
        }
        (false, None) => remove_slot(txn, inode, &path),
    }
}

/// What of an extent lies at and behind a logical block.
fn tail_of(extent: Extent, from: u64) -> Option<Extent> {
    let logical = LogicalBlock(u32::try_from(from).ok()?);
    let physical = extent.physical_of(logical)?;
    let length = u32::try_from(extent.logical_end().saturating_sub(from)).ok()?;
    Some(Extent { logical, physical, length, ..extent })
}

/// Makes the keys of the parents name a new first logical block of the path's last node.
fn set_keys(txn: &mut dyn Transaction, inode: &mut Inode, path: &[Step], key: LogicalBlock) -> Result<()> {
    for step in path.iter().rev().skip(1) {
        let position = step.position.unwrap_or(0);
        edit_node(txn, inode, step.block, |node| node.set_logical(position, key))?;
        if position > 0 {
            break;
        }
    }
    Ok(())
}

/// Takes the slot at the end of the path out of its leaf, and every node that this leaves empty out of the tree.
fn remove_slot(txn: &mut dyn Transaction, inode: &mut Inode, path: &[Step]) -> Result<()> {
    for (level, step) in path.iter().enumerate().rev() {
        let position = step.position.unwrap_or(0);
        let entries = step.node(inode)?.entries();
        if entries > 1 {
            edit_node(txn, inode, step.block, |node| node.remove(position..position.saturating_add(1)))?;
            if position == 0
                && let Some(key) = first_key_of(txn, inode, step.block)?
            {
                set_keys(txn, inode, path.get(..=level).unwrap_or_default(), key)?;
            }
            return Ok(());
        }
        match step.block {
            Some(block) => give_tree_block(txn, inode, block)?,
            None => return make_root_empty(inode),
        }
    }
    Ok(())
}

fn first_key_of(
    txn: &dyn Transaction,
    inode: &Inode,
    block: Option<BlockNumber>,
) -> Result<Option<LogicalBlock>> {
    let key = |bytes: &[u8]| {
        let node = Node::parse(bytes)?;
        let leaf = node.extents().next().map(|extent| extent.logical);
        Ok(leaf.or_else(|| node.indexes().first().map(ExtentIndex::logical)))
    };
    let found = match block {
        None => key(inode.view().map()),
        Some(at) => key(&txn.read(at, BlockKind::ExtentNode(inode.owner()))?),
    };
    found.map_err(|defect: Defect| defect.at(place(inode, block)))
}

fn make_root_empty(inode: &mut Inode) -> Result<()> {
    let place = place(inode, None);
    let map = inode.map_mut();
    map.fill(0);
    NodeMut::create(map, 0).map(|_| ()).map_err(|defect| defect.at(place))
}

/// While the root has a single child whose slots fit the root: moves them there.
fn pull_up(txn: &mut dyn Transaction, inode: &mut Inode) -> Result<()> {
    for _ in 0..=MAX_DEPTH {
        let root_bytes = *inode.view().map();
        let root = Node::parse(&root_bytes).map_err(|defect| defect.at(place(inode, None)))?;
        let [only] = root.indexes() else { return Ok(()) };
        let child = only.child();
        let bytes = txn.read(child, BlockKind::ExtentNode(inode.owner()))?;
        let node = Node::parse(&bytes).map_err(|defect| defect.at(place(inode, Some(child))))?;
        if node.entries() > root.header().eh_max.get() {
            return Ok(());
        }
        let slots = slot_area(&bytes, 0..node.entries().into()).unwrap_or_default();
        let place = place(inode, None);
        let map = inode.map_mut();
        map.fill(0);
        NodeMut::create(map, node.depth())
            .and_then(|mut root| root.append_raw(slots))
            .map_err(|defect| defect.at(place))?;
        give_tree_block(txn, inode, child)?;
    }
    Ok(())
}
