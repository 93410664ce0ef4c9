//! What a replay came to, and the exit code of that.

use std::fmt::Write as _;

use ext4kit_cli::exit::FsckExit;
use ext4kit_cli::json::Schema;
use ext4kit_format::journal::{BadCopy, Recovered, ReplayPlan, Scan};
use serde::Serialize;

/// The answer of a replay or dry run with `--json`.
pub const OUTCOME: Schema = schema("replay");
/// The answer of `--list --json`.
pub const LISTING: Schema = schema("journal-listing");

const fn schema(name: &'static str) -> Schema {
    Schema { tool: "ext4kit-replay", version: env!("CARGO_PKG_VERSION"), name, schema_version: 1 }
}

/// What a replay came to, or would come to.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the answer")]
pub struct Outcome {
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Whether there is a journal at all.
    pub has_journal: bool,
    /// Whole transactions in the log.
    pub transactions: usize,
    /// The last transaction that was replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transaction: Option<u32>,
    /// Blocks that were written from the log.
    pub blocks: u64,
    /// Copies that were left out because a revoke cancels them.
    pub revoked: u64,
    /// Whether the filesystem was, or would be, changed.
    pub changed: bool,
    /// Whether something that was committed is lost.
    pub damaged: bool,
    /// Why the log ends where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// What else should be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Outcome {
    /// What a recovery did. `pending` says whether there was anything to do.
    pub fn of_recovery(recovered: &Recovered, pending: bool) -> Self {
        let mut outcome = Self {
            has_journal: true,
            blocks: recovered.replayed.written,
            revoked: recovered.revoked,
            changed: pending,
            damaged: recovered.is_damaged(),
            ..Self::default()
        };
        outcome.take_scan(&recovered.scan);
        outcome.note_bad_copies(&recovered.replayed.bad_copies);
        outcome
    }

    /// What a plan would do.
    pub fn of_plan(scan: &Scan, plan: &ReplayPlan, pending: bool) -> Self {
        let mut outcome = Self {
            dry_run: true,
            has_journal: true,
            blocks: u64::try_from(plan.targets().count()).unwrap_or(u64::MAX),
            revoked: plan.revoked(),
            changed: pending,
            damaged: scan.stop().is_damage(),
            ..Self::default()
        };
        outcome.take_scan(scan);
        outcome.last_transaction = plan.last().map(|id| id.0);
        outcome
    }

    /// Notes copies that do not match their checksums: something that was committed is lost.
    pub fn note_bad_copies(&mut self, copies: &[BadCopy]) {
        self.damaged |= !copies.is_empty();
        for bad in copies {
            self.warnings.push(format!(
                "the copy of block {} in transaction {} is damaged and was left out",
                bad.copy.target, bad.transaction
            ));
        }
    }

    fn take_scan(&mut self, scan: &Scan) {
        self.transactions = scan.transactions().len();
        self.last_transaction = scan.transactions().last().map(|transaction| transaction.id.0);
        self.end = Some(scan.stop().to_string());
    }

    /// The exit code: 0 nothing to do, 1 recovered, 4 damaged.
    pub fn exit(&self) -> FsckExit {
        if self.damaged {
            FsckExit::UNCORRECTED
        } else if self.changed {
            FsckExit::CORRECTED
        } else {
            FsckExit::empty()
        }
    }

    /// The outcome in a line or a few.
    pub fn text(&self, name: &str) -> String {
        let mut text = String::new();
        for warning in &self.warnings {
            let _ = writeln!(text, "{name}: {warning}");
        }
        if !self.has_journal {
            let _ = writeln!(text, "{name}: no journal, nothing to do");
        } else if self.changed || self.damaged {
            let would = if self.dry_run { "would recover" } else { "recovered" };
            let Self { blocks, transactions, revoked, .. } = self;
            let _ = writeln!(
                text,
                "{name}: {would} {blocks} blocks from {transactions} transactions, {revoked} copies revoked"
            );
        } else {
            let _ = writeln!(text, "{name}: clean, nothing to do");
        }
        if self.damaged {
            let end = self.end.as_deref().unwrap_or_default();
            let _ = writeln!(
                text,
                "{name}: the journal is damaged; some of what was committed is lost, check the filesystem ({end})"
            );
        }
        text
    }
}
