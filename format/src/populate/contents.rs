//! Contents of files on their way to blocks that follow each other.
//!
//! A cursor in each group says where the last contents ended, so that the next begin there. Blocks that follow each
//! other are collected, also of different files, and written with one call.

use rustc_hash::FxHashMap;

use super::entry::Source;
use crate::bytes::all_zero;
use crate::disk::inode::Inode;
use crate::error::{Error, Result};
use crate::ids::{BlockNumber, BlockRun, GroupNumber, LogicalBlock};
use crate::num::{index64, wide};
use crate::tree::{file, map};
use crate::txn::{BlockRequest, Transaction};

/// How many bytes are read at a time, and collected before they are written.
const CHUNK: u64 = 1 << 20;

/// Where contents go next, and those that are not written yet.
#[derive(Default)]
pub(super) struct Contents {
    cursors: FxHashMap<GroupNumber, BlockNumber>,
    pending: Vec<u8>,
    pending_start: BlockNumber,
    buffer: Vec<u8>,
}

impl Contents {
    /// Writes all contents of a regular file of this size. Blocks of zeros become holes.
    pub fn write(
        &mut self,
        txn: &mut dyn Transaction,
        source: &mut dyn Source,
        inode: &mut Inode,
        size: u64,
    ) -> Result<()> {
        let bits = txn.layout().geometry.block_bits();
        if size.div_ceil(1 << bits) > map::block_limit(txn, inode) {
            return Err(Error::FileTooBig(inode.number()));
        }
        let mut next = 0;
        while let Some(data) = source.next_data(next)? {
            // Whole blocks: what of them lies in a hole is zero.
            let mut at = (data.start.max(next) >> bits) << bits;
            while at < data.end {
                let length = data.end.saturating_sub(at).min(CHUNK);
                let padded = length.div_ceil(1 << bits) << bits;
                let mut buffer = std::mem::take(&mut self.buffer);
                buffer.clear();
                buffer.resize(index64(padded), 0);
                source.read(at, &mut buffer)?;
                let written = self.write_chunk(txn, inode, at >> bits, &buffer);
                self.buffer = buffer;
                written?;
                at = at.saturating_add(padded);
            }
            next = at.max(data.end);
        }
        inode.set_size(size);
        Ok(())
    }

    /// Writes blocks of a file from one on, without those that are all zero.
    fn write_chunk(
        &mut self,
        txn: &mut dyn Transaction,
        inode: &mut Inode,
        first: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let block_length = txn.layout().geometry.block_length();
        let mut logical = first;
        let mut rest = bytes;
        while !rest.is_empty() {
            let is_zero = |block: &&[u8]| all_zero(block);
            let holes = rest.chunks(block_length).take_while(is_zero).count();
            logical = logical.saturating_add(wide(holes));
            rest = rest.get(holes.saturating_mul(block_length)..).unwrap_or_default();
            let blocks = rest.chunks(block_length).take_while(|block| !is_zero(block)).count();
            let (data, behind) = rest.split_at(blocks.saturating_mul(block_length).min(rest.len()));
            self.write_blocks(txn, inode, logical, data)?;
            logical = logical.saturating_add(wide(blocks));
            rest = behind;
        }
        Ok(())
    }

    /// Writes blocks of a file that are not mapped yet.
    fn write_blocks(
        &mut self,
        txn: &mut dyn Transaction,
        inode: &mut Inode,
        first: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let bits = txn.layout().geometry.block_bits();
        let (mut at, mut rest) = (first, bytes);
        while !rest.is_empty() {
            let logical = LogicalBlock(u32::try_from(at).map_err(|_| Error::FileTooBig(inode.number()))?);
            let run = self.take(txn, inode, logical, wide(rest.len()) >> bits)?;
            map::insert(txn, inode, logical, run, false)?;
            let (piece, behind) = rest.split_at(index64(run.length << bits).min(rest.len()));
            self.push(txn, run.start, piece)?;
            at = at.saturating_add(run.length);
            rest = behind;
        }
        Ok(())
    }

    /// Takes blocks where the contents before them ended.
    fn take(
        &mut self,
        txn: &mut dyn Transaction,
        inode: &Inode,
        logical: LogicalBlock,
        wanted: u64,
    ) -> Result<BlockRun> {
        let geometry = &txn.layout().geometry;
        if geometry.blocks_per_cluster() > 1 {
            return file::take_blocks(txn, inode, logical, wanted);
        }
        let group = geometry.inode_place(inode.number()).map_or(GroupNumber(0), |(group, _)| group);
        let goal = self.cursors.get(&group).copied().unwrap_or_else(|| geometry.group_start(group));
        let run = txn.allocate_blocks(BlockRequest { goal, wanted, owner: inode.number() })?;
        let run = BlockRun { length: run.length.min(wanted), ..run };
        self.cursors.insert(group, run.end().unwrap_or_default());
        Ok(run)
    }

    /// Collects blocks to be written.
    fn push(&mut self, txn: &mut dyn Transaction, start: BlockNumber, bytes: &[u8]) -> Result<()> {
        let held = wide(self.pending.len());
        let next = self.pending_start.checked_add(held >> txn.layout().geometry.block_bits());
        if next != Some(start) || held >= CHUNK {
            self.flush(txn)?;
            self.pending_start = start;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what was collected.
    pub fn flush(&mut self, txn: &mut dyn Transaction) -> Result<()> {
        if !self.pending.is_empty() {
            txn.write_data(self.pending_start, &self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }
}
