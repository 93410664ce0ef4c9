//! Putting a filesystem back by an undo file.

use std::fs::File;

use super::{Entry, belongs, read_contents, read_data};
use crate::disk::undo::STATE_FINISHED;
use crate::error::{Error, Place, Result};
use crate::store::Store;

/// How strictly to look before anything is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndoOptions {
    /// Whether a filesystem that was changed since, and a file of a run that did not end, are accepted.
    pub force: bool,
}

/// What was put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Pieces of the filesystem.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Puts back everything that an undo file holds. All of it is read and verified before the first byte is written.
///
/// Fails with [`Error::Corrupt`] for a damaged undo file, also with `force`, and with [`Error::Invalid`] for one that
/// does not belong to the filesystem as it is now.
pub fn undo(file: &File, store: &dyn Store, options: UndoOptions) -> Result<Undone> {
    let contents = read_contents(file)?;
    if !options.force {
        if contents.header.state.get() & STATE_FINISHED == 0 {
            return Err(Error::Invalid("the undo file is of a run that did not end".to_owned()));
        }
        if !belongs(file, &contents.header, store)? {
            return Err(Error::Invalid(
                "the undo file does not belong to this filesystem as it is now".to_owned(),
            ));
        }
    }
    let mut buffer = Vec::new();
    for entry in &contents.entries {
        read_data(file, entry, &mut buffer)?;
        let end = entry.offset.saturating_add(entry.length.into());
        if end > store.size() {
            let size = store.size();
            return Err(Error::Invalid(format!(
                "the undo file goes up to byte {end}, the device has {size}"
            )));
        }
    }
    let mut undone = Undone::default();
    // The oldest contents of what is there twice come first in the file, so they are written last.
    for entry in contents.entries.iter().rev() {
        read_data(file, entry, &mut buffer)?;
        store.write_at(entry.offset, &buffer).map_err(Error::io(place_of(entry)))?;
        undone.pieces = undone.pieces.saturating_add(1);
        undone.bytes = undone.bytes.saturating_add(entry.length.into());
    }
    store.flush().map_err(Error::io(Place::Superblock))?;
    Ok(undone)
}

fn place_of(entry: &Entry) -> Place {
    Place::Bytes { offset: entry.offset, length: entry.length.into() }
}
