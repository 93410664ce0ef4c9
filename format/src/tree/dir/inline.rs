//! Directories inside their inodes: the parent's number in the first 4 bytes of `i_block`, entries in the other 56, and
//! more entries in the value of `system.data`. There is no `.` and no `..`.
//!
//! The two areas are walked one by one: no record crosses from one to the other. Offsets of entries count through both,
//! so that an offset from 60 on lies in the value.

use std::ops::{ControlFlow, Range};

use super::blocks::{self, Shape};
use super::{Found, Listed, Location};
use crate::disk::dirent::{self, Entry, FileType, INLINE_ENTRIES, MIN_RECORD, NewEntry};
use crate::disk::inode::{Inode, MAP_SIZE};
use crate::error::{Defect, Place, Result};
use crate::ids::{BlockNumber, InodeNumber, LogicalBlock};
use crate::num::wide;
use crate::tree::inline;
use crate::txn::Transaction;

/// Whether the directory lies inside its inode.
pub(super) fn is_inline(dir: &Inode) -> bool {
    inline::is_inline(dir)
}

fn place(dir: &Inode) -> Place {
    Place::InlineData(dir.number())
}

/// The areas of entries in all the bytes; the second is left out if it is empty.
fn areas(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> + use<> {
    [INLINE_ENTRIES, MAP_SIZE..bytes.len()].into_iter().filter(|area| !area.is_empty())
}

fn file_type(shape: &Shape) -> FileType {
    if shape.format.file_type { FileType::DIRECTORY } else { FileType::UNKNOWN }
}

fn found_at(offset: usize, inode: InodeNumber, file_type: FileType) -> Found {
    Found { inode, file_type, location: Location { logical: LogicalBlock(0), block: BlockNumber(0), offset } }
}

/// What an entry found in the area that begins at `start` names.
fn found_in(start: usize, entry: &Entry<'_>) -> Option<Found> {
    Some(found_at(start.saturating_add(entry.offset), entry.inode?, entry.file_type))
}

/// The parent, from the first bytes.
fn parent(dir: &Inode) -> Result<InodeNumber> {
    dirent::inline_parent(dir.view().map())
        .ok_or_else(|| Defect::Contradiction("the directory names no parent".to_owned()).at(place(dir)))
}

/// Makes an inode without blocks an empty directory; `false` (and nothing changed) if it has no room.
pub(super) fn create(dir: &mut Inode, shape: &Shape, parent: InodeNumber) -> Result<bool> {
    if !inline::initialise(dir)? {
        return Ok(false);
    }
    let at = place(dir);
    let mut bytes = [0; MAP_SIZE];
    dirent::set_inline_parent(&mut bytes, parent)
        .and_then(|()| shape.format.clear(bytes.get_mut(INLINE_ENTRIES).unwrap_or_default()))
        .map_err(|defect| defect.at(at))?;
    store(dir, &bytes)
}

fn store(dir: &mut Inode, bytes: &[u8]) -> Result<bool> {
    let stored = inline::set_area(dir, bytes)?;
    if stored {
        dir.set_size(wide(bytes.len()));
    }
    Ok(stored)
}

/// Calls `visit` for `.`, `..` and every entry, until it breaks.
pub(super) fn for_each(
    dir: &Inode,
    shape: &Shape,
    visit: &mut dyn FnMut(Listed<'_>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let dots: [(&[u8], InodeNumber); 2] = [(b".", dir.number()), (b"..", parent(dir)?)];
    for (name, inode) in dots {
        let found = found_at(0, inode, file_type(shape));
        if visit(Listed { name, found })?.is_break() {
            return Ok(());
        }
    }
    let bytes = inline::area(dir)?;
    for area in areas(&bytes) {
        for entry in shape.format.entries(bytes.get(area.clone()).unwrap_or_default()) {
            let entry = entry.map_err(|bad| bad.defect.at(place(dir)))?;
            let Some(found) = found_in(area.start, &entry) else { continue };
            if visit(Listed { name: entry.name, found })?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The entry of a name.
pub(super) fn lookup(dir: &Inode, shape: &Shape, name: &[u8]) -> Result<Option<Found>> {
    match name {
        b"." => return Ok(Some(found_at(0, dir.number(), file_type(shape)))),
        b".." => return Ok(Some(found_at(0, parent(dir)?, file_type(shape)))),
        _ => {}
    }
    let bytes = inline::area(dir)?;
    for area in areas(&bytes) {
        let entry = shape.format.find(bytes.get(area.clone()).unwrap_or_default(), name);
        if let Some(entry) = entry.map_err(|defect| defect.at(place(dir)))? {
            return Ok(found_in(area.start, &entry));
        }
    }
    Ok(None)
}

/// Puts an entry where there is room, and lets the value grow for it; `false` (and nothing changed) if there is none.
pub(super) fn insert(dir: &mut Inode, shape: &Shape, entry: &NewEntry<'_>) -> Result<bool> {
    let at = |defect: Defect| defect.at(place(dir));
    let mut bytes = inline::area(dir)?;
    for area in areas(&bytes) {
        let area = bytes.get_mut(area).unwrap_or_default();
        if shape.format.insert(area, entry).map_err(at)?.is_some() {
            return store(dir, &bytes);
        }
    }
    // The value grows by what the entry needs: its last record gets the new bytes, and gives them to the entry.
    let value_length = bytes.len().saturating_sub(MAP_SIZE);
    let grown = shape.format.needed(entry.name).max(MIN_RECORD);
    bytes.resize(bytes.len().saturating_add(grown), 0);
    let value = bytes.get_mut(MAP_SIZE..).unwrap_or_default();
    shape.format.extend(value, value_length).map_err(at)?;
    if shape.format.insert(value, entry).map_err(at)?.is_none() {
        return Ok(false);
    }
    store(dir, &bytes)
}

/// Changes the area in which an entry lies; the closure gets it, and the entry's offset in it.
pub(super) fn edit_entry(
    dir: &mut Inode,
    offset: usize,
    edit: impl FnOnce(&mut [u8], usize) -> Result<(), Defect>,
) -> Result<()> {
    let mut bytes = inline::area(dir)?;
    let area = areas(&bytes).find(|area| area.contains(&offset)).unwrap_or_default();
    let within = offset.saturating_sub(area.start);
    edit(bytes.get_mut(area).unwrap_or_default(), within).map_err(|defect| defect.at(place(dir)))?;
    // As long as before, so that it fits.
    store(dir, &bytes).map(|_| ())
}

/// Makes a directory name another parent; what it named before.
pub(super) fn set_parent(dir: &mut Inode, shape: &Shape, parent_now: InodeNumber) -> Result<Found> {
    let before = found_at(0, parent(dir)?, file_type(shape));
    let at = place(dir);
    dirent::set_inline_parent(dir.map_mut(), parent_now).map_err(|defect| defect.at(at))?;
    Ok(before)
}

/// Moves the entries to a first block of the directory.
pub(super) fn move_to_block(txn: &mut dyn Transaction, dir: &mut Inode, shape: &Shape) -> Result<()> {
    let (own, parent) = (dir.number(), parent(dir)?);
    let bytes = inline::area(dir)?;
    let mut entries = Vec::new();
    for area in areas(&bytes) {
        for entry in shape.format.entries(bytes.get(area).unwrap_or_default()) {
            entries.extend(entry.map_err(|bad| bad.defect.at(place(dir)))?.to_new());
        }
    }
    let dot = |inode, name| NewEntry { inode, file_type: FileType::DIRECTORY, name, hash: None };
    let all = [dot(own, b".".as_slice()), dot(parent, b"..")].into_iter().chain(entries);
    inline::clear(txn, dir)?;
    blocks::append_leaf(txn, dir, shape, |area| shape.format.pack(area, all))?;
    Ok(())
}
