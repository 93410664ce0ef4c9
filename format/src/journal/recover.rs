//! Recovery of a filesystem on its store: replay, flushes and superblock in the order that survives a crash.
//!
//! The order is argued in [`crate::journal`]. Every tool that recovers in place calls [`recover`]; one that recovers
//! into an overlay uses [`replay_into`] and [`settle`], and leaves the journal alone until it commits.

use zerocopy::IntoBytes;

use super::plan::ReplayPlan;
use super::replay::Replayed;
use super::scan::Scan;
use super::{FastStop, Journal};
use crate::disk::features::{Incompat, RoCompat};
use crate::disk::superblock::{self, Superblock, state};
use crate::error::{Error, Place, Result};
use crate::ids::{BlockNumber, TransactionId};
use crate::num::index64;
use crate::store::Store;

/// What a recovery found and did.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// What the log held.
    pub scan: Scan,
    /// What was written from it.
    pub replayed: Replayed,
    /// Copies that were left out because a revoke cancels them.
    pub revoked: u64,
    /// The superblock as it is now.
    pub superblock: Superblock,
    /// Whether the one on disk was damaged, and the log's copy took its place. Errors that the kernel had recorded
    /// past the log are lost then.
    pub superblock_from_log: bool,
}

impl Recovered {
    /// Whether something that was committed is lost, so that a full check is due.
    pub fn is_damaged(&self) -> bool {
        self.scan.stop().is_damage() || !self.replayed.bad_copies.is_empty() || self.superblock_from_log
    }
}

/// Replays the journal of the filesystem on a store, up to and including a transaction if one is named, and leaves
/// an empty log and a superblock that says so.
///
/// Interrupted at any write, or with any writes lost that no flush covered, the next call ends in the same state.
/// A call that finds nothing to do writes nothing. Fast commits behind the log would be lost with it: they are
/// [`Error::Unsupported`] before anything is written, unless a transaction to stop at was named.
pub fn recover(store: &dyn Store, journal: &Journal, until: Option<TransactionId>) -> Result<Recovered> {
    let block_size = journal.blocks().block_size();
    let scan = journal.scan(store.size().checked_div(u64::from(block_size)).unwrap_or(0))?;
    let plan = ReplayPlan::new(&scan, until)?;
    if until.is_none() {
        refuse_fast_commits(journal, &scan)?;
    }
    let (mut before, superblock_from_log) = trusted_superblock(store, journal, &plan)?;
    if !plan.is_empty() && !needs_recovery(&before) {
        // A kernel that found the flag clear would wipe the log, and with it the rest of a replay that was cut.
        set_needs_recovery(&mut before, true);
        write_superblock(store, &before)?;
        flush(store)?;
    }
    let (replayed, superblock) = replay_into(journal, &plan, &before, |block, bytes| {
        let offset = block.0.saturating_mul(u64::from(block_size));
        store.write_at(offset, bytes).map_err(Error::io(Place::Block(block)))
    })?;
    let revoked = plan.revoked();
    let mut recovered = Recovered { scan, replayed, revoked, superblock, superblock_from_log };
    // Health is recorded while the log is still there: once it is empty nobody can tell any more that it was damaged.
    let damaged = recovered.is_damaged();
    let after_replay = recovered.superblock.clone();
    settle(&mut recovered.superblock, journal, damaged);
    let settled = recovered.superblock.as_bytes() != after_replay.as_bytes();
    if settled {
        write_superblock(store, &recovered.superblock)?;
    }
    if settled || !plan.is_empty() {
        flush(store)?;
    }
    if !recovered.scan.is_empty() {
        journal.write_superblock(&journal.emptied(&recovered.scan))?;
        journal.blocks().flush()?;
    }
    if needs_recovery(&recovered.superblock) {
        set_needs_recovery(&mut recovered.superblock, false);
        write_superblock(store, &recovered.superblock)?;
        flush(store)?;
    }
    Ok(recovered)
}

/// Hands every block of a plan to a sink, and follows what becomes of the superblock. `before` is the one on disk.
///
/// The copy of the superblock in the log may be older than the last error that the kernel met, which it writes past
/// the log. So the sink gets the copy with the error record of whichever counts more errors, and with
/// `needs_recovery`, which stays until the log is empty.
pub fn replay_into(
    journal: &Journal,
    plan: &ReplayPlan,
    before: &Superblock,
    mut sink: impl FnMut(BlockNumber, &[u8]) -> Result<()>,
) -> Result<(Replayed, Superblock)> {
    let (at, inside) = superblock_place(journal);
    let mut after = before.clone();
    let replayed = plan.apply(journal, |block, bytes| {
        if block != at {
            return sink(block, bytes);
        }
        let mut patched = bytes.to_vec();
        let place = patched.get_mut(inside..).unwrap_or_default();
        let mut superblock = Superblock::parse(place).map_err(|defect| defect.at(Place::Superblock))?;
        keep_errors(&mut superblock, before);
        set_needs_recovery(&mut superblock, true);
        if let Some(place) = place.get_mut(..superblock.as_bytes().len()) {
            place.copy_from_slice(superblock.as_bytes());
        }
        after = superblock;
        sink(block, &patched)
    })?;
    Ok((replayed, after))
}

/// Records in the superblock what a replay says about the filesystem's health: an error that aborted the journal,
/// and whether something is lost.
pub fn settle(superblock: &mut Superblock, journal: &Journal, damaged: bool) {
    let mut flags = superblock.s_state.get();
    if journal.superblock().s_errno.get() != 0 {
        flags |= state::ERROR;
    }
    if damaged {
        flags &= !state::VALID;
    }
    if flags != superblock.s_state.get() {
        superblock.s_state.set(flags);
        superblock.refresh_checksum();
    }
}

fn needs_recovery(superblock: &Superblock) -> bool {
    superblock.features().incompat.contains(Incompat::RECOVER)
}

/// Sets or clears the flag, and puts the checksum right for all that was changed before.
fn set_needs_recovery(superblock: &mut Superblock, set: bool) {
    let mut features = superblock.features();
    features.incompat.set(Incompat::RECOVER, set);
    superblock.set_features(features);
    superblock.refresh_checksum();
}

fn keep_errors(superblock: &mut Superblock, before: &Superblock) {
    superblock.s_state.set(superblock.s_state.get() | (before.s_state.get() & state::ERROR));
    if before.s_error_count.get() < superblock.s_error_count.get() {
        return;
    }
    superblock.s_error_count = before.s_error_count;
    superblock.s_first_error = before.s_first_error;
    superblock.s_last_error = before.s_last_error;
    superblock.s_first_error_time_hi = before.s_first_error_time_hi;
    superblock.s_last_error_time_hi = before.s_last_error_time_hi;
    superblock.s_first_error_errcode = before.s_first_error_errcode;
    superblock.s_last_error_errcode = before.s_last_error_errcode;
}

fn refuse_fast_commits(journal: &Journal, scan: &Scan) -> Result<()> {
    if scan.is_empty() {
        return Ok(());
    }
    let fast = journal.fast_commits(scan.next())?;
    match (&fast.stop, fast.commits.len()) {
        (FastStop::UnknownFeatures(_), _) => Err(Error::Unsupported(fast.stop.to_string())),
        (_, 0) => Ok(()),
        (_, count) => Err(Error::Unsupported(format!(
            "replaying the fast commits in the journal, of which there are {count}"
        ))),
    }
}

/// The superblock on disk, or, where its checksum is wrong or it is none, the copy that the log proves good: a
/// recovery that was cut while it wrote the superblock leaves it so. Says whether it is the log's.
fn trusted_superblock(store: &dyn Store, journal: &Journal, plan: &ReplayPlan) -> Result<(Superblock, bool)> {
    match read_superblock(store) {
        Ok(superblock) => Ok((superblock, false)),
        Err(error) if error.is_corruption() => Ok((logged_superblock(journal, plan)?.ok_or(error)?, true)),
        Err(error) => Err(error),
    }
}

/// The newest copy of the superblock that the plan writes, if its own checksum is right.
fn logged_superblock(journal: &Journal, plan: &ReplayPlan) -> Result<Option<Superblock>> {
    let (at, inside) = superblock_place(journal);
    let Some((_, copies)) = plan.targets().find(|(block, _)| *block == at) else { return Ok(None) };
    for planned in copies {
        if journal.is_copy_good(planned)? {
            let bytes = journal.read_copy(&planned.copy)?;
            let superblock = Superblock::parse(bytes.get(inside..).unwrap_or_default()).ok();
            return Ok(superblock.filter(|superblock| {
                let proven = superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM);
                proven && superblock.verify_checksum().is_ok()
            }));
        }
    }
    Ok(None)
}

/// The block that holds the primary superblock, and the byte in it where it begins.
fn superblock_place(journal: &Journal) -> (BlockNumber, usize) {
    let block_size = u64::from(journal.blocks().block_size());
    let offset = superblock::PRIMARY_OFFSET;
    let block = offset.checked_div(block_size).unwrap_or(0);
    (BlockNumber(block), index64(offset.checked_rem(block_size).unwrap_or(0)))
}

fn read_superblock(store: &dyn Store) -> Result<Superblock> {
    let mut bytes = vec![0; superblock::SIZE];
    let failed = Error::io(Place::Superblock);
    store.read_at(superblock::PRIMARY_OFFSET, &mut bytes).map_err(failed)?;
    let superblock = Superblock::parse(&bytes).map_err(|defect| defect.at(Place::Superblock))?;
    superblock.verify_checksum().map_err(|defect| defect.at(Place::Superblock))?;
    Ok(superblock)
}

fn write_superblock(store: &dyn Store, superblock: &Superblock) -> Result<()> {
    let failed = Error::io(Place::Superblock);
    store.write_at(superblock::PRIMARY_OFFSET, superblock.as_bytes()).map_err(failed)
}

fn flush(store: &dyn Store) -> Result<()> {
    store.flush().map_err(Error::io(Place::Bytes { offset: 0, length: store.size() }))
}
