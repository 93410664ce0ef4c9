//! Pass 1B: who owns the blocks that were claimed more than once. Runs only where there are any.

use rustc_hash::FxHashSet;

use ext4kit_format::bytes::all_zero;
use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::disk::inode::{FileKind, InodeFlags, InodeView};
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, Place};

use super::bits::Budget;
use super::context::{Context, Known, known};
use super::maps::{self, Piece, View, Visitor};
use super::special;
use crate::finding::MapProblem;

struct Owners<'c, 'a> {
    known: &'c Known<'a>,
    entered: FxHashSet<BlockNumber>,
    budget: &'c Budget,
    /// The runs of this inode that are shared.
    runs: Vec<BlockRun>,
}

impl Owners<'_, '_> {
    fn add(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        let bits = self.known.geometry().cluster_bits();
        let shared = &self.known.claims.shared;
        let mut cluster = self.known.claims.cluster(start);
        let behind = self.known.claims.cluster(end.saturating_sub(1)).saturating_add(1);
        // Each stretch costs, as each may become a finding.
        while let Some(next) = shared.next(cluster..behind) {
            let block = (next << bits).max(start);
            if !self.budget.take(1) {
                break;
            }
            cluster = shared.next_absent(next..behind).unwrap_or(behind);
            let stop = (cluster << bits).min(end);
            match self.runs.last_mut() {
                Some(last) if last.start.0.saturating_add(last.length) == block => {
                    last.length = last.length.saturating_add(stop.saturating_sub(block));
                }
                _ => {
                    self.runs
                        .push(BlockRun { start: BlockNumber(block), length: stop.saturating_sub(block) });
                }
            }
        }
    }
}

impl Visitor for Owners<'_, '_> {
    fn data(&mut self, piece: Piece) {
        let run = BlockRun { start: BlockNumber(piece.physical), length: piece.length };
        if self.known.geometry().contains_run(run) {
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
    if !context.claims.any_shared() || allowed {
        return;
    }
    let budget = Budget::new(context.geometry());
    let mut found: Vec<(InodeNumber, BlockRun)> = Vec::new();
    for number in (1..=context.geometry().inodes_count()).filter_map(InodeNumber::new) {
        // The list of bad blocks has nothing to give up: whoever else has such a block moves away.
        if context.state(number) & known::USED == 0 || number == InodeNumber::BAD_BLOCKS {
            continue;
        }
        for run in runs_of(&context.known, number, &budget) {
            found.push((number, run));
        }
    }
    for (number, run) in found {
        let problem = MapProblem::Shared { block: run.start, length: run.length };
        context.find(Place::Inode(number), problem);
    }
}

fn runs_of(known: &Known<'_>, number: InodeNumber, budget: &Budget) -> Vec<BlockRun> {
    let Some((bytes, range)) = known.inode_block(number) else { return Vec::new() };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return Vec::new() };
    let mut owners = Owners { known, entered: FxHashSet::default(), budget, runs: Vec::new() };
    let acl = view.attribute_block();
    if acl.0 != 0 && known.geometry().contains(acl) {
        owners.add(acl.0, 1);
    }
    let inline = view.flags().contains(InodeFlags::INLINE_DATA);
    let mapped = match view.kind() {
        Some(FileKind::Directory | FileKind::Regular) => !inline,
        Some(FileKind::Symlink) => !inline && !special::is_fast_symlink(view),
        _ => number == InodeNumber::BAD_BLOCKS,
    };
    if mapped && number != InodeNumber::RESIZE && !all_zero(view.map()) {
        maps::walk(View { source: known.source, layout: known.layout }, number, view, &mut owners);
    }
    owners.runs
}
