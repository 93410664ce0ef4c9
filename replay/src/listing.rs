//! What a log holds, as values that are printed as text or JSON.

use std::fmt::Write as _;

use ext4kit_format::BlockNumber;
use ext4kit_format::disk::jbd2::tags::TagFlags;
use ext4kit_format::image::Image;
use ext4kit_format::journal::{DirectoryName, Journal, Operation, Scan};
use serde::Serialize;

use crate::naming::Names;

/// A log's contents.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// Whole transactions, oldest first.
    pub transactions: Vec<Transaction>,
    /// Why the log ends where it does.
    pub end: String,
    /// Whether something that was committed is lost.
    pub damaged: bool,
    /// Fast commits behind the log.
    pub fast_commits: Vec<FastCommit>,
}

/// A whole transaction.
#[derive(Clone, Debug, Serialize)]
pub struct Transaction {
    /// Its sequence number.
    pub sequence: u32,
    /// When it was committed: seconds since 1970, as its writer says.
    pub seconds: u64,
    /// Log block where it begins.
    pub log_block: u32,
    /// Blocks that it writes.
    pub block_count: usize,
    /// Blocks that it revokes.
    pub revoke_count: usize,
    /// Each block that it writes; only in a verbose listing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// Each block that it revokes; only in a verbose listing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revokes: Vec<u64>,
}

/// A block in a transaction.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// The block of the filesystem.
    pub block: u64,
    /// Log block of the copy.
    pub log_block: u32,
    /// Whether its first four bytes are restored on replay.
    pub escaped: bool,
    /// What it is, where its place tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
}

/// A fast commit.
#[derive(Clone, Debug, Serialize)]
pub struct FastCommit {
    /// The transaction that it follows on.
    pub sequence: u32,
    /// Its operations, in words.
    pub operations: Vec<String>,
}

impl Listing {
    /// Lists a log.
    pub fn new(image: &Image, journal: &Journal, scan: &Scan, verbose: bool) -> ext4kit_format::Result<Self> {
        let names = verbose.then(|| Names::new(image));
        let transactions = scan.transactions().iter().map(|transaction| {
            let blocks = scan.blocks_of(transaction);
            let revokes = scan.revokes_of(transaction);
            Transaction {
                sequence: transaction.id.0,
                seconds: transaction.seconds,
                log_block: transaction.start,
                block_count: blocks.len(),
                revoke_count: revokes.len(),
                blocks: names.as_ref().map_or_else(Vec::new, |names| {
                    let name = |block: BlockNumber| names.of(block).map(str::to_owned);
                    let listed = blocks.iter().map(|copy| Block {
                        block: copy.target.0,
                        log_block: copy.log_block,
                        escaped: copy.flags.contains(TagFlags::ESCAPE),
                        what: name(copy.target),
                    });
                    listed.collect()
                }),
                revokes: if verbose { revokes.to_vec() } else { Vec::new() },
            }
        });
        let fast = if scan.is_empty() { Vec::new() } else { journal.fast_commits(scan.next())?.commits };
        let fast_commits = fast.iter().map(|commit| FastCommit {
            sequence: scan.next().0,
            operations: commit.operations.iter().map(|(_, operation)| in_words(operation)).collect(),
        });
        Ok(Self {
            journal_blocks: journal.blocks().count(),
            transactions: transactions.collect(),
            end: scan.stop().to_string(),
            damaged: scan.stop().is_damage(),
            fast_commits: fast_commits.collect(),
        })
    }

    /// The listing as lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for transaction in &self.transactions {
            let Transaction { sequence, log_block, block_count, revoke_count, .. } = transaction;
            let _ = writeln!(
                text,
                "transaction {sequence} at log block {log_block}: {block_count} blocks, {revoke_count} revokes"
            );
            for block in &transaction.blocks {
                let escaped = if block.escaped { ", escaped" } else { "" };
                let what = block.what.as_ref().map_or_else(String::new, |what| format!(": {what}"));
                let _ = writeln!(
                    text,
                    "  block {} from log block {}{escaped}{what}",
                    block.block, block.log_block
                );
            }
            for block in &transaction.revokes {
                let _ = writeln!(text, "  revokes block {block}");
            }
        }
        for commit in &self.fast_commits {
            let _ = writeln!(text, "fast commit after transaction {}", commit.sequence.wrapping_sub(1));
            for operation in &commit.operations {
                let _ = writeln!(text, "  {operation}");
            }
        }
        let _ = writeln!(text, "end of the log: {}", self.end);
        text
    }
}

/// A fast-commit operation in words.
fn in_words(operation: &Operation) -> String {
    let named = |verb: &str, name: &DirectoryName| {
        let DirectoryName { parent, inode, name } = name;
        format!("{verb} {} in directory {parent}, inode {inode}", name.escape_ascii())
    };
    match operation {
        Operation::AddRange { inode, extent } => {
            let state = if extent.unwritten { ", unwritten" } else { "" };
            format!(
                "map {} blocks of inode {inode} from {} on at {}{state}",
                extent.length, extent.logical, extent.physical
            )
        }
        Operation::DeleteRange { inode, start, count } => {
            format!("unmap {count} blocks of inode {inode} from {start} on")
        }
        Operation::Create(name) => named("create", name),
        Operation::Link(name) => named("link", name),
        Operation::Unlink(name) => named("unlink", name),
        Operation::Inode { inode, raw } => format!("set inode {inode} ({} bytes)", raw.len()),
    }
}
