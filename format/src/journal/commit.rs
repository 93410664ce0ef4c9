//! Committing an overlay through the filesystem's own journal, so that it becomes visible as a whole or not at all.
//!
//! The changes are written to the log as one transaction, and then the journal is recovered: the writing in place *is*
//! the replay. Whoever opens the image after an interruption, be it ext4kit, e2fsck or a kernel, finishes the same
//! replay. The order:
//!
//! 1. File data that was written through is flushed.
//! 2. The transaction is written to the empty log, and flushed. Nothing points to it yet.
//! 3. The filesystem says `needs_recovery`. Flush. The log is still empty, so whoever recovers it now has nothing to do:
//!    the old state.
//! 4. The journal's superblock points to the transaction. Flush. From here on it is the new state. The other way round
//!    there would be a log with contents that nobody asks to replay, which to a check is damage.
//! 5. [`recover()`](super::recover()) does the rest.

use zerocopy::IntoBytes;

use super::{Journal, TransactionContents, encode_transaction, open_internal, recover};
use crate::disk::features::{Incompat, RoCompat};
use crate::disk::jbd2::IncompatFeatures;
use crate::disk::jbd2::superblock::{CHECKSUM_CRC32C, JournalSuperblock};
use crate::disk::superblock::PRIMARY_OFFSET;
use crate::error::{Error, Place, Result};
use crate::ids::BlockNumber;
use crate::image::Image;
use crate::layout::Layout;
use crate::num::wide;
use crate::txn::{Block, Overlay};

/// What a commit through the journal came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalCommit {
    /// All changes are in place and durable.
    Done {
        /// How many blocks were changed.
        blocks: usize,
    },
    /// Nothing was written: the journal cannot take the changes, for the reason that the text gives. They are still in
    /// the overlay.
    Unfit(String),
}

/// Commits the changes of an overlay over this image through the journal inside it.
///
/// `seconds` is the time of the commit, since 1970. The journal must be clean, and is taken only if the whole change
/// fits it. The overlay is without changes after [`JournalCommit::Done`].
pub fn commit_through_journal(image: &Image, overlay: &mut Overlay, seconds: u64) -> Result<JournalCommit> {
    let order = overlay.seal()?;
    if order.is_empty() {
        return Ok(JournalCommit::Done { blocks: 0 });
    }
    if image.superblock().journal_inode().is_none() {
        return Ok(unfit("the filesystem has no journal inside it"));
    }
    if image.needs_recovery() {
        return Ok(unfit("the journal waits for its replay"));
    }
    let Ok(found) = open_internal(image) else { return Ok(unfit("the journal cannot be used")) };
    let journal = found.journal;
    let Ok(scan) = journal.scan(image.layout().geometry.blocks_count()) else {
        return Ok(unfit("the journal cannot be read"));
    };
    if !scan.is_empty() || journal.superblock().s_errno.get() != 0 {
        return Ok(unfit("the journal is not clean"));
    }
    if order.iter().any(|at| journal.blocks().owns(*at)) {
        return Ok(unfit("the journal itself is to be changed"));
    }
    // Each copy takes a block, and each descriptor holds at least this many tags.
    let least_tags = wide(order.len()).div_ceil(u64::from(journal.blocks().block_size() / 32).max(1));
    let needed = wide(order.len()).saturating_add(least_tags).saturating_add(2);
    if needed > journal.extent().length().into() {
        return Ok(unfit("the changes are more than the journal holds"));
    }
    let mut superblock = journal.superblock().clone();
    choose_features(&mut superblock, image.layout());
    superblock.s_sequence.set(scan.restart().0);
    superblock.s_start.set(0);
    superblock.seal();
    write_transaction(&journal, &superblock, overlay, &order, seconds)?;
    announce(image)?;
    superblock.s_start.set(superblock.s_first.get());
    superblock.seal();
    journal.write_superblock(&superblock)?;
    journal.blocks().flush()?;
    recover(image.store().as_ref(), &open_internal(image)?.journal, None)?;
    overlay.discard();
    Ok(JournalCommit::Done { blocks: order.len() })
}

fn unfit(why: &str) -> JournalCommit {
    JournalCommit::Unfit(why.to_owned())
}

/// The features that a kernel would give the journal when it first writes to it: 64-bit tags and checksums as the
/// filesystem has them. The log is empty, so nothing in it is in another format.
fn choose_features(superblock: &mut JournalSuperblock, layout: &Layout) {
    if !superblock.has_features() {
        return;
    }
    let mut incompat = superblock.incompat();
    if layout.features().incompat.contains(Incompat::BIT64) {
        incompat |= IncompatFeatures::WIDE;
    }
    if layout.features().ro_compat.contains(RoCompat::METADATA_CSUM) {
        incompat.remove(IncompatFeatures::CHECKSUM_V2);
        incompat |= IncompatFeatures::CHECKSUM_V3;
        superblock.s_feature_compat.set(0);
        superblock.s_checksum_type = CHECKSUM_CRC32C;
    }
    superblock.s_feature_incompat.set(incompat.bits());
}

/// Writes all changes as one transaction at the start of the log, and makes it durable.
fn write_transaction(
    journal: &Journal,
    superblock: &JournalSuperblock,
    overlay: &Overlay,
    order: &[BlockNumber],
    seconds: u64,
) -> Result<()> {
    let mut changes: Vec<(BlockNumber, Block)> = Vec::with_capacity(order.len());
    for at in order {
        changes.extend(overlay.change(*at)?.map(|change| (*at, change.after)));
    }
    let blocks: Vec<(BlockNumber, &[u8])> = changes.iter().map(|(at, bytes)| (*at, &**bytes)).collect();
    let contents = TransactionContents { id: superblock.sequence(), seconds, blocks: &blocks, revokes: &[] };
    let encoded = encode_transaction(superblock.format(), superblock.s_uuid, &contents)?;
    let mut at = superblock.s_first.get();
    for block in encoded.body.iter().chain([&encoded.commit]) {
        journal.blocks().write(at, block)?;
        at = journal.extent().after(at);
    }
    journal.blocks().flush()
}

/// Makes the filesystem say that its journal has to be replayed.
fn announce(image: &Image) -> Result<()> {
    let mut superblock = image.superblock().clone();
    let mut features = superblock.features();
    features.incompat |= Incompat::RECOVER;
    superblock.set_features(features);
    superblock.refresh_checksum();
    let store = image.store();
    store.write_at(PRIMARY_OFFSET, superblock.as_bytes()).map_err(Error::io(Place::Superblock))?;
    store.flush().map_err(Error::io(Place::Superblock))
}
