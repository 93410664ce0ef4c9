//! Directories without an index: every block is looked at in turn.

use super::blocks::{self, Shape};
use super::{Found, Location};
use crate::disk::dirent::{self, NewEntry};
use crate::disk::inode::Inode;
use crate::error::{Error, Result};
use crate::ids::LogicalBlock;
use crate::txn::{BlockKind, Transaction, modify};

/// The entry of a name.
pub(super) fn lookup(
    txn: &dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    name: &[u8],
) -> Result<Option<Found>> {
    for logical in blocks::mapped(txn, dir, shape) {
        if let Some(found) = lookup_in(txn, dir, shape, logical?, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The entry of a name in one block.
pub(super) fn lookup_in(
    txn: &dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    logical: LogicalBlock,
    name: &[u8],
) -> Result<Option<Found>> {
    let Some((block, bytes)) = blocks::read_leaf(txn, dir, shape, logical)? else { return Ok(None) };
    let entry = shape
        .format
        .find(dirent::leaf_area(&bytes, shape.checksummed), name)
        .map_err(|defect| defect.at(blocks::place(dir, logical, block)))?;
    Ok(entry.and_then(|entry| {
        let location = Location { logical, block, offset: entry.offset };
        Some(Found { inode: entry.inode?, file_type: entry.file_type, location })
    }))
}

/// Puts an entry into the first block that has room; `false` if none has. The whole directory is searched for the name
/// first.
pub(super) fn insert(
    txn: &mut dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    if lookup(txn, dir, shape, entry.name)?.is_some() {
        return Err(Error::AlreadyExists(String::from_utf8_lossy(entry.name).into_owned()));
    }
    let blocks = blocks::mapped(txn, dir, shape).collect::<Result<Vec<_>>>()?;
    for logical in blocks {
        if insert_in(txn, dir, shape, logical, entry)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Puts an entry into one block, if it has room.
pub(super) fn insert_in(
    txn: &mut dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    logical: LogicalBlock,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    let Some((block, bytes)) = blocks::read_leaf(txn, dir, shape, logical)? else { return Ok(false) };
    let at = |defect: crate::Defect| defect.at(blocks::place(dir, logical, block));
    let needed = shape.format.needed(entry.name);
    let mut has_room = false;
    for record in shape.format.entries(dirent::leaf_area(&bytes, shape.checksummed)) {
        let record = record.map_err(|bad| at(bad.defect))?;
        let kept = if record.inode.is_some() { shape.format.needed(record.name) } else { 0 };
        if record.rec_len.saturating_sub(kept) >= needed {
            has_room = true;
            break;
        }
    }
    if !has_room {
        return Ok(false);
    }
    let inserted = modify(txn, block, BlockKind::DirectoryLeaf(dir.owner(), logical), |bytes| {
        shape.format.insert(dirent::leaf_area_mut(bytes, shape.checksummed), entry)
    })?;
    inserted.map(|offset| offset.is_some()).map_err(at)
}
