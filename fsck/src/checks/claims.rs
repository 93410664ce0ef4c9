//! Which clusters are in use: one bit each, and a second one where a cluster was claimed again.

use ext4kit_format::geometry::Geometry;
use ext4kit_format::num::{index64, wide};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, Place};

use super::context::Context;
use crate::finding::GroupProblem;

/// A dense set of bits.
#[derive(Clone, Debug)]
pub struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    /// An empty set of numbers below a limit.
    pub fn new(limit: u64) -> Self {
        Self { words: vec![0; index64(limit.div_ceil(64))] }
    }

    /// Puts a number in; whether it was there.
    pub fn insert(&mut self, bit: u64) -> bool {
        let mask = 1u64 << (bit % 64);
        let Some(word) = self.words.get_mut(index64(bit / 64)) else { return false };
        let before = *word & mask != 0;
        *word |= mask;
        before
    }

    /// Whether a number is there.
    pub fn contains(&self, bit: u64) -> bool {
        self.words.get(index64(bit / 64)).is_some_and(|word| word & (1u64 << (bit % 64)) != 0)
    }

    /// The next number from `from` on that is there.
    pub fn next(&self, from: u64) -> Option<u64> {
        let mut at = index64(from / 64);
        let mut word = self.words.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at = at.saturating_add(1);
            word = *self.words.get(at)?;
        }
        Some(wide(at).saturating_mul(64).saturating_add(word.trailing_zeros().into()))
    }

    /// The next number from `from` on that is not there, below `limit`.
    pub fn next_absent(&self, from: u64, limit: u64) -> Option<u64> {
        let mut at = from;
        while at < limit {
            let word = !*self.words.get(index64(at / 64))? & (u64::MAX << (at % 64));
            if word != 0 {
                let found = (at / 64).saturating_mul(64).saturating_add(word.trailing_zeros().into());
                return (found < limit).then_some(found);
            }
            at = (at / 64).saturating_add(1).saturating_mul(64);
        }
        None
    }

    /// The words, the lowest number in the lowest bit of the first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// How much work may be spent on what a sound filesystem has only once. An image that names the same blocks again and
/// again would otherwise cost the product of names and blocks; beyond the budget its damage is told less exactly.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u64);

impl Budget {
    /// Enough for everything once, and for much of it again.
    pub fn new(geometry: &Geometry) -> Self {
        Self(geometry.blocks_count().saturating_mul(4).saturating_add(1 << 20))
    }

    /// Takes from the budget; whether there was enough.
    pub fn take(&mut self, cost: u64) -> bool {
        match self.0.checked_sub(cost) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }
}

/// What the blocks of the filesystem are claimed by.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Clusters in use. A cluster's number is that of its first block, shifted.
    pub used: BitSet,
    /// Clusters that were claimed more than once.
    pub shared: BitSet,
    /// Runs of fixed metadata, merged and in order.
    pub metadata: Vec<BlockRun>,
    /// Whether any cluster is shared.
    pub any_shared: bool,
    budget: Budget,
    cluster_bits: u32,
    blocks: u64,
}

impl Claims {
    /// Nothing is claimed.
    pub fn new(geometry: &Geometry) -> Self {
        let limit = (geometry.blocks_count() >> geometry.cluster_bits()).saturating_add(1);
        Self {
            used: BitSet::new(limit),
            shared: BitSet::new(limit),
            metadata: Vec::new(),
            any_shared: false,
            budget: Budget::new(geometry),
            cluster_bits: geometry.cluster_bits(),
            blocks: geometry.blocks_count(),
        }
    }

    /// How many clusters there are.
    pub fn clusters(&self) -> u64 {
        let size = 1u64 << self.cluster_bits;
        self.blocks.saturating_add(size.saturating_sub(1)) >> self.cluster_bits
    }

    /// A block's cluster.
    pub fn cluster(&self, block: u64) -> u64 {
        block >> self.cluster_bits
    }

    /// Claims a cluster; whether it was claimed before.
    pub fn claim(&mut self, cluster: u64) -> bool {
        let again = self.used.insert(cluster);
        if again {
            self.shared.insert(cluster);
            self.any_shared = true;
        }
        again
    }

    /// Claims the clusters from one to another, both included.
    pub fn claim_range(&mut self, first: u64, last: u64) {
        let count = last.saturating_add(1).saturating_sub(first);
        let last = if self.budget.take(count) { last } else { first.min(last) };
        for cluster in first..=last {
            self.claim(cluster);
        }
    }

    /// Marks blocks as in use without asking who has them.
    pub fn mark(&mut self, run: BlockRun) {
        let end = run.start.0.saturating_add(run.length).min(self.blocks);
        for block in run.start.0..end {
            self.used.insert(self.cluster(block));
        }
    }

    /// The first block of a run that holds fixed metadata.
    pub fn in_metadata(&self, run: BlockRun) -> Option<BlockNumber> {
        let end = run.start.0.saturating_add(run.length);
        let after = self.metadata.partition_point(|known| known.start.0 < end);
        let known = self.metadata.get(after.checked_sub(1)?)?;
        let known_end = known.start.0.saturating_add(known.length);
        (known_end > run.start.0).then(|| self.first_overlap(run))
    }

    fn first_overlap(&self, run: BlockRun) -> BlockNumber {
        let at =
            self.metadata.partition_point(|known| known.start.0.saturating_add(known.length) <= run.start.0);
        let start = self.metadata.get(at).map_or(run.start.0, |known| known.start.0);
        BlockNumber(start.max(run.start.0))
    }
}

/// Claims superblocks, descriptors, bitmaps, tables and the protection block, and tells which lie over each other.
pub fn claim_metadata(context: &mut Context<'_>) {
    let geometry = context.geometry();
    let mut runs: Vec<BlockRun> = Vec::new();
    for group in geometry.groups() {
        runs.extend(geometry.base_metadata(group).runs().filter(|run| geometry.contains_run(*run)));
    }
    for block in 0..geometry.first_data_block().0 {
        runs.push(BlockRun::single(BlockNumber(block)));
    }
    merge(&mut runs);
    let mut base = Claims { metadata: runs.clone(), ..context.claims.clone() };
    // Flex groups put tables anywhere, so overlaps are looked for among all of them.
    let table_blocks = u64::from(geometry.inode_table_blocks());
    let mut tables: Vec<(BlockRun, GroupNumber, &'static str)> = Vec::new();
    for (group, descriptor) in geometry.groups().zip(context.groups) {
        let table = BlockRun { start: descriptor.inode_table, length: table_blocks };
        let parts = [
            (BlockRun::single(descriptor.block_bitmap), "block bitmap"),
            (BlockRun::single(descriptor.inode_bitmap), "inode bitmap"),
            (table, "inode table"),
        ];
        tables.extend(
            parts
                .into_iter()
                .filter(|(run, _)| geometry.contains_run(*run))
                .map(|(run, what)| (run, group, what)),
        );
    }
    tables.sort_by_key(|(run, group, what)| (run.start, *group, *what));
    let mut end = 0;
    for (run, group, what) in &tables {
        let over = base.in_metadata(*run).or((run.start.0 < end).then_some(run.start));
        if let Some(block) = over {
            let problem = GroupProblem::MetadataOverlap { group: *group, what, block };
            context.find(Place::GroupDescriptor(*group), problem);
        }
        end = end.max(run.start.0.saturating_add(run.length));
    }
    runs.extend(tables.into_iter().map(|(run, ..)| run));
    let mmp = context.superblock.s_mmp_block.get();
    if context.features().incompat.contains(ext4kit_format::disk::features::Incompat::MMP)
        && geometry.contains(BlockNumber(mmp))
    {
        runs.push(BlockRun::single(BlockNumber(mmp)));
    }
    merge(&mut runs);
    base.metadata = Vec::new();
    for run in &runs {
        context.claims.mark(*run);
    }
    context.claims.metadata = runs;
}

/// Sorts runs and joins those that touch or overlap.
fn merge(runs: &mut Vec<BlockRun>) {
    runs.sort_unstable_by_key(|run| run.start);
    let mut merged: Vec<BlockRun> = Vec::with_capacity(runs.len());
    for run in runs.iter() {
        let end = run.start.0.saturating_add(run.length);
        match merged.last_mut() {
            Some(last) if run.start.0 <= last.start.0.saturating_add(last.length) => {
                last.length = last.length.max(end.saturating_sub(last.start.0));
            }
            _ => merged.push(*run),
        }
    }
    *runs = merged;
}
