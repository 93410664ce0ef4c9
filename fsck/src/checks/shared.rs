//! Pass 1B: who owns the blocks that were claimed more than once. Runs only where there are any.

use rustc_hash::FxHashSet;

use ext4kit_format::bytes::all_zero;
use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::disk::inode::{FileKind, InodeFlags, InodeView};
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, Place};

use super::claims::Budget;
use super::context::{Context, known};
use super::maps::{self, Piece, View, Visitor};
use super::special;
use crate::finding::MapProblem;

struct Owners<'c, 'a> {
    context: &'c Context<'a>,
    entered: FxHashSet<BlockNumber>,
    budget: &'c mut Budget,
    /// The runs of this inode that are shared.
    runs: Vec<BlockRun>,
}

impl Owners<'_, '_> {
    fn add(&mut self, start: u64, length: u64) {
        let claims = &self.context.claims;
        let end = start.saturating_add(length);
        let bits = self.context.geometry().cluster_bits();
        let mut cluster = claims.cluster(start);
        while let Some(next) = claims.shared.next(cluster) {
            let block = (next << bits).max(start);
            if block >= end || !self.budget.take(1) {
                break;
            }
            let stop = (next.saturating_add(1) << bits).min(end);
            match self.runs.last_mut() {
                Some(last) if last.start.0.saturating_add(last.length) == block => {
                    last.length = last.length.saturating_add(stop.saturating_sub(block));
                }
                _ => {
                    self.runs
                        .push(BlockRun { start: BlockNumber(block), length: stop.saturating_sub(block) });
                }
            }
            cluster = next.saturating_add(1);
        }
    }
}

impl Visitor for Owners<'_, '_> {
    fn data(&mut self, piece: Piece) {
        let run = BlockRun { start: BlockNumber(piece.physical), length: piece.length };
        if self.context.geometry().contains_run(run) {
            self.add(piece.physical, piece.length);
        }
    }

    fn node(&mut self, block: BlockNumber) -> bool {
        self.add(block.0, 1);
        self.entered.insert(block) && self.budget.take(64)
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {}
}

/// Names each inode that has shared blocks.
pub fn check(context: &mut Context<'_>) {
    // Images for reading only may share blocks on purpose.
    let allowed = context.features().ro_compat.contains(RoCompat::SHARED_BLOCKS);
    if !context.claims.any_shared || allowed {
        return;
    }
    let mut budget = Budget::new(context.geometry());
    let mut found: Vec<(InodeNumber, BlockRun)> = Vec::new();
    for (at, state) in (1u32..).zip(context.states.iter()) {
        if state & known::USED == 0 {
            continue;
        }
        // The list of bad blocks has nothing to give up: whoever else has such a block moves away.
        let Some(number) = InodeNumber::new(at).filter(|number| *number != InodeNumber::BAD_BLOCKS) else {
            continue;
        };
        for run in runs_of(context, number, &mut budget) {
            found.push((number, run));
        }
    }
    for (number, run) in found {
        let problem = MapProblem::Shared { block: run.start, length: run.length };
        context.find(Place::Inode(number), problem);
    }
}

fn runs_of(context: &Context<'_>, number: InodeNumber, budget: &mut Budget) -> Vec<BlockRun> {
    let Some((bytes, range)) = context.inode_block(number) else { return Vec::new() };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return Vec::new() };
    let mut owners = Owners { context, entered: FxHashSet::default(), budget, runs: Vec::new() };
    let acl = view.attribute_block();
    if acl.0 != 0 && context.geometry().contains(acl) {
        owners.add(acl.0, 1);
    }
    let inline = view.flags().contains(InodeFlags::INLINE_DATA);
    let mapped = match view.kind() {
        Some(FileKind::Directory | FileKind::Regular) => !inline,
        Some(FileKind::Symlink) => !inline && !special::is_fast_symlink(view),
        _ => number == InodeNumber::BAD_BLOCKS,
    };
    if mapped && number != InodeNumber::RESIZE && !all_zero(view.map()) {
        maps::walk(View { source: context.source, layout: context.layout }, number, view, &mut owners);
    }
    owners.runs
}
