//! The blocks of the image as the check sees them: the store, and over it what a journal replay changed.

use std::ops::Deref;
use std::sync::Arc;

use ext4kit_format::bytes::span;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::index64;
use ext4kit_format::store::Store;
use ext4kit_format::txn::{Block, BlockKind, Overlay, OverlayOptions, Transaction};
use ext4kit_format::{BlockNumber, BlockRun, Place};

/// A block's bytes: where the store is mapped, without a copy.
pub enum Bytes<'a> {
    /// In the map.
    Mapped(&'a [u8]),
    /// Read from the store.
    Read(Vec<u8>),
    /// As the overlay has it.
    Changed(Block),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Read(bytes) => bytes,
            Self::Changed(block) => block,
        }
    }
}

/// Where blocks come from.
pub struct Source {
    store: Arc<dyn Store>,
    /// Repairs will go here as well, so that later passes see the repaired state.
    pub overlay: Overlay,
    /// Whether the overlay has nothing, so that the clean path need not ask it.
    unchanged: bool,
}

impl Source {
    /// The blocks of a store that holds a filesystem of this layout.
    pub fn new(store: Arc<dyn Store>, layout: Layout) -> Self {
        let options = OverlayOptions { verify: false, ..OverlayOptions::default() };
        let overlay = Overlay::new(Arc::clone(&store), layout, options);
        Self { store, overlay, unchanged: true }
    }

    /// An empty overlay over the same store, for a look that must leave no trace.
    pub fn overlay_like(&self, options: OverlayOptions) -> Overlay {
        Overlay::new(Arc::clone(&self.store), self.layout().clone(), options)
    }

    /// To be called after the overlay was changed.
    pub fn refresh(&mut self) {
        self.unchanged = self.overlay.is_unchanged();
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The shape of the filesystem.
    pub fn layout(&self) -> &Layout {
        self.overlay.layout()
    }

    /// Reads blocks that follow each other into a buffer. From a mapped store as well: a table is read from end to end,
    /// which the system is better told by reads than by faults.
    pub fn read_blocks<'b>(&self, run: BlockRun, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let changed = !self.unchanged && run.iter().any(|block| self.overlay.is_changed(block));
        let geometry = &self.layout().geometry;
        let outside = || Error::Invalid(format!("blocks from {} lie outside the filesystem", run.start));
        let offset = geometry.byte_offset(run.start).ok_or_else(outside)?;
        let length = geometry.block_length().checked_mul(index64(run.length)).ok_or_else(outside)?;
        buffer.resize(length, 0);
        self.store.read_at(offset, buffer).map_err(Error::io(Place::Block(run.start)))?;
        if changed {
            for (block, bytes) in run.iter().zip(buffer.chunks_exact_mut(geometry.block_length())) {
                if self.overlay.is_changed(block) {
                    bytes.copy_from_slice(&self.overlay.read(block, BlockKind::Plain)?);
                }
            }
        }
        Ok(buffer)
    }

    /// Reads a block into a buffer: for blocks far from each other, where a fault of the map costs more than a copy.
    pub fn read_block<'b>(&self, at: BlockNumber, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let geometry = &self.layout().geometry;
        buffer.resize(geometry.block_length(), 0);
        if !self.unchanged && self.overlay.is_changed(at) {
            buffer.copy_from_slice(&self.overlay.read(at, BlockKind::Plain)?);
            return Ok(buffer);
        }
        let outside = || Error::Invalid(format!("block {at} lies outside the filesystem"));
        let offset = geometry.byte_offset(at).ok_or_else(outside)?;
        self.store.read_at(offset, buffer).map_err(Error::io(Place::Block(at)))?;
        Ok(buffer)
    }

    /// A block's bytes, no checksum looked at.
    pub fn block(&self, at: BlockNumber) -> Result<Bytes<'_>> {
        if !self.unchanged && self.overlay.is_changed(at) {
            return self.overlay.read(at, BlockKind::Plain).map(Bytes::Changed);
        }
        let geometry = &self.layout().geometry;
        let length = geometry.block_length();
        let outside = || Error::Invalid(format!("block {at} lies outside the filesystem"));
        let offset = geometry.byte_offset(at).ok_or_else(outside)?;
        if let Some(memory) = self.store.as_memory()
            && let Some(bytes) = span(memory, index64(offset), length)
        {
            return Ok(Bytes::Mapped(bytes));
        }
        let mut bytes = vec![0; length];
        self.store.read_at(offset, &mut bytes).map_err(Error::io(Place::Block(at)))?;
        Ok(Bytes::Read(bytes))
    }
}
