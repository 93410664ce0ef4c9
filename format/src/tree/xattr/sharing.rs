//! What was made before in the same run, so that equal attribute blocks and values are made once.
//!
//! Whether to share is the caller's policy. The tables hold candidates only: each is read and compared before it is used,
//! so that nothing goes wrong if it was changed meanwhile by somebody who does not keep the table.

use rustc_hash::FxHashMap;

use crate::disk::crc::crc32c;
use crate::disk::xattr::BLOCK_HEADER;
use crate::ids::{BlockNumber, InodeNumber};

/// Candidates for one hash that are looked at; more than these are full, or chance.
const CANDIDATES: usize = 4;

/// Attribute blocks and values that may be shared.
#[derive(Debug, Default)]
pub struct Sharing {
    blocks: FxHashMap<u32, Vec<BlockNumber>>,
    hashes: FxHashMap<BlockNumber, u32>,
    values: FxHashMap<(u32, u32), InodeNumber>,
}

impl Sharing {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn hash(image: &[u8]) -> u32 {
        crc32c(u32::MAX, image.get(BLOCK_HEADER..).unwrap_or_default())
    }

    /// Blocks that hold, as far as is known, the same entries as an image of a block; the newest first.
    pub(super) fn blocks_like(&self, image: &[u8]) -> impl Iterator<Item = BlockNumber> {
        self.blocks.get(&Self::hash(image)).into_iter().flatten().rev().take(CANDIDATES).copied()
    }

    pub(super) fn note_block(&mut self, image: &[u8], at: BlockNumber) {
        let hash = Self::hash(image);
        self.blocks.entry(hash).or_default().push(at);
        self.hashes.insert(at, hash);
    }

    pub(super) fn forget_block(&mut self, at: BlockNumber) {
        let known = self.hashes.remove(&at);
        if let Some(blocks) = known.and_then(|hash| self.blocks.get_mut(&hash)) {
            blocks.retain(|block| *block != at);
        }
    }

    /// The inode that holds, as far as is known, a value of this hash and size.
    pub(super) fn value(&self, hash: u32, size: u32) -> Option<InodeNumber> {
        self.values.get(&(hash, size)).copied()
    }

    pub(super) fn note_value(&mut self, hash: u32, size: u32, inode: InodeNumber) {
        self.values.insert((hash, size), inode);
    }

    pub(super) fn forget_value(&mut self, hash: u32, size: u32) {
        self.values.remove(&(hash, size));
    }
}
