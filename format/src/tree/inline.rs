//! Contents that lie inside the inode (feature `inline_data`): 60 bytes in `i_block`, the rest in the value of the
//! attribute `system.data`, which is there even if it is empty and never leaves the inode.
//!
//! Nothing here touches a block until [`move_to_blocks`]. Functions change the copy of the inode; a change that does
//! not fit leaves it as it was. Directories of this form are in [`crate::tree::dir`], which use `area` and
//! `set_area`.

use super::{map, xattr};
use crate::disk::features::Incompat;
use crate::disk::inode::{Inode, InodeFlags, MAP_SIZE};
use crate::error::{Defect, Place, Result};
use crate::num::{index64, wide};
use crate::tree::file;
use crate::txn::Transaction;

/// Whether contents may lie inside inodes.
pub fn is_allowed(txn: &dyn Transaction) -> bool {
    txn.layout().features().incompat.contains(Incompat::INLINE_DATA)
}

/// Whether the inode's contents lie inside it.
pub fn is_inline(inode: &Inode) -> bool {
    inode.view().flags().contains(InodeFlags::INLINE_DATA)
}

/// How many bytes of contents the inode can hold beside its attributes; `None` if none, as it has no room for the
/// attribute that marks them.
pub fn capacity(inode: &Inode) -> Result<Option<usize>> {
    let room = xattr::room_in_inode(inode, xattr::INLINE_DATA)?;
    Ok(room.map(|room| room.saturating_add(MAP_SIZE)))
}

/// Makes an inode without blocks one of empty inline contents; `false` (and nothing changed) if it has no room.
pub fn initialise(inode: &mut Inode) -> Result<bool> {
    if !xattr::set_in_inode(inode, xattr::INLINE_DATA, Some(b""))? {
        return Ok(false);
    }
    let flags = inode.view().flags().difference(InodeFlags::EXTENTS).union(InodeFlags::INLINE_DATA);
    inode.set_flags(flags);
    inode.map_mut().fill(0);
    inode.set_size(0);
    Ok(true)
}

/// The 60 bytes of `i_block` and the value behind them.
pub(super) fn area(inode: &Inode) -> Result<Vec<u8>> {
    let mut bytes = inode.view().map().to_vec();
    bytes.extend(xattr::value_in_inode(inode, xattr::INLINE_DATA)?.unwrap_or_default());
    Ok(bytes)
}

/// Writes the 60 bytes of `i_block`, zeroed where there are fewer, and the value behind them; `false` (and nothing
/// changed) if that does not fit.
pub(super) fn set_area(inode: &mut Inode, bytes: &[u8]) -> Result<bool> {
    let (head, value) = bytes.split_at(bytes.len().min(MAP_SIZE));
    if !xattr::set_in_inode(inode, xattr::INLINE_DATA, Some(value))? {
        return Ok(false);
    }
    let map = inode.map_mut();
    map.fill(0);
    map.get_mut(..head.len()).unwrap_or_default().copy_from_slice(head);
    Ok(true)
}

/// All contents.
pub fn read_all(inode: &Inode) -> Result<Vec<u8>> {
    let mut bytes = area(inode)?;
    let size = inode.view().size();
    Defect::check_range("i_size", size, 0, wide(bytes.len()))
        .map_err(|defect| defect.at(Place::InlineData(inode.number())))?;
    bytes.truncate(index64(size));
    Ok(bytes)
}

/// Fills the buffer from a byte of the contents on; how many bytes there were.
pub fn read(inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    let contents = read_all(inode)?;
    let rest = usize::try_from(offset).ok().and_then(|offset| contents.get(offset..)).unwrap_or_default();
    let length = rest.len().min(buffer.len());
    for (target, byte) in buffer.iter_mut().zip(rest) {
        *target = *byte;
    }
    Ok(length)
}

/// Writes bytes at a byte of the contents, which grow if need be; `false` (and nothing changed) if they outgrow the inode.
pub fn write(inode: &mut Inode, offset: u64, bytes: &[u8]) -> Result<bool> {
    let Some(end) = offset.checked_add(wide(bytes.len())).filter(|end| fits(inode, *end)) else {
        return Ok(false);
    };
    let mut contents = read_all(inode)?;
    if end > wide(contents.len()) && !bytes.is_empty() {
        contents.resize(index64(end), 0);
    }
    if let Some(target) = contents.get_mut(index64(offset)..).and_then(|rest| rest.get_mut(..bytes.len())) {
        target.copy_from_slice(bytes);
    }
    store(inode, &contents)
}

/// Cuts or lengthens the contents; `false` (and nothing changed) if they outgrow the inode.
pub fn truncate(inode: &mut Inode, size: u64) -> Result<bool> {
    if !fits(inode, size) {
        return Ok(false);
    }
    let mut contents = read_all(inode)?;
    contents.resize(index64(size), 0);
    store(inode, &contents)
}

/// Whether so many bytes can lie in an inode at all, so that nothing larger is put together in memory.
fn fits(inode: &Inode, size: u64) -> bool {
    size <= wide(inode.bytes().len().saturating_add(MAP_SIZE))
}

fn store(inode: &mut Inode, contents: &[u8]) -> Result<bool> {
    let stored = set_area(inode, contents)?;
    if stored {
        inode.set_size(wide(contents.len()));
    }
    Ok(stored)
}

/// Takes the mark of inline contents from an inode, whose map is empty afterwards, and its size 0.
pub(super) fn clear(txn: &dyn Transaction, inode: &mut Inode) -> Result<()> {
    xattr::set_in_inode(inode, xattr::INLINE_DATA, None)?;
    let flags = inode.view().flags().difference(InodeFlags::INLINE_DATA);
    inode.set_flags(flags);
    inode.set_size(0);
    map::initialise(inode, txn.layout().features().incompat.contains(Incompat::EXTENTS))
}

/// Moves a file's contents to blocks.
pub fn move_to_blocks(txn: &mut dyn Transaction, inode: &mut Inode) -> Result<()> {
    let contents = read_all(inode)?;
    clear(txn, inode)?;
    file::write(txn, inode, 0, &contents)
}
