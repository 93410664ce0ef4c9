//! The one way in which changes to an existing filesystem are committed: as a whole or not at all.
//!
//! Through the filesystem's own journal where that is healthy and large enough, so that any implementation finishes an
//! interrupted commit; else with a redo log in a file beside the image, which [`finish_interrupted`] finishes and [`look_through`] reads
//! through.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::image::Image;
use crate::journal::{JournalCommit, commit_through_journal};
use crate::store::Store;
use crate::txn::{Overlay, RedoLog, commit_with_redo_log};

/// How a commit was made safe against interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Through {
    /// The filesystem's journal.
    Journal,
    /// A redo log in a file, for the reason that the text gives.
    RedoLog(String),
}

/// What a commit came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// How many blocks were changed.
    pub blocks: usize,
    /// What made it safe.
    pub through: Through,
}

/// Commits the changes of an overlay over this image. `redo_log` is where a redo log would lie, if one is needed; no
/// file may be there. `seconds` is the time of the commit, since 1970. The overlay is without changes afterwards.
pub fn commit(image: &Image, overlay: &mut Overlay, redo_log: &Path, seconds: u64) -> Result<Committed> {
    match commit_through_journal(image, overlay, seconds)? {
        JournalCommit::Done { blocks } => Ok(Committed { blocks, through: Through::Journal }),
        JournalCommit::Unfit(why) => {
            let blocks = commit_with_redo_log(overlay, redo_log)?;
            Ok(Committed { blocks, through: Through::RedoLog(why) })
        }
    }
}

/// Finishes a commit that was interrupted while it wrote in place from a redo log, or drops a log that was not whole
/// yet. How many blocks were written. To be called before an image is opened for writing.
pub fn finish_interrupted(store: &dyn Store, redo_log: &Path) -> Result<usize> {
    let Some(log) = RedoLog::find(redo_log)? else { return Ok(0) };
    let blocks = log.block_count();
    log.finish(store)?;
    Ok(blocks)
}

/// The store as it will be when an interrupted commit is finished, for whoever only reads it. Nothing is written.
pub fn look_through(store: Arc<dyn Store>, redo_log: &Path) -> Result<Arc<dyn Store>> {
    match RedoLog::look(redo_log)? {
        Some(log) => log.through(store),
        None => Ok(store),
    }
}
