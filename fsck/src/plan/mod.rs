//! A repair in two steps: what would be done is written to a file, and later done exactly so or not at all.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`witness`] | which parts of an image a check looked at |
//! | [`file`](mod@file) | the file: header, checksums, blocks |
//!
//! A plan holds a checksum of every block that the check read and the whole contents of every block that it would change,
//! before and after. [`apply`] compares all of them before it writes anything: what the plan was made from must be what
//! is there, down to the last block that had a say in it. Then it commits as any repair is committed.

pub mod file;
pub mod witness;

use std::path::Path;
use std::sync::Arc;

use ext4kit_format::BlockNumber;
use ext4kit_format::disk::crc::crc32c;
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::error::{Error, Place, Result};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::{index, index64, wide};
use ext4kit_format::store::Store;
use ext4kit_format::txn::{BlockKind, Overlay, OverlayOptions, Transaction};

use crate::opening::Opened;
use crate::report::FindingObject;
use crate::writing;

pub use file::{Change, Plan};
pub use witness::Witness;

/// What a repair came to, for its plan.
pub struct Outcome {
    /// What was found.
    pub findings: Vec<FindingObject>,
    /// How many errors would be left.
    pub left: u64,
    /// Whether the journal stays as it is, so that a commit may go through it.
    pub journal_stays: bool,
    /// The time of the repair, since 1970.
    pub time: u32,
}

/// Makes the plan of what was changed in an overlay, of which everything is to be committed.
pub fn make(opened: &mut Opened, witness: &Witness, outcome: Outcome) -> Result<Plan> {
    let overlay = &mut opened.source.overlay;
    let order = overlay.seal()?;
    let mut changes = Vec::with_capacity(order.len());
    for at in order {
        let Some(change) = overlay.change(at)? else { continue };
        let before = overlay.before(at)?.to_vec();
        let what = change.kind.place(at).to_string();
        changes.push(Change { block: at.0, what, before, after: change.after.to_vec() });
    }
    let block_size = overlay.layout().geometry.block_size();
    let store = witness.inner();
    let mut seen = Vec::new();
    for run in witness.blocks(block_size) {
        for block in run {
            seen.push((block, checksum(store.as_ref(), block, block_size)?));
        }
    }
    Ok(Plan { block_size, store_size: store.size(), outcome, seen, changes })
}

/// The checksum of one block of a store, whose last one may be short.
fn checksum(store: &dyn Store, block: u64, block_size: u32) -> Result<u32> {
    Ok(crc32c(u32::MAX, &read(store, block, block_size)?))
}

fn read(store: &dyn Store, block: u64, block_size: u32) -> Result<Vec<u8>> {
    let start = block.saturating_mul(block_size.into());
    let length = store.size().saturating_sub(start).min(block_size.into());
    let mut bytes = vec![0; index64(length)];
    store.read_at(start, &mut bytes).map_err(Error::io(Place::Block(BlockNumber(block))))?;
    Ok(bytes)
}

/// Does what a plan says, or refuses with nothing written; how many blocks were changed.
pub fn apply(store: &Arc<dyn Store>, plan: &Plan, redo_log: &Path) -> Result<usize> {
    let differs = |block: u64| {
        Error::Invalid(format!("block {block} is not as it was when the plan was made; nothing was written"))
    };
    if store.size() != plan.store_size {
        let (is, was) = (store.size(), plan.store_size);
        return Err(Error::Invalid(format!("it has {is} bytes, the plan is for {was}; nothing was written")));
    }
    let mut changes = plan.changes.iter().peekable();
    let mut seen = plan.seen.iter().peekable();
    // In the order of the blocks, so that the first one that differs is named.
    loop {
        let (change, sight) = (changes.peek().map(|change| change.block), seen.peek().map(|seen| seen.0));
        let Some(next) = change.into_iter().chain(sight).min() else { break };
        let found = read(store.as_ref(), next, plan.block_size)?;
        if let Some(change) = changes.next_if(|change| change.block == next)
            && change.before != found
        {
            return Err(differs(next));
        }
        if let Some((_, wanted)) = seen.next_if(|seen| seen.0 == next)
            && crc32c(u32::MAX, &found) != *wanted
        {
            return Err(differs(next));
        }
    }
    if plan.changes.is_empty() {
        return Ok(0);
    }
    let mut overlay = overlay_of(store, plan)?;
    let how = (redo_log, plan.outcome.journal_stays);
    let committed = writing::commit(store, &mut overlay, how, plan.outcome.time)?;
    Ok(committed.blocks)
}

/// The plan's changes over the store, by the superblock that the plan leaves.
fn overlay_of(store: &Arc<dyn Store>, plan: &Plan) -> Result<Overlay> {
    let wrong = |why: &str| Error::Invalid(format!("the plan {why}"));
    // A repair always records its end in the superblock.
    let place = 1024u32.checked_div(plan.block_size).unwrap_or(0);
    let change = plan.changes.iter().find(|change| change.block == u64::from(place));
    let change = change.ok_or_else(|| wrong("does not hold the superblock"))?;
    let inside = index(1024u32.checked_rem(plan.block_size).unwrap_or(0));
    let superblock = Superblock::parse(change.after.get(inside..).unwrap_or_default())
        .map_err(|defect| wrong(&format!("leaves no superblock: {defect}")))?;
    let layout =
        Layout::new(&superblock).map_err(|error| wrong(&format!("leaves no filesystem: {error}")))?;
    if layout.geometry.block_size() != plan.block_size {
        return Err(wrong("has blocks of another size than the filesystem"));
    }
    let blocks = layout.geometry.blocks_count();
    if blocks > plan.store_size >> layout.geometry.block_bits() {
        return Err(wrong("leaves a filesystem that is larger than its device"));
    }
    let options = OverlayOptions { verify: false, ..OverlayOptions::default() };
    let mut overlay = Overlay::new(Arc::clone(store), layout, options);
    for change in &plan.changes {
        if change.block >= blocks || wide(change.after.len()) != u64::from(plan.block_size) {
            return Err(wrong("changes blocks outside of the filesystem"));
        }
        overlay.create_with(BlockNumber(change.block), BlockKind::Plain, &mut |block| {
            block.copy_from_slice(&change.after);
        })?;
    }
    Ok(overlay)
}
