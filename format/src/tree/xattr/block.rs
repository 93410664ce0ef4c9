//! Attribute blocks and their sharing.

use super::Change;
use super::value_inode::References;
use crate::disk::features::Compat;
use crate::disk::inode::Inode;
use crate::disk::xattr::{Area, Attribute, Entry, MAX_REFCOUNT, header, header_mut, write_block};
use crate::error::{Defect, Place, Result};
use crate::ids::{BlockNumber, BlockRun};
use crate::tree::{group, inode};
use crate::txn::{Block, BlockKind, BlockRequest, Transaction, create, modify};

/// The attributes in an inode's block; empty if it has none.
pub(super) fn read(txn: &dyn Transaction, inode: &Inode) -> Result<Vec<Attribute>> {
    let Some(at) = block_of(inode) else { return Ok(Vec::new()) };
    let (bytes, _) = load(txn, at)?;
    attributes(at, &bytes)
}

fn block_of(inode: &Inode) -> Option<BlockNumber> {
    Some(inode.view().attribute_block()).filter(|block| *block != BlockNumber(0))
}

/// A block, its header checked, and how many inodes share it.
fn load(txn: &dyn Transaction, at: BlockNumber) -> Result<(Block, u32)> {
    let bytes = txn.read(at, BlockKind::Attributes)?;
    let checked = Area::of_block(&bytes).and_then(|_| header(&bytes));
    let refcount = checked.map_err(|defect| defect.at(Place::AttributeBlock(at)))?.h_refcount.get();
    Ok((bytes, refcount))
}

fn attributes(at: BlockNumber, bytes: &[u8]) -> Result<Vec<Attribute>> {
    let entries = Area::of_block(bytes).and_then(|area| area.checked());
    let entries = entries.map_err(|defect| defect.at(Place::AttributeBlock(at)))?;
    Ok(entries.iter().map(Entry::to_attribute).collect())
}

/// Makes an inode's block hold other attributes: rewritten in place if the inode is its only owner, or else left to
/// the others; a block that holds the same already is shared if the caller keeps track of blocks.
pub(super) fn replace(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    (before, after): (&[Attribute], &[Attribute]),
    references: &mut References,
    change: &mut Change<'_>,
) -> Result<()> {
    let old = block_of(inode);
    let owners = match old {
        Some(at) => load(txn, at)?.1,
        None => 0,
    };
    if after.is_empty() {
        if let Some(old) = old {
            leave(txn, inode, old, references, change)?;
        }
        return inode.set_attribute_block(BlockNumber(0)).map_err(|defect| at_inode(inode, defect));
    }
    let size = txn.layout().geometry.block_length();
    let mut image = vec![0; size];
    write_block(&mut image, after, 1).map_err(|defect| at_inode(inode, defect))?;
    if let Some(shared) = find_equal(txn, &image, change)?.filter(|shared| Some(*shared) != old) {
        count_owner(txn, shared, 1)?;
        charge(txn, inode, 1)?;
        if let Some(old) = old {
            leave(txn, inode, old, references, change)?;
        }
        return inode.set_attribute_block(shared).map_err(|defect| at_inode(inode, defect));
    }
    if let Some(old) = old.filter(|_| owners == 1) {
        if let Some(sharing) = change.sharing.as_deref_mut() {
            sharing.forget_block(old);
            sharing.note_block(&image, old);
        }
        references.exchange(before, after);
        return modify(txn, old, BlockKind::Attributes, |bytes| bytes.copy_from_slice(&image));
    }
    let new = take(txn, inode)?;
    create(txn, new, BlockKind::Attributes, |bytes| bytes.copy_from_slice(&image))?;
    if let Some(sharing) = change.sharing.as_deref_mut() {
        sharing.note_block(&image, new);
    }
    references.exchange(&[], after);
    if let Some(old) = old {
        leave(txn, inode, old, references, change)?;
    }
    set_feature(txn)?;
    inode.set_attribute_block(new).map_err(|defect| at_inode(inode, defect))
}

fn at_inode(inode: &Inode, defect: Defect) -> crate::Error {
    defect.at(Place::InodeAttributes(inode.number()))
}

/// A block that the caller knows of, holds the same as this image, and may have another owner.
fn find_equal(txn: &dyn Transaction, image: &[u8], change: &Change<'_>) -> Result<Option<BlockNumber>> {
    let Some(sharing) = change.sharing.as_deref() else { return Ok(None) };
    for at in sharing.blocks_like(image) {
        // What differs between equal blocks is the count of owners and the checksum; the entries tell.
        match load(txn, at) {
            Ok((bytes, owners)) if owners < MAX_REFCOUNT => {
                if attributes(at, &bytes)? == attributes(at, image)? {
                    return Ok(Some(at));
                }
            }
            // Somebody else made something else of it.
            Err(error) if error.is_corruption() => {}
            other => drop(other?),
        }
    }
    Ok(None)
}

/// Adds owners to a block, or takes them away.
fn count_owner(txn: &mut dyn Transaction, at: BlockNumber, by: i32) -> Result<()> {
    modify(txn, at, BlockKind::Attributes, |bytes| {
        let header = header_mut(bytes)?;
        header.h_refcount.set(header.h_refcount.get().saturating_add_signed(by));
        Ok::<(), Defect>(())
    })?
    .map_err(|defect| defect.at(Place::AttributeBlock(at)))
}

/// Gives up an inode's share of a block, and the block with its last owner.
fn leave(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    at: BlockNumber,
    references: &mut References,
    change: &mut Change<'_>,
) -> Result<()> {
    charge(txn, inode, -1)?;
    let (bytes, owners) = load(txn, at)?;
    if owners > 1 {
        return count_owner(txn, at, -1);
    }
    references.exchange(&attributes(at, &bytes)?, &[]);
    if let Some(sharing) = change.sharing.as_deref_mut() {
        sharing.forget_block(at);
    }
    txn.forget(at)?;
    let geometry = &txn.layout().geometry;
    let start = geometry.cluster_start(at);
    let length = geometry.blocks_count().saturating_sub(start.0).min(geometry.blocks_per_cluster().into());
    txn.release_blocks(BlockRun { start, length })
}

/// Takes a block for an inode's attributes, in the inode's group if it can be, and charges the inode for it.
fn take(txn: &mut dyn Transaction, inode: &mut Inode) -> Result<BlockNumber> {
    let geometry = &txn.layout().geometry;
    let group = geometry.inode_place(inode.number()).map(|(group, _)| geometry.group_start(group));
    let wanted = geometry.blocks_per_cluster().into();
    let request = BlockRequest { goal: group.unwrap_or_default(), wanted, owner: inode.number() };
    let block = txn.allocate_blocks(request)?.start;
    charge(txn, inode, 1)?;
    Ok(block)
}

/// Counts blocks in an owner's `i_blocks`: a block of attributes takes a whole cluster.
fn charge(txn: &dyn Transaction, inode: &mut Inode, blocks: i64) -> Result<()> {
    let change = blocks.saturating_mul(txn.layout().geometry.blocks_per_cluster().into());
    inode::change_blocks(txn, inode, change)
}

/// Checkers take attribute blocks for damage unless the superblock says that there are some.
fn set_feature(txn: &mut dyn Transaction) -> Result<()> {
    if txn.layout().features().compat.contains(Compat::EXT_ATTR) {
        return Ok(());
    }
    group::update_superblock(txn, |superblock| {
        let mut features = superblock.features();
        features.compat.insert(Compat::EXT_ATTR);
        superblock.set_features(features);
    })
}
