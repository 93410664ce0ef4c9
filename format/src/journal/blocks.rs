//! Where the blocks of a journal lie: in an inode's blocks, or on a device of their own.

use std::sync::Arc;

use crate::error::{Defect, Error, Place, Result};
use crate::ids::{BlockNumber, BlockRun};
use crate::num::{index, wide};
use crate::store::Store;

/// Smallest block size of the format.
const LEAST_BLOCK_SIZE: u32 = 1024;

/// Largest block size of the format.
const MOST_BLOCK_SIZE: u32 = 65536;

/// The blocks of a journal, by their number inside it.
pub struct LogBlocks {
    store: Arc<dyn Store>,
    block_size: u32,
    superblock_block: u32,
    count: u32,
    /// In order of journal block.
    pieces: Vec<Piece>,
    /// The filesystem's blocks that are the journal's, in order; empty for an external journal.
    owned: Vec<BlockRun>,
}

/// Consecutive journal blocks that are consecutive in the store too.
#[derive(Clone, Copy)]
struct Piece {
    first: u32,
    start: BlockNumber,
}

impl LogBlocks {
    /// An internal journal: the blocks of its inode, in file order, inside the filesystem's store.
    pub fn internal(store: Arc<dyn Store>, block_size: u32, runs: &[BlockRun]) -> Result<Self> {
        let available = store_blocks(store.as_ref(), block_size)?;
        let mut pieces = Vec::with_capacity(runs.len());
        let mut count = 0u32;
        for run in runs {
            let end = run.end().filter(|end| end.0 <= available).ok_or_else(|| {
                let text = format!("the journal uses {} blocks that the image does not have", run.length);
                Defect::Contradiction(text).at(Place::Block(run.start))
            })?;
            pieces.push(Piece { first: count, start: run.start });
            let length = end.distance_from(run.start).and_then(|length| u32::try_from(length).ok());
            count = length.and_then(|length| count.checked_add(length)).ok_or_else(|| {
                Defect::Contradiction("the journal has more than 2^32 blocks".to_owned())
                    .at(Place::JournalBlock(count))
            })?;
        }
        let mut owned = runs.to_vec();
        owned.sort_unstable_by_key(|run| run.start);
        Ok(Self { store, block_size, superblock_block: 0, count, pieces, owned })
    }

    /// An external journal: a device that begins with a filesystem superblock. Its log counts blocks from the
    /// start of the device, and the journal's superblock lies in the block after the filesystem's.
    pub fn external(store: Arc<dyn Store>, block_size: u32) -> Result<Self> {
        let available = store_blocks(store.as_ref(), block_size)?;
        let count = u32::try_from(available).unwrap_or(u32::MAX);
        let superblock_block = if block_size == LEAST_BLOCK_SIZE { 2 } else { 1 };
        let pieces = vec![Piece { first: 0, start: BlockNumber(0) }];
        Ok(Self { store, block_size, superblock_block, count, pieces, owned: Vec::new() })
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// How many blocks the journal has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The journal block that holds the journal's superblock.
    pub fn superblock_block(&self) -> u32 {
        self.superblock_block
    }

    /// Whether a block of the filesystem belongs to the journal. None belongs to an external one.
    pub fn owns(&self, block: BlockNumber) -> bool {
        let after = self.owned.partition_point(|run| run.start <= block);
        after.checked_sub(1).and_then(|at| self.owned.get(at)).is_some_and(|run| run.contains(block))
    }

    /// Where a journal block lies in its store; `None` if the journal has no such block.
    pub fn locate(&self, block: u32) -> Option<BlockNumber> {
        if block >= self.count {
            return None;
        }
        let after = self.pieces.partition_point(|piece| piece.first <= block);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        piece.start.checked_add(u64::from(block.checked_sub(piece.first)?))
    }

    /// The bytes of a journal block: from memory where the store is mapped, else through the buffer.
    pub fn read<'a>(&'a self, block: u32, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let offset = self.offset(block)?;
        let size = index(self.block_size);
        let start = crate::num::index64(offset);
        if let Some(memory) = self.store.as_memory()
            && let Some(bytes) = start.checked_add(size).and_then(|end| memory.get(start..end))
        {
            return Ok(bytes);
        }
        buffer.resize(size, 0);
        self.store.read_at(offset, buffer).map_err(Error::io(Place::JournalBlock(block)))?;
        Ok(buffer)
    }

    /// Writes the start of a journal block, or all of it.
    pub fn write(&self, block: u32, bytes: &[u8]) -> Result<()> {
        let offset = self.offset(block)?;
        if wide(bytes.len()) > u64::from(self.block_size) {
            return Err(Error::Invalid(format!(
                "{} bytes do not fit a block of {}",
                bytes.len(),
                self.block_size
            )));
        }
        self.store.write_at(offset, bytes).map_err(Error::io(Place::JournalBlock(block)))
    }

    /// Waits until what was written is durable.
    pub fn flush(&self) -> Result<()> {
        let place = Place::JournalBlock(self.superblock_block);
        self.store.flush().map_err(Error::io(place))
    }

    fn offset(&self, block: u32) -> Result<u64> {
        let place = || Place::JournalBlock(block);
        let outside = || {
            let most = u64::from(self.count.saturating_sub(1));
            Defect::Range { field: "journal block", value: u64::from(block), least: 0, most }.at(place())
        };
        let home = self.locate(block).ok_or_else(outside)?;
        home.0.checked_mul(u64::from(self.block_size)).ok_or_else(outside)
    }
}

/// How many whole blocks a store has.
fn store_blocks(store: &dyn Store, block_size: u32) -> Result<u64> {
    let possible = (LEAST_BLOCK_SIZE..=MOST_BLOCK_SIZE).contains(&block_size) && block_size.is_power_of_two();
    let blocks = store.size().checked_div(u64::from(block_size)).filter(|_| possible);
    blocks.ok_or_else(|| Error::Invalid(format!("{block_size} is not a block size of the format")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn run(start: u64, length: u64) -> BlockRun {
        BlockRun { start: BlockNumber(start), length }
    }

    #[test]
    fn runs_map_in_file_order() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(20 * 1024));
        store.write_at(15 * 1024, &[9]).unwrap();
        let blocks = LogBlocks::internal(store, 1024, &[run(15, 2), run(3, 4)]).unwrap();
        assert_eq!(blocks.count(), 6);
        let homes: Vec<_> = (0..7).map(|block| blocks.locate(block).map(|home| home.0)).collect();
        assert_eq!(homes, [Some(15), Some(16), Some(3), Some(4), Some(5), Some(6), None]);
        let owned: Vec<u64> = (0..20).filter(|block| blocks.owns(BlockNumber(*block))).collect();
        assert_eq!(owned, [3, 4, 5, 6, 15, 16]);
        assert_eq!(blocks.read(0, &mut Vec::new()).unwrap()[0], 9);
        assert!(blocks.read(6, &mut Vec::new()).unwrap_err().is_corruption());
        blocks.write(2, &[7]).unwrap();
        assert_eq!(blocks.read(2, &mut Vec::new()).unwrap()[0], 7);
        assert!(blocks.write(2, &[0; 1025]).is_err());
    }

    #[test]
    fn runs_outside_the_image_are_damage() {
        for bad in [run(19, 2), run(u64::MAX, 1), run(0, u64::MAX), run(u64::MAX, u64::MAX)] {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(20 * 1024));
            assert!(LogBlocks::internal(store, 1024, &[bad]).is_err_and(|error| error.is_corruption()));
        }
    }

    #[test]
    fn an_external_journal_counts_from_the_start_of_its_device() {
        for (size, at) in [(1024u32, 2), (4096, 1)] {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(16 * 4096));
            let blocks = LogBlocks::external(store, size).unwrap();
            assert_eq!(blocks.superblock_block(), at);
            assert_eq!(blocks.locate(at), Some(BlockNumber(u64::from(at))));
            assert!(!blocks.owns(BlockNumber(3)));
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(16));
        assert!(LogBlocks::external(store, 1000).is_err());
    }
}
