//! Where repairs work: the overlay, with an allocator that trusts what the check saw and not the bitmaps.
//!
//! A repair that needs a block or an inode gets one that the check found free. Bitmaps and counts are left as they are:
//! the last stage compares them with what is in use by then, and puts them right like any other damage.

use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::geometry::Geometry;
use ext4kit_format::layout::Layout;
use ext4kit_format::num::{index, wide};
use ext4kit_format::tree::alloc;
use ext4kit_format::txn::{Block, BlockKind, BlockRequest, Overlay, Transaction};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, InodeNumber};
use rustc_hash::{FxHashMap, FxHashSet};

use super::superblock::Wanted;
use crate::checks::claims::Claims;
use crate::checks::context::{Knowledge, known};
use crate::checks::maps::View;
use crate::source::Source;

/// What repairs work with.
pub struct Workshop<'a> {
    source: &'a mut Source,
    /// What the check learnt.
    pub knowledge: &'a mut Knowledge,
    /// The superblock as it was before this stage's repairs.
    pub superblock: &'a Superblock,
    /// The time of the repair, in seconds.
    pub now: u32,
    /// Clusters that the list of bad blocks has, where files have them as well.
    pub bad: FxHashSet<u64>,
    /// Blocks of files that could not be read for a copy, which has zeros in their place.
    pub unreadable: Vec<(InodeNumber, BlockNumber)>,
    /// Repairs of a whole that are done in this stage, so that each is done once however many findings ask for it.
    done: FxHashSet<(Whole, InodeNumber)>,
    /// Which inodes have their attributes in which block, once somebody asked.
    pub attribute_owners: Option<FxHashMap<BlockNumber, Vec<InodeNumber>>>,
    /// Where the search for a free inode goes on.
    next_inode: u32,
}

/// A repair that concerns all of an inode's map or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whole {
    /// The map is built anew.
    Map,
    /// The index is built anew.
    Index,
    /// Everything is gone.
    Cleared,
    /// Attributes are written anew.
    Attributes,
}

impl<'a> Workshop<'a> {
    /// A place to work in, for one stage.
    pub fn new(
        source: &'a mut Source,
        knowledge: &'a mut Knowledge,
        superblock: &'a Superblock,
        now: u32,
    ) -> Self {
        Self {
            source,
            knowledge,
            superblock,
            now,
            bad: FxHashSet::default(),
            unreadable: Vec::new(),
            done: FxHashSet::default(),
            attribute_owners: None,
            next_inode: 0,
        }
    }

    /// Whether this is the first time in this stage that such a repair is asked for.
    pub fn first_time(&mut self, whole: Whole, inode: InodeNumber) -> bool {
        self.done.insert((whole, inode))
    }

    /// Whether such a repair was done in this stage.
    pub fn is_done(&self, whole: Whole, inode: InodeNumber) -> bool {
        self.done.contains(&(whole, inode))
    }

    /// The overlay below, for those who change what no transaction knows.
    pub fn overlay(&mut self) -> &mut Overlay {
        &mut self.source.overlay
    }

    /// Blocks and layout, for the lenient walks of the check.
    pub fn view(&self) -> View<'_> {
        View { source: self.source, layout: self.source.layout() }
    }

    /// What the check knows of an inode; 0 for one that is free or does not exist.
    pub fn state(&self, inode: InodeNumber) -> u8 {
        self.knowledge.states.get(index(inode.get().saturating_sub(1))).copied().unwrap_or(0)
    }

    /// Notes what is known of an inode.
    pub fn set_state(&mut self, inode: InodeNumber, state: u8) {
        if let Some(slot) = self.knowledge.states.get_mut(index(inode.get().saturating_sub(1))) {
            *slot = state;
        }
    }

    /// A free run of clusters between two, at most so many.
    fn free_run(&self, from: u64, to: u64, most: u64) -> Option<(u64, u64)> {
        let used = &self.knowledge.claims.used;
        let start = used.next_absent(from..to)?;
        let end = used.next(start..to).unwrap_or(to);
        Some((start, end.saturating_sub(start).min(most)))
    }
}

impl Transaction for Workshop<'_> {
    fn layout(&self) -> &Layout {
        self.source.overlay.layout()
    }

    fn read(&self, at: BlockNumber, kind: BlockKind) -> Result<Block> {
        self.source.overlay.read(at, kind)
    }

    fn modify_with(
        &mut self,
        at: BlockNumber,
        kind: BlockKind,
        edit: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        self.source.overlay.modify_with(at, kind, edit)?;
        self.source.refresh();
        Ok(())
    }

    fn create_with(
        &mut self,
        at: BlockNumber,
        kind: BlockKind,
        edit: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        self.source.overlay.create_with(at, kind, edit)?;
        self.source.refresh();
        Ok(())
    }

    /// The block keeps its changes where another owner may have made them; nobody reads them if none did.
    fn forget(&mut self, _at: BlockNumber) -> Result<()> {
        Ok(())
    }

    fn read_data(&self, start: BlockNumber, buffer: &mut [u8]) -> Result<()> {
        self.source.overlay.read_data(start, buffer)
    }

    fn write_data(&mut self, start: BlockNumber, bytes: &[u8]) -> Result<()> {
        self.source.overlay.write_data(start, bytes)?;
        self.source.refresh();
        Ok(())
    }

    fn zero_data(&mut self, run: BlockRun) -> Result<()> {
        self.source.overlay.zero_data(run)
    }

    fn allocate_blocks(&mut self, request: BlockRequest) -> Result<BlockRun> {
        let bits = self.layout().geometry.cluster_bits();
        let first = self.layout().geometry.first_data_block().0 >> bits;
        // A cluster that is cut short by the end of the filesystem is not given out.
        let end = self.layout().geometry.blocks_count() >> bits;
        let goal = (request.goal.0 >> bits).clamp(first, end);
        let most = request.wanted.div_ceil(1 << bits).max(1);
        let found = self.free_run(goal, end, most).or_else(|| self.free_run(first, goal, most));
        let Some((start, count)) = found else { return Err(Error::NoSpace) };
        for cluster in start..start.saturating_add(count) {
            self.knowledge.claims.used.insert(cluster);
        }
        Ok(BlockRun { start: BlockNumber(start << bits), length: count << bits })
    }

    /// Freed blocks stay out of reach until the next round of the check has seen that nobody else has them.
    fn release_blocks(&mut self, _run: BlockRun) -> Result<()> {
        Ok(())
    }

    fn allocate_inode(&mut self, near: GroupNumber, directory: bool) -> Result<InodeNumber> {
        let geometry = &self.source.overlay.layout().geometry;
        let near = geometry.inode_at(near, 0).map_or(1, InodeNumber::get);
        let first = near.max(geometry.first_inode()).max(self.next_inode);
        let free = |number: &u32| {
            self.knowledge.states.get(index(number.saturating_sub(1))).is_some_and(|state| *state == 0)
        };
        let end = u32::try_from(wide(self.knowledge.states.len())).unwrap_or(u32::MAX);
        let found = (first..=end).find(free).or_else(|| (geometry.first_inode()..first).find(free));
        let Some(number) = found.and_then(InodeNumber::new) else { return Err(Error::NoInodes) };
        alloc::open_slot(&mut self.source.overlay, number)?;
        self.source.refresh();
        self.next_inode = number.get();
        self.set_state(number, known::USED | if directory { 2 } else { 0 });
        Ok(number)
    }

    fn release_inode(&mut self, _inode: InodeNumber, _directory: bool) -> Result<()> {
        Ok(())
    }

    fn ensure_credits(&mut self, blocks: u32) -> Result<()> {
        self.source.overlay.ensure_credits(blocks)
    }
}

/// A run of free blocks as long as wanted, and counted as used from then on.
pub fn take_run(claims: &mut Claims, geometry: &Geometry, wanted: Wanted) -> Option<BlockNumber> {
    let bits = geometry.cluster_bits();
    let end = wanted.within.start.0.saturating_add(wanted.within.length).min(geometry.blocks_count()) >> bits;
    let count = wanted.blocks.div_ceil(1 << bits).max(1);
    let mut from = claims.cluster(wanted.within.start.0.max(geometry.first_data_block().0));
    loop {
        let start = claims.used.next_absent(from..end)?;
        let next = claims.used.next(start..end).unwrap_or(end);
        if next.saturating_sub(start) >= count {
            for cluster in start..start.saturating_add(count) {
                claims.used.insert(cluster);
            }
            return Some(BlockNumber((start << bits).max(geometry.first_data_block().0)));
        }
        from = next;
    }
}
