//! What is written: an interrupted repair is finished, the journal is recovered in place, and a repair is committed as a
//! whole.

use std::path::Path;
use std::sync::Arc;

use ext4kit_format::commit::{self, Committed, Through};
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::superblock::state;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::image::Image;
use ext4kit_format::journal::{open_internal, recover};
use ext4kit_format::store::Store;
use ext4kit_format::tree::group;
use ext4kit_format::txn::{Overlay, Transaction, commit_with_redo_log};

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

/// Commits what a repair changed: through the image's own journal where that can take it, else with a redo log.
pub fn commit(store: &Arc<dyn Store>, overlay: &mut Overlay, redo_log: &Path, now: u32) -> Result<Committed> {
    // A superblock that has to be restored first cannot say where the journal is.
    match Image::open(Arc::clone(store)) {
        Ok(image) if image.layout() == overlay.layout() => {
            commit::commit(&image, overlay, redo_log, now.into())
        }
        _ => {
            let blocks = commit_with_redo_log(overlay, redo_log)?;
            let why = "the superblock on disk is not the one that is written".to_owned();
            Ok(Committed { blocks, through: Through::RedoLog(why) })
        }
    }
}
