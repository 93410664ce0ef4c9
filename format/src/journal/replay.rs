//! Carrying out a plan: each block from the log to a sink, in order of its place in the filesystem.
//!
//! The sink is whatever takes a block: a store, an overlay, a counter. Order and flushes are told in
//! [`crate::journal`].

use super::Journal;
use super::list::BadCopy;
use super::plan::{PlannedCopy, ReplayPlan};
use super::scan::LoggedBlock;
use crate::disk::jbd2::ChecksumVersion;
use crate::disk::jbd2::tags::TagFlags;
use crate::disk::jbd2::unescape;
use crate::error::Result;
use crate::ids::{BlockNumber, TransactionId};

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Blocks that went to the sink.
    pub written: u64,
    /// Copies that were passed over because their checksum is wrong. The block got its next older copy, or stayed
    /// as it was. A full check is due then.
    pub bad_copies: Vec<BadCopy>,
}

impl ReplayPlan {
    /// Hands every block of the plan to the sink, in ascending order. The first error, of the journal or of the
    /// sink, ends it; the journal is not changed, so it can be done again.
    pub fn apply(
        &self,
        journal: &Journal,
        mut sink: impl FnMut(BlockNumber, &[u8]) -> Result<()>,
    ) -> Result<Replayed> {
        let mut done = Replayed::default();
        let (mut buffer, mut restored) = (Vec::new(), Vec::new());
        for (target, copies) in self.targets() {
            for PlannedCopy { copy, transaction, .. } in copies {
                let bytes = journal.blocks().read(copy.log_block, &mut buffer)?;
                if let Err(bad) = journal.check_copy(*transaction, copy, bytes) {
                    done.bad_copies.push(bad);
                    continue;
                }
                if copy.flags.contains(TagFlags::ESCAPE) {
                    restored.clear();
                    restored.extend_from_slice(bytes);
                    unescape(&mut restored);
                    sink(target, &restored)?;
                } else {
                    sink(target, bytes)?;
                }
                done.written = done.written.saturating_add(1);
                break;
            }
        }
        Ok(done)
    }
}

impl Journal {
    /// Whether a copy, as it lies in the log, matches its tag.
    pub(super) fn is_copy_good(&self, planned: &PlannedCopy) -> Result<bool> {
        let mut buffer = Vec::new();
        let bytes = self.blocks().read(planned.copy.log_block, &mut buffer)?;
        Ok(self.check_copy(planned.transaction, &planned.copy, bytes).is_ok())
    }

    /// Checks a copy, as it lies in the log, against its tag.
    pub(super) fn check_copy(
        &self,
        transaction: TransactionId,
        copy: &LoggedBlock,
        bytes: &[u8],
    ) -> Result<(), BadCopy> {
        let format = self.format();
        if matches!(format.checksums, ChecksumVersion::None | ChecksumVersion::V1) {
            return Ok(());
        }
        let computed = format.data_checksum(transaction, bytes);
        if computed == copy.checksum { Ok(()) } else { Err(BadCopy { transaction, copy: *copy, computed }) }
    }
}
