//! The offline transaction: changed blocks in memory over an unchanged store.
//!
//! Invariants:
//! - metadata never reaches the store before a commit; dropping the overlay leaves the image as it was;
//! - file data is written through to its final place, if the overlay was told so, but only into blocks that the
//!   image as it lies on the store does not use: data for a block that this transaction itself freed is kept in
//!   memory like metadata;
//! - a changed block remembers its kind and which of its records changed, and gets its checksums in [`super::seal`].
//!
//! Memory is bounded: past a limit, changed blocks move to an anonymous temporary file when a tree calls
//! [`Transaction::ensure_credits`].

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::seal::{self, Records};
use super::{Block, BlockKind, BlockRequest, Transaction};
use crate::error::{Error, Place, Result};
use crate::ids::{BlockNumber, BlockRun, GroupNumber, InodeNumber};
use crate::layout::Layout;
use crate::num::wide;
use crate::store::Store;
use crate::tree::alloc;

/// What becomes of file data before the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPolicy {
    /// It is written at once to blocks that nothing else uses. Right where the overlay will be committed.
    WriteThrough,
    /// It is kept with the changed blocks. Right for dry runs, edits that may be discarded, and repairs.
    Keep,
}

/// How an overlay behaves.
#[derive(Clone, Copy, Debug)]
pub struct OverlayOptions {
    /// What becomes of file data before the commit.
    pub data: DataPolicy,
    /// How many bytes of changed blocks stay in memory before the rest moves to a temporary file.
    pub memory_limit: u64,
    /// Whether checksums of blocks that come from the store are verified.
    pub verify: bool,
}

impl Default for OverlayOptions {
    fn default() -> Self {
        Self { data: DataPolicy::Keep, memory_limit: 256 << 20, verify: true }
    }
}

/// A transaction that keeps its changes in memory until they are committed or dropped.
pub struct Overlay {
    store: Arc<dyn Store>,
    layout: Layout,
    options: OverlayOptions,
    changed: FxHashMap<BlockNumber, Changed>,
    in_memory: u64,
    spill: Option<Spill>,
    released: FxHashSet<BlockNumber>,
}

/// A block that differs from the store, or may.
struct Changed {
    contents: Contents,
    kind: BlockKind,
    records: Records,
}

enum Contents {
    Memory(Arc<[u8]>),
    Spilled(u64),
}

/// A temporary file of blocks, and the next free place in it.
struct Spill {
    file: File,
    next: u64,
    free: Vec<u64>,
}

/// A changed block as commit, undo files and plans see it, its checksums right.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where it goes.
    pub at: BlockNumber,
    /// What it is.
    pub kind: BlockKind,
    /// Its new contents.
    pub after: Block,
}

impl Overlay {
    /// An overlay without changes over a store that holds a filesystem of this layout.
    pub fn new(store: Arc<dyn Store>, layout: Layout, options: OverlayOptions) -> Self {
        Self {
            store,
            layout,
            options,
            changed: FxHashMap::default(),
            in_memory: 0,
            spill: None,
            released: FxHashSet::default(),
        }
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whether nothing was changed.
    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether the block differs from the store, or may do so.
    pub fn is_changed(&self, at: BlockNumber) -> bool {
        self.changed.contains_key(&at)
    }

    /// Replaces the layout after a change of features or sizes; changed blocks stay.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// Forgets every change. File data that was written through stays in blocks that nothing uses.
    pub fn discard(&mut self) {
        self.changed.clear();
        self.released.clear();
        self.in_memory = 0;
        self.spill = None;
    }

    /// Puts every checksum right, and names the changed blocks in ascending order.
    pub fn seal(&mut self) -> Result<Vec<BlockNumber>> {
        let mut blocks: Vec<(BlockNumber, BlockKind)> =
            self.changed.iter().map(|(at, changed)| (*at, changed.kind)).collect();
        // Bitmaps first: their checksums go into descriptors, which are then sealed with the rest.
        for (at, kind) in &blocks {
            if let BlockKind::BlockBitmap(group) | BlockKind::InodeBitmap(group) = *kind {
                let bitmap = self.read(*at, *kind)?;
                seal::store_bitmap_checksum(self, group, *kind, &bitmap)?;
            }
        }
        if blocks.len() != self.changed.len() {
            blocks = self.changed.iter().map(|(at, changed)| (*at, changed.kind)).collect();
        }
        for (at, _) in &blocks {
            self.seal_block(*at)?;
        }
        let mut order: Vec<BlockNumber> = blocks.into_iter().map(|(at, _)| at).collect();
        order.sort_unstable();
        Ok(order)
    }

    /// A changed block's new contents; `None` for a block that was not changed. Call [`Overlay::seal`] before.
    pub fn change(&self, at: BlockNumber) -> Result<Option<Change>> {
        let Some(changed) = self.changed.get(&at) else { return Ok(None) };
        let after = self.contents(at, changed)?;
        Ok(Some(Change { at, kind: changed.kind, after }))
    }

    /// What the store holds at a block: its contents before this transaction.
    pub fn before(&self, at: BlockNumber) -> Result<Block> {
        let mut bytes = vec![0; self.layout.geometry.block_length()];
        self.read_store(at, &mut bytes, Place::Block(at))?;
        Ok(Block::new(bytes.into()))
    }

    fn seal_block(&mut self, at: BlockNumber) -> Result<()> {
        let layout = self.layout.clone();
        self.load(at)?;
        if let Some(changed) = self.changed.get_mut(&at)
            && let Contents::Memory(bytes) = &mut changed.contents
        {
            seal::refresh(&layout, at, changed.kind, &changed.records, Arc::make_mut(bytes))?;
        }
        Ok(())
    }

    /// Byte offset of a block on the store, checked to lie in the filesystem.
    fn offset(&self, at: BlockNumber, place: &Place) -> Result<u64> {
        let geometry = &self.layout.geometry;
        geometry.byte_offset(at).ok_or_else(|| {
            let most = geometry.blocks_count().saturating_sub(1);
            crate::Defect::Range { field: "block number", value: at.0, least: 0, most }.at(place.clone())
        })
    }

    fn read_store(&self, at: BlockNumber, bytes: &mut [u8], place: Place) -> Result<()> {
        let offset = self.offset(at, &place)?;
        self.store.read_at(offset, bytes).map_err(Error::io(place))
    }

    fn contents(&self, at: BlockNumber, changed: &Changed) -> Result<Block> {
        match &changed.contents {
            Contents::Memory(bytes) => Ok(Block::new(Arc::clone(bytes))),
            Contents::Spilled(slot) => {
                let mut bytes = vec![0; self.layout.geometry.block_length()];
                self.read_spilled(*slot, &mut bytes).map_err(Error::io(changed.kind.place(at)))?;
                Ok(Block::new(bytes.into()))
            }
        }
    }

    fn read_spilled(&self, slot: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        match &self.spill {
            Some(spill) => spill.file.read_exact_at(bytes, slot << self.layout.geometry.block_bits()),
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    /// Brings a spilled block back into memory.
    fn load(&mut self, at: BlockNumber) -> Result<()> {
        let Some(changed) = self.changed.get(&at) else { return Ok(()) };
        let Contents::Spilled(slot) = changed.contents else { return Ok(()) };
        let block = self.contents(at, changed)?;
        if let Some(spill) = &mut self.spill {
            spill.free.push(slot);
        }
        if let Some(changed) = self.changed.get_mut(&at) {
            changed.contents = Contents::Memory(block.into_bytes());
            self.in_memory = self.in_memory.saturating_add(self.layout.geometry.block_size().into());
        }
        Ok(())
    }

    /// Puts a block among the changed ones, or changes its contents there.
    fn insert(&mut self, at: BlockNumber, kind: BlockKind, bytes: Arc<[u8]>) {
        let added = wide(bytes.len());
        let changed = Changed { contents: Contents::Memory(bytes), kind, records: Records::default() };
        let before = self.changed.insert(at, changed);
        match before.map(|changed| changed.contents) {
            Some(Contents::Memory(_)) => {}
            Some(Contents::Spilled(slot)) => {
                self.in_memory = self.in_memory.saturating_add(added);
                if let Some(spill) = &mut self.spill {
                    spill.free.push(slot);
                }
            }
            None => self.in_memory = self.in_memory.saturating_add(added),
        }
    }

    fn edit(&mut self, at: BlockNumber, kind: BlockKind, edit: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let layout = &self.layout;
        let Some(changed) = self.changed.get_mut(&at) else {
            return Err(Error::Invalid(format!("block {at} vanished from its transaction")));
        };
        if let Contents::Memory(bytes) = &mut changed.contents {
            edit(Arc::make_mut(bytes));
        }
        changed.kind = kind;
        changed.records.add(layout, kind);
        Ok(())
    }

    /// Moves changed blocks to the temporary file until half of the limit is free.
    fn spill(&mut self) -> Result<()> {
        let place = || Place::File("temporary file".to_owned());
        let block_bits = self.layout.geometry.block_bits();
        if self.spill.is_none() {
            let file = tempfile::tempfile().map_err(Error::io(place()))?;
            self.spill = Some(Spill { file, next: 0, free: Vec::new() });
        }
        let Some(spill) = &mut self.spill else { return Ok(()) };
        for changed in self.changed.values_mut() {
            if self.in_memory <= self.options.memory_limit / 2 {
                break;
            }
            let Contents::Memory(bytes) = &changed.contents else { continue };
            let slot = spill.free.pop().unwrap_or(spill.next);
            spill.file.write_all_at(bytes, slot << block_bits).map_err(Error::io(place()))?;
            spill.next = spill.next.max(slot.saturating_add(1));
            self.in_memory = self.in_memory.saturating_sub(wide(bytes.len()));
            changed.contents = Contents::Spilled(slot);
        }
        Ok(())
    }

    /// Whether data for this block may go straight to the store.
    fn writes_through(&self, at: BlockNumber) -> bool {
        self.options.data == DataPolicy::WriteThrough
            && !self.released.contains(&at)
            && !self.changed.contains_key(&at)
    }

    /// The length of the run of data blocks from the first one on that are all changed, or all not.
    fn uniform_run(
        &self,
        start: BlockNumber,
        blocks: u64,
        alike: impl Fn(&Self, BlockNumber) -> bool,
    ) -> u64 {
        let first = alike(self, start);
        (1..blocks)
            .find(|distance| start.checked_add(*distance).is_none_or(|at| alike(self, at) != first))
            .unwrap_or(blocks)
    }

    fn data_block_count(&self, length: usize) -> Result<u64> {
        let size = self.layout.geometry.block_length();
        if length.is_multiple_of(size) && length > 0 {
            Ok(wide(length) >> self.layout.geometry.block_bits())
        } else {
            Err(Error::Invalid(format!("file data of {length} bytes is no whole number of blocks")))
        }
    }
}

impl Transaction for Overlay {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn read(&self, at: BlockNumber, kind: BlockKind) -> Result<Block> {
        let block = if let Some(changed) = self.changed.get(&at) {
            let block = self.contents(at, changed)?;
            if seal::is_changed(&self.layout, kind, &changed.records) {
                return Ok(block);
            }
            block
        } else {
            let mut bytes: Arc<[u8]> = Arc::from(vec![0; self.layout.geometry.block_length()]);
            self.read_store(at, Arc::make_mut(&mut bytes), kind.place(at))?;
            Block::new(bytes)
        };
        if self.options.verify {
            seal::verify(self, at, kind, &block)?;
        }
        Ok(block)
    }

    fn modify_with(
        &mut self,
        at: BlockNumber,
        kind: BlockKind,
        edit: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        if self.changed.contains_key(&at) {
            self.load(at)?;
        } else {
            // A record that is written over may hold anything, so records are verified by those who read them first.
            let read_as = if seal::is_one_of_many(kind) { BlockKind::Plain } else { kind };
            let block = self.read(at, read_as)?;
            self.insert(at, kind, block.into_bytes());
        }
        self.edit(at, kind, edit)
    }

    fn create_with(
        &mut self,
        at: BlockNumber,
        kind: BlockKind,
        edit: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        self.offset(at, &kind.place(at))?;
        self.insert(at, kind, Arc::from(vec![0; self.layout.geometry.block_length()]));
        self.edit(at, kind, edit)
    }

    fn forget(&mut self, at: BlockNumber) -> Result<()> {
        if let Some(changed) = self.changed.remove(&at) {
            match changed.contents {
                Contents::Memory(bytes) => self.in_memory = self.in_memory.saturating_sub(wide(bytes.len())),
                Contents::Spilled(slot) => {
                    if let Some(spill) = &mut self.spill {
                        spill.free.push(slot);
                    }
                }
            }
        }
        Ok(())
    }

    fn read_data(&self, start: BlockNumber, buffer: &mut [u8]) -> Result<()> {
        let block_bits = self.layout.geometry.block_bits();
        let mut left = self.data_block_count(buffer.len())?;
        let (mut at, mut rest) = (start, buffer);
        while left > 0 {
            let run = self.uniform_run(at, left, |overlay, at| overlay.changed.contains_key(&at));
            let run = if self.changed.contains_key(&at) { 1 } else { run };
            let length = crate::num::index64(run << block_bits).min(rest.len());
            let (piece, behind) = rest.split_at_mut(length);
            match self.changed.get(&at) {
                Some(changed) => piece.copy_from_slice(&self.contents(at, changed)?),
                None => self.read_store(at, piece, Place::Block(at))?,
            }
            rest = behind;
            left = left.saturating_sub(run);
            at = BlockNumber(at.0.saturating_add(run));
        }
        Ok(())
    }

    fn write_data(&mut self, start: BlockNumber, bytes: &[u8]) -> Result<()> {
        let block_length = self.layout.geometry.block_length();
        let mut left = self.data_block_count(bytes.len())?;
        let (mut at, mut rest) = (start, bytes);
        while left > 0 {
            let through = self.writes_through(at);
            let run = if through { self.uniform_run(at, left, Self::writes_through) } else { 1 };
            let length = crate::num::index64(run).saturating_mul(block_length).min(rest.len());
            let (piece, behind) = rest.split_at(length);
            if through {
                let offset = self.offset(at, &Place::Block(at))?;
                self.store.write_at(offset, piece).map_err(Error::io(Place::Block(at)))?;
            } else {
                self.offset(at, &Place::Block(at))?;
                self.insert(at, BlockKind::Plain, Arc::from(piece));
            }
            rest = behind;
            left = left.saturating_sub(run);
            at = BlockNumber(at.0.saturating_add(run));
        }
        Ok(())
    }

    fn zero_data(&mut self, run: BlockRun) -> Result<()> {
        let (mut at, mut left) = (run.start, run.length);
        while left > 0 {
            let through = self.writes_through(at);
            let length = if through { self.uniform_run(at, left, Self::writes_through) } else { 1 };
            let offset = self.offset(at, &Place::Block(at))?;
            if through {
                let bytes = length << self.layout.geometry.block_bits();
                self.store.zero_range(offset, bytes).map_err(Error::io(Place::Block(at)))?;
            } else {
                self.create_with(at, BlockKind::Plain, &mut |_| ())?;
            }
            left = left.saturating_sub(length);
            at = BlockNumber(at.0.saturating_add(length));
        }
        Ok(())
    }

    fn allocate_blocks(&mut self, request: BlockRequest) -> Result<BlockRun> {
        alloc::allocate_blocks(self, request)
    }

    fn release_blocks(&mut self, run: BlockRun) -> Result<()> {
        alloc::release_blocks(self, run)?;
        self.released.extend(run.iter());
        Ok(())
    }

    fn allocate_inode(&mut self, near: GroupNumber, directory: bool) -> Result<InodeNumber> {
        alloc::allocate_inode(self, near, directory)
    }

    fn release_inode(&mut self, inode: InodeNumber, directory: bool) -> Result<()> {
        alloc::release_inode(self, inode, directory)
    }

    fn ensure_credits(&mut self, _blocks: u32) -> Result<()> {
        if self.in_memory > self.options.memory_limit { self.spill() } else { Ok(()) }
    }
}
