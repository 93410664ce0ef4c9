//! JBD2 logs: scan, list, plan, replay. One engine for every tool.
//!
//! | step | what it does | where |
//! | --- | --- | --- |
//! | [`Journal::open`] | maps log blocks to a store, checks the journal's superblock | [`blocks`], here |
//! | [`Journal::scan`] | walks the log and tells which transactions are whole, and why it ended | [`scan`] |
//! | [`Scan::transactions`] and friends | what the log holds, for listings and history | [`scan`], [`list`] |
//! | [`ReplayPlan::new`] | the newest copy of each block that no revoke cancels; pure | [`plan`] |
//! | [`ReplayPlan::apply`] | hands each block to a sink, in order of its place in the filesystem | [`replay`] |
//! | [`recover()`] | all of it on a store, with superblock and flushes | [`mod@recover`] |
//! | [`Journal::fast_commits`] | what lies in the fast-commit area behind the log | [`fast_commits`] |
//! | [`Journal::emptied`] | the superblock of the journal after its replay | here |
//! | [`commit_through_journal`] | the changes of an overlay as one transaction, then its replay | [`commit`] |
//! | [`encode_transaction`] | a transaction as log blocks, for whoever writes a log | [`encode`] |
//!
//! # Recovery in place, and why it survives a crash at any write
//!
//! [`recover()`] keeps this order; whoever replays by other means has to keep it too:
//!
//! 1. If the filesystem's superblock does not say `needs_recovery`, it is made to, and flushed: a kernel that finds
//!    the flag clear wipes the log.
//! 2. The plan's blocks are written. Where the primary superblock comes by, its copy gets the newer error record
//!    (the kernel writes that past the log) **before it is written**: later would be too late, a crash between the
//!    two would lose it.
//! 3. Fast commits, if any.
//! 4. The superblock says in `s_state` if the journal was aborted by an error (`s_errno`, which is kept) or damaged.
//!    Flush.
//! 5. The journal's superblock says that the log is empty ([`Journal::emptied`]). Flush.
//! 6. `needs_recovery` is cleared. Flush.
//!
//! Until step 5 is durable the log is as it was: nothing before touches it (a tag that names a block of the journal
//! counts as damage), and the plan depends on nothing else, so the next run does the same again and ends in the same
//! bytes. After it the next run finds nothing to replay and goes on with step 6; what it could no longer tell,
//! that the log was damaged, was recorded in step 4.
//!
//! # What ends a scan
//!
//! A log ends at the first block that does not carry on the sequence. That is how every crash looks, and no damage.
//! Damage is what the kernel refuses to mount or would replay wrongly: [`Stop::Damaged`] says where, and everything
//! up to the last good transaction is still replayed. Invariants: no transaction from the damage on is ever part of
//! a plan, and the walk takes no more steps than the log has blocks.

pub mod blocks;
pub mod commit;
pub mod encode;
pub mod fast_commits;
pub mod list;
pub mod locate;
pub mod plan;
pub mod recover;
pub mod replay;
pub mod scan;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use blocks::LogBlocks;
pub use commit::{JournalCommit, commit_through_journal};
pub use encode::{EncodedTransaction, TransactionContents, encode_transaction};
pub use fast_commits::{DirectoryName, FastCommit, FastCommits, FastStop, Operation, RecordPlace};
pub use list::{BadCopy, Version};
pub use locate::{FoundJournal, open_by_superblock, open_internal};
pub use plan::{PlannedCopy, ReplayPlan};
pub use recover::{Recovered, recover};
pub use replay::Replayed;
pub use scan::{ControlBlock, LoggedBlock, LoggedTransaction, Scan, Stop, Unfinished};

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use crate::disk::jbd2::LogFormat;
use crate::disk::jbd2::superblock::{JournalSuperblock, LogExtent, SIZE};
use crate::error::{Defect, Place, Result};

/// An opened journal: its blocks and its superblock, which was checked.
pub struct Journal {
    blocks: LogBlocks,
    superblock: JournalSuperblock,
    extent: LogExtent,
}

impl Journal {
    /// Reads the journal's superblock and refuses what could not be replayed safely: a wrong checksum, numbers out
    /// of range, features that are unknown (named in the error) or exclude each other.
    pub fn open(blocks: LogBlocks) -> Result<Self> {
        let at = blocks.superblock_block();
        let place = Place::JournalBlock(at);
        let mut buffer = Vec::new();
        let block = blocks.read(at, &mut buffer)?;
        let superblock = JournalSuperblock::read(block).map_err(|defect| defect.at(place.clone()))?;
        let extent = superblock.validate(blocks.block_size(), u64::from(blocks.count()), &place)?;
        let least = u64::from(at).saturating_add(1);
        Defect::check_range("s_first", u64::from(extent.first), least, u64::from(u32::MAX))
            .map_err(|defect| defect.at(place))?;
        Ok(Self { blocks, superblock, extent })
    }

    /// The journal's superblock as it was read.
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// Whether a filesystem with this UUID is among those that an external journal names as its users.
    pub fn serves(&self, filesystem: &[u8; 16]) -> bool {
        self.superblock.users().contains(filesystem)
    }

    /// Where log and fast-commit area lie.
    pub fn extent(&self) -> LogExtent {
        self.extent
    }

    /// How the log's blocks are laid out and checked.
    pub fn format(&self) -> LogFormat {
        self.superblock.format()
    }

    /// The journal's blocks.
    pub fn blocks(&self) -> &LogBlocks {
        &self.blocks
    }

    /// The superblock for after a replay: nothing waits, and the next transaction takes a number that no block
    /// left in the log can be mistaken for. The recorded error stays.
    pub fn emptied(&self, scan: &Scan) -> JournalSuperblock {
        let mut superblock = self.superblock.clone();
        superblock.s_start = U32::ZERO;
        superblock.s_sequence = U32::new(scan.restart().0);
        // Kernels that go on writing where the log ended find that place here; for the others it is padding, which
        // stays zero.
        if superblock.has_features() && superblock.s_head.get() != 0 {
            superblock.s_head = U32::new(scan.head());
        }
        superblock.seal();
        superblock
    }

    /// Writes the journal's superblock, and nothing else of its block. Durable after a flush of the store.
    pub fn write_superblock(&self, superblock: &JournalSuperblock) -> Result<()> {
        debug_assert_eq!(superblock.as_bytes().len(), SIZE, "the struct is the layout");
        self.blocks.write(self.blocks.superblock_block(), superblock.as_bytes())
    }
}
