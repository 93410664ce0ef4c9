//! Which clusters are in use: one bit each, and a second one where a cluster was claimed again.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ext4kit_format::geometry::Geometry;
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, Place};

use super::bits::BitSet;
use super::context::Context;
use crate::finding::GroupProblem;

/// What the blocks of the filesystem are claimed by.
#[derive(Debug)]
pub struct Claims {
    /// Clusters in use. A cluster's number is that of its first block, shifted.
    pub used: BitSet,
    /// Clusters that were claimed more than once.
    pub shared: BitSet,
    /// Runs of fixed metadata, merged and in order.
    pub metadata: Vec<BlockRun>,
    /// Clusters that were claimed one by one, before the inodes.
    early: Vec<u64>,
    any_shared: AtomicBool,
    cluster_bits: u32,
    blocks: u64,
}

impl Claims {
    /// Nothing is claimed.
    pub fn new(geometry: &Geometry) -> Self {
        let limit = clusters(geometry.blocks_count(), geometry.cluster_bits());
        Self {
            used: BitSet::new(limit),
            shared: BitSet::new(limit),
            metadata: Vec::new(),
            early: Vec::new(),
            any_shared: AtomicBool::new(false),
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

    /// Whether any cluster is shared.
    pub fn any_shared(&self) -> bool {
        self.any_shared.load(Relaxed)
    }

    /// Claims a cluster before the inodes claim theirs; whether it was claimed before.
    pub fn claim(&mut self, cluster: u64) -> bool {
        self.early.push(cluster);
        self.claim_range(cluster, cluster)
    }

    /// Claims the clusters from one to another, both included; whether any was claimed before.
    pub fn claim_range(&self, first: u64, last: u64) -> bool {
        let mut any = false;
        self.used.insert_range(first, last, |word, bits| {
            any = true;
            self.shared.insert_in_word(word, bits);
        });
        if any {
            self.any_shared.store(true, Relaxed);
        }
        any
    }

    /// Marks blocks as in use without asking who has them.
    fn mark(&self, run: BlockRun) {
        let end = run.start.0.saturating_add(run.length).min(self.blocks);
        if let Some(last) = end.checked_sub(1).filter(|last| *last >= run.start.0) {
            self.used.insert_range(self.cluster(run.start.0), self.cluster(last), |_, _| {});
        }
    }

    /// Forgets everything that was claimed by inodes.
    pub fn restart(&mut self) {
        let limit = clusters(self.blocks, self.cluster_bits);
        // The old sets go first: there need not be room for both.
        (self.used, self.shared) = (BitSet::new(0), BitSet::new(0));
        (self.used, self.shared) = (BitSet::new(limit), BitSet::new(limit));
        *self.any_shared.get_mut() = false;
        for run in &self.metadata {
            self.mark(*run);
        }
        for cluster in std::mem::take(&mut self.early) {
            self.claim(cluster);
        }
    }

    /// The first block of a run that holds fixed metadata.
    pub fn in_metadata(&self, run: BlockRun) -> Option<BlockNumber> {
        first_in(&self.metadata, run)
    }

    /// Where the run of fixed metadata ends that a block lies in: the first block behind it.
    pub fn metadata_end(&self, block: BlockNumber) -> u64 {
        let after = self.metadata.partition_point(|known| known.start <= block);
        let run = after.checked_sub(1).and_then(|at| self.metadata.get(at));
        run.map_or(block.0, |run| run.start.0.saturating_add(run.length))
    }

    /// The blocks around one that holds no fixed metadata, up to the next ones that do.
    pub fn around(&self, block: BlockNumber) -> Range<u64> {
        let after = self.metadata.partition_point(|known| known.start <= block);
        let before = after.checked_sub(1).and_then(|at| self.metadata.get(at));
        let start = before.map_or(0, |known| known.start.0.saturating_add(known.length));
        start..self.metadata.get(after).map_or(self.blocks, |known| known.start.0)
    }
}

/// How many clusters there are, the last one possibly partial.
fn clusters(blocks: u64, cluster_bits: u32) -> u64 {
    (blocks >> cluster_bits).saturating_add(1)
}

/// The first block of a run that lies in one of some runs, which are merged and in order.
fn first_in(runs: &[BlockRun], run: BlockRun) -> Option<BlockNumber> {
    let end = run.start.0.saturating_add(run.length);
    let at = runs.partition_point(|known| known.start.0.saturating_add(known.length) <= run.start.0);
    let known = runs.get(at).filter(|known| known.start.0 < end)?;
    Some(known.start.max(run.start))
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
        let over = first_in(&runs, *run).or((run.start.0 < end).then_some(run.start));
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
