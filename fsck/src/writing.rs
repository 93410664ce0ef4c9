//! What is written: an interrupted repair is finished, the journal is recovered in place, and a repair is committed as a
//! whole.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use ext4kit_format::commit::{self, Committed, Through};
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::superblock::{PRIMARY_OFFSET, SIZE, Superblock, state};
use ext4kit_format::error::{Error, Place, Result};
use ext4kit_format::image::Image;
use ext4kit_format::journal::{open_internal, recover};
use ext4kit_format::store::Store;
use ext4kit_format::tree::group;
use ext4kit_format::txn::{Overlay, Transaction, commit_with_redo_log};
use ext4kit_format::undo::UndoFile;

use zerocopy::IntoBytes;

use crate::opening::Opened;

/// What became of the journal before the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// There was nothing to do, or nothing that could be done: the check will tell.
    None,
    /// The journal was replayed.
    Done,
}

/// Replays the journal inside an image in place, if one waits. A journal or superblock that cannot be used is left
/// for the check to report.
pub fn recover_journal(store: &Arc<dyn Store>) -> Result<Recovery> {
    mend_torn_flag(store.as_ref())?;
    let Ok(image) = Image::open(Arc::clone(store)) else { return Ok(Recovery::None) };
    if !image.needs_recovery() || image.superblock().journal_inode().is_none() {
        return Ok(Recovery::None);
    }
    let Ok(found) = open_internal(&image) else { return Ok(Recovery::None) };
    match recover(store.as_ref(), &found.journal, None) {
        Ok(_) => Ok(Recovery::Done),
        // What cannot be replayed yet must not be lost by a repair.
        Err(error @ (Error::Io { .. } | Error::Unsupported(_))) => Err(error),
        Err(_) => Ok(Recovery::None),
    }
}

/// A crash may tear the write of a superblock that differs only in `needs_recovery`, before a replay or after it: the new
/// flag is there with the old checksum. The checksum then says which flag belongs to it, and that one is written again;
/// whatever was under way is finished from there.
fn mend_torn_flag(store: &dyn Store) -> Result<()> {
    let mut bytes = [0; SIZE];
    if store.is_read_only() || store.read_at(PRIMARY_OFFSET, &mut bytes).is_err() {
        return Ok(());
    }
    let Ok(mut superblock) = Superblock::parse(&bytes) else { return Ok(()) };
    let torn = |superblock: &Superblock| superblock.verify_checksum().is_err();
    if !torn(&superblock) {
        return Ok(());
    }
    let mut features = superblock.features();
    features.incompat.toggle(Incompat::RECOVER);
    superblock.set_features(features);
    if torn(&superblock) {
        return Ok(());
    }
    store.write_at(PRIMARY_OFFSET, superblock.as_bytes()).map_err(Error::io(Place::Superblock))?;
    store.flush().map_err(Error::io(Place::Superblock))
}

/// Records in the superblock what the check came to: clean or not, when, and that mounts are counted anew. No journal
/// waits any more: it was replayed in place or in memory, or given up.
pub fn record(opened: &mut Opened, clean: bool, now: u32) -> Result<()> {
    group::update_superblock(&mut opened.source.overlay, |superblock| {
        let flags = superblock.s_state.get();
        let flags = if clean { flags & !state::ERROR | state::VALID } else { flags & !state::VALID };
        superblock.s_state.set(flags);
        superblock.s_lastcheck.set(now);
        superblock.s_lastcheck_hi = 0;
        superblock.s_mnt_count.set(0);
        let mut features = superblock.features();
        features.incompat.remove(Incompat::RECOVER);
        superblock.set_features(features);
    })
}

/// Commits what a repair changed: through the image's own journal where that can take it and is not changed itself, else
/// with a redo log.
pub fn commit(
    store: &Arc<dyn Store>,
    overlay: &mut Overlay,
    (redo_log, journal_stays): (&Path, bool),
    now: u32,
) -> Result<Committed> {
    // A superblock that has to be restored first cannot say where the journal is.
    match Image::open(Arc::clone(store)) {
        Ok(image) if journal_stays && image.layout() == overlay.layout() => {
            commit::commit(&image, overlay, redo_log, now.into())
        }
        _ => {
            let blocks = commit_with_redo_log(overlay, redo_log)?;
            let why = "the superblock or the journal is changed".to_owned();
            Ok(Committed { blocks, through: Through::RedoLog(why) })
        }
    }
}

/// The same with an undo file, which holds what every changed block held before. The journal is not used for the
/// commit, as that would change blocks of its own.
pub fn commit_with_undo(opened: &mut Opened, path: &Path, (redo_log, offset): (&Path, u64)) -> Result<()> {
    let file_error = |error| Error::io(Place::File(path.display().to_string()))(error);
    let block_size = opened.source.layout().geometry.block_size();
    let store = Arc::clone(opened.source.store());
    let mut open = OpenOptions::new();
    open.read(true).write(true);
    let mut undo = match open.open(path) {
        Ok(file) => UndoFile::append(file, store.as_ref(), block_size, offset)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let file = open.create_new(true).open(path).map_err(file_error)?;
            UndoFile::create(file, block_size, offset)?
        }
        Err(error) => return Err(file_error(error)),
    };
    let overlay = &mut opened.source.overlay;
    let order = overlay.seal()?;
    undo.record_changes(overlay, &order)?;
    undo.sync(store.as_ref())?;
    commit_with_redo_log(&mut opened.source.overlay, redo_log)?;
    undo.finish(store.as_ref())
}
