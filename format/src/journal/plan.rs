//! What a replay writes: for each block the newest copy that no revoke cancels. Pure, so that a dry run, a listing
//! and the real run are the same plan.
//!
//! Older copies of a block stay in the plan behind the newest. If the newest turns out to have a wrong checksum,
//! the next older one is what a replay in log order would have left.
//!
//! Invariants: blocks are in ascending order; a copy is never cancelled by a revoke of its own or a later
//! transaction. Building takes time in proportion to copies and revokes, up to sorting them.

use super::scan::{LoggedBlock, Scan};
use crate::error::{Error, Result};
use crate::ids::{BlockNumber, TransactionId};

/// A copy in the log that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCopy {
    /// The copy.
    pub copy: LoggedBlock,
    /// The transaction that wrote it.
    pub transaction: TransactionId,
    /// Which transaction of the log that is, from 0. Unlike numbers, these do not wrap.
    order: u32,
}

/// The blocks that a replay writes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayPlan {
    /// By target, the newest first.
    copies: Vec<PlannedCopy>,
    last: Option<TransactionId>,
    revoked: u64,
}

impl ReplayPlan {
    /// The plan of a log, up to and including a transaction if one is named. A name that is not among the whole
    /// transactions is [`Error::Invalid`].
    pub fn new(scan: &Scan, until: Option<TransactionId>) -> Result<Self> {
        let all = scan.transactions();
        let count = match until {
            None => all.len(),
            Some(id) => {
                let at = all.iter().position(|transaction| transaction.id == id);
                at.and_then(|at| at.checked_add(1)).ok_or_else(|| not_there(scan, id))?
            }
        };
        let (mut copies, mut revokes) = (Vec::new(), Vec::new());
        for (order, transaction) in (0u32..).zip(all.iter().take(count)) {
            let id = transaction.id;
            let planned = |copy: &LoggedBlock| PlannedCopy { copy: *copy, transaction: id, order };
            // Should one transaction hold a block twice, the later copy counts as the newer one below.
            copies.extend(scan.blocks_of(transaction).iter().rev().map(planned));
            revokes.extend(scan.revokes_of(transaction).iter().map(|block| (*block, order)));
        }
        // Stable, so that copies of one transaction keep their order.
        copies.sort_by_key(|copy| (copy.copy.target, std::cmp::Reverse(copy.order)));
        revokes.sort_unstable();
        let revoked = drop_revoked(&mut copies, &revokes);
        let last = count.checked_sub(1).and_then(|at| all.get(at)).map(|transaction| transaction.id);
        Ok(Self { copies, last, revoked })
    }

    /// Each block that is written, with its copies, the newest first.
    pub fn targets(&self) -> impl Iterator<Item = (BlockNumber, &[PlannedCopy])> {
        let groups = self.copies.chunk_by(|left, right| left.copy.target == right.copy.target);
        groups.filter_map(|copies| copies.first().map(|newest| (newest.copy.target, copies)))
    }

    /// The last transaction of the plan; `None` if it has none.
    pub fn last(&self) -> Option<TransactionId> {
        self.last
    }

    /// How many copies were left out because a revoke cancels them.
    pub fn revoked(&self) -> u64 {
        self.revoked
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
}

/// Both lists are sorted by block, and the revokes of one block by age, so one walk over both finds each block's
/// newest revoke. It cancels the copies of its own transaction and of those before.
fn drop_revoked(copies: &mut Vec<PlannedCopy>, revokes: &[(u64, u32)]) -> u64 {
    let before = copies.len();
    let mut rest = revokes;
    let mut newest = None;
    copies.retain(|copy| {
        while let Some(((block, order), tail)) = rest.split_first()
            && *block <= copy.copy.target.0
        {
            newest = Some((*block, *order));
            rest = tail;
        }
        newest.is_none_or(|(block, order)| block != copy.copy.target.0 || copy.order > order)
    });
    crate::num::wide(before.saturating_sub(copies.len()))
}

fn not_there(scan: &Scan, id: TransactionId) -> Error {
    let held = match (scan.transactions().first(), scan.transactions().last()) {
        (Some(first), Some(last)) => format!("it holds {} to {}", first.id, last.id),
        _ => "it holds none".to_owned(),
    };
    Error::Invalid(format!("transaction {id} is not whole in the journal: {held}"))
}
