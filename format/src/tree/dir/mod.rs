//! Directories: names and the inodes that they stand for.
//!
//! One interface over the forms that a directory can have: entries inside the inode (`inline.rs`), a row of blocks of
//! entries, or the same with a hash tree over it (`index.rs`). Functions take the directory's inode as a copy in
//! memory and change its size, flags and map; the caller holds its lock where there is one, keeps link counts and
//! times, and writes the inode back.
//!
//! A directory inside its inode moves to a block when it outgrows it. A directory of one block becomes indexed when
//! that block is full, if the filesystem has `dir_index`. Blocks are never given back while the directory lives.

pub mod blocks;
mod build;
mod index;
mod index_insert;
mod inline;
mod linear;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

pub use blocks::{Shape, shape};
pub use build::{Name, build};

use crate::disk::dirent::{self, FileType, NewEntry};
use crate::disk::inode::{Inode, InodeFlags};
use crate::error::{Error, Place, Result};
use crate::ids::{BlockNumber, InodeNumber, LogicalBlock};
use crate::tree::map;
use crate::txn::{BlockKind, Transaction, modify};

/// Longest name in bytes.
pub use crate::disk::dirent::MAX_NAME;

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The directory's block.
    pub logical: LogicalBlock,
    /// Where that block lies.
    pub block: BlockNumber,
    /// Byte of the block at which the entry begins. In a directory inside its inode, both blocks are 0, and this counts
    /// through `i_block` and the value behind it; `.` and `..` lie at 0.
    pub offset: usize,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The inode that it names.
    pub inode: InodeNumber,
    /// The kind of file that it says the inode is; unknown without the feature `filetype`.
    pub file_type: FileType,
    /// Where it lies.
    pub location: Location,
}

/// An entry on the way through a directory.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The name, as stored: ciphertext in an encrypted directory.
    pub name: &'a [u8],
    /// What it names, and where the entry lies.
    pub found: Found,
}

/// Checks that a name can stand in a directory: 1 to 255 bytes, neither `/` nor NUL among them, and neither `.` nor
/// `..`.
pub fn check_name(name: &[u8]) -> Result<()> {
    let text = || String::from_utf8_lossy(name).into_owned();
    if name.is_empty() {
        return Err(Error::BadName("a name is empty".to_owned()));
    }
    if name.len() > MAX_NAME {
        return Err(Error::BadName(format!("{}: a name of {} bytes is too long (255)", text(), name.len())));
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Error::BadName(format!("{}: a name cannot hold a slash or a NUL", text())));
    }
    if dirent::is_dot(name) {
        return Err(Error::BadName(format!("{}: this name is the directory's own", text())));
    }
    Ok(())
}

/// Makes the first block of a new directory, whose map is initialised and empty: `.` and `..`.
pub fn create(txn: &mut dyn Transaction, dir: &mut Inode, parent: InodeNumber) -> Result<()> {
    let shape = shape(txn, dir)?;
    let own = dir.number();
    blocks::append_leaf(txn, dir, &shape, |area| shape.format.write_dots(area, own, parent))?;
    Ok(())
}

/// Makes a new directory, whose map is initialised and empty, one that lies inside its inode; `false` (and nothing
/// changed) if the inode has no room for that. Such a directory moves to blocks when it outgrows the inode.
pub fn create_inline(txn: &dyn Transaction, dir: &mut Inode, parent: InodeNumber) -> Result<bool> {
    let shape = shape(txn, dir)?;
    inline::create(dir, &shape, parent)
}

/// Adds an empty block of entries to a directory, so that names to come find room.
pub fn expand(txn: &mut dyn Transaction, dir: &mut Inode) -> Result<()> {
    let shape = shape(txn, dir)?;
    if inline::is_inline(dir) {
        inline::move_to_block(txn, dir, &shape)?;
    }
    blocks::append_leaf(txn, dir, &shape, |area| shape.format.clear(area))?;
    Ok(())
}

/// Calls `visit` for every entry in use, `.` and `..` included, in the order on disk, until it breaks. The first damaged
/// record ends the walk with an error.
pub fn for_each(
    txn: &dyn Transaction,
    dir: &Inode,
    visit: &mut dyn FnMut(Listed<'_>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let shape = shape(txn, dir)?;
    if inline::is_inline(dir) {
        return inline::for_each(dir, &shape, visit);
    }
    for logical in blocks::mapped(txn, dir, &shape) {
        let logical = logical?;
        let Some((block, bytes)) = blocks::read_leaf(txn, dir, &shape, logical)? else { continue };
        for entry in shape.format.entries(dirent::leaf_area(&bytes, shape.checksummed)) {
            let entry = entry.map_err(|bad| bad.defect.at(blocks::place(dir, logical, block)))?;
            let Some(inode) = entry.inode else { continue };
            let location = Location { logical, block, offset: entry.offset };
            let found = Found { inode, file_type: entry.file_type, location };
            if visit(Listed { name: entry.name, found })?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The entry of a name, compared byte for byte; `.` and `..` can be looked up as well.
pub fn lookup(txn: &dyn Transaction, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
    let shape = shape(txn, dir)?;
    if inline::is_inline(dir) {
        return inline::lookup(dir, &shape, name);
    }
    if !dirent::is_dot(name)
        && let Some(hasher) = index::hasher(txn, dir, &shape)?
    {
        return index::lookup(txn, dir, &shape, hasher, name);
    }
    linear::lookup(txn, dir, &shape, name)
}

/// Puts a name into a directory. The name is checked by [`check_name`] and must not be there.
pub fn insert(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    name: &[u8],
    inode: InodeNumber,
    file_type: FileType,
) -> Result<()> {
    check_name(name)?;
    let shape = shape(txn, dir)?;
    if shape.format.hashed {
        return Err(Error::Unsupported(
            "adding a name to a directory that needs an encryption key".to_owned(),
        ));
    }
    if dir.view().flags().contains(InodeFlags::CASEFOLD) {
        // Whether the name is there in another case, and where it belongs, takes folding to tell.
        return Err(Error::Unsupported("adding a name to a directory that ignores case".to_owned()));
    }
    let entry = NewEntry { inode, file_type, name, hash: None };
    if inline::is_inline(dir) {
        if inline::lookup(dir, &shape, name)?.is_some() {
            return Err(Error::AlreadyExists(String::from_utf8_lossy(name).into_owned()));
        }
        if inline::insert(dir, &shape, &entry)? {
            return Ok(());
        }
        inline::move_to_block(txn, dir, &shape)?;
    }
    if index::hasher(txn, dir, &shape)?.is_some() {
        return index_insert::insert(txn, dir, &shape, &entry);
    }
    if dir.view().flags().contains(InodeFlags::INDEX) {
        if txn.layout().has_directory_index() {
            return Err(Error::Unsupported(format!("directory {}: the hash of its index", dir.number())));
        }
        // Where the filesystem has no indexes the flag means nothing, and would be wrong after this.
        drop_index_flag(dir);
    }
    if linear::insert(txn, dir, &shape, &entry)? {
        return Ok(());
    }
    if index_insert::can_become_indexed(txn, dir, &shape) {
        index_insert::make_indexed(txn, dir, &shape)?;
        return index_insert::insert(txn, dir, &shape, &entry);
    }
    blocks::append_leaf(txn, dir, &shape, |area| shape.format.pack(area, [entry]))?;
    Ok(())
}

fn drop_index_flag(dir: &mut Inode) {
    let flags = dir.view().flags().difference(InodeFlags::INDEX);
    dir.set_flags(flags);
}

/// Takes a name out of a directory; what it named.
pub fn remove(txn: &mut dyn Transaction, dir: &mut Inode, name: &[u8]) -> Result<Found> {
    check_name(name)?;
    let found = lookup(txn, dir, name)?.ok_or_else(|| not_found(name))?;
    edit_entry(txn, dir, found.location, dirent::EntryFormat::remove)?;
    Ok(found)
}

/// Makes a name stand for another inode; what it named before. Works for `..` too, for a directory that moves.
pub fn set_target(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    name: &[u8],
    inode: InodeNumber,
    file_type: FileType,
) -> Result<Found> {
    if inline::is_inline(dir) && name == b".." {
        let shape = shape(txn, dir)?;
        return inline::set_parent(dir, &shape, inode);
    }
    let found = lookup(txn, dir, name)?.ok_or_else(|| not_found(name))?;
    edit_entry(txn, dir, found.location, |format, area, offset| {
        format.set_target(area, offset, (inode, file_type))
    })?;
    Ok(found)
}

/// Whether a directory holds nothing but `.` and `..`.
pub fn is_empty(txn: &dyn Transaction, dir: &Inode) -> Result<bool> {
    let mut empty = true;
    for_each(txn, dir, &mut |entry| {
        empty = dirent::is_dot(entry.name);
        Ok(if empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(empty)
}

fn not_found(name: &[u8]) -> Error {
    Error::NotFound(String::from_utf8_lossy(name).into_owned())
}

/// Changes the block in which an entry lies.
fn edit_entry(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    location: Location,
    edit: impl FnOnce(dirent::EntryFormat, &mut [u8], usize) -> Result<(), crate::Defect>,
) -> Result<()> {
    let shape = shape(txn, dir)?;
    if inline::is_inline(dir) {
        return inline::edit_entry(dir, location.offset, |area, offset| edit(shape.format, area, offset));
    }
    // `.` and `..` of an indexed directory lie in the root of its tree, whose entries end where no tail is.
    let root = location.logical == LogicalBlock(0) && dir.view().flags().contains(InodeFlags::INDEX);
    let kind = if root {
        BlockKind::DirectoryIndex(dir.owner(), location.logical)
    } else {
        BlockKind::DirectoryLeaf(dir.owner(), location.logical)
    };
    modify(txn, location.block, kind, |bytes| {
        let area = if root { bytes } else { dirent::leaf_area_mut(bytes, shape.checksummed) };
        edit(shape.format, area, location.offset)
    })?
    .map_err(|defect| defect.at(blocks::place(dir, location.logical, location.block)))
}

/// Where a directory's parent lies, by its `..`.
pub fn parent(txn: &dyn Transaction, dir: &Inode) -> Result<InodeNumber> {
    let found = lookup(txn, dir, b"..")?;
    found.map(|found| found.inode).ok_or_else(|| {
        let defect = crate::Defect::Contradiction("the directory has no entry for its parent".to_owned());
        defect.at(Place::Inode(dir.number()))
    })
}

/// How many blocks a directory has, from its size.
pub fn block_count(txn: &dyn Transaction, dir: &Inode) -> u64 {
    if inline::is_inline(dir) {
        return 0;
    }
    (dir.view().size() >> txn.layout().geometry.block_bits()).min(map::block_limit(txn, dir))
}
