//! A filesystem whose journal is full, for the benchmark of replay.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::image::Image;
use ext4kit_format::journal::{TransactionContents, encode_transaction, open_internal};
use ext4kit_format::store::{self, Access, Store};
use ext4kit_format::tree::group;
use ext4kit_format::txn::{BlockKind, OverlayOptions, Transaction};
use ext4kit_format::{BlockNumber, TransactionId};

/// Blocks in each transaction.
const BLOCKS: u64 = 1000;

/// Fills the journal of an image with transactions that write free blocks, and says that it has to be replayed.
pub fn fill(path: &Path) -> Result<()> {
    let store = store::open(path, Access::ReadWrite, false)?;
    let image = Image::open(Arc::clone(&store))?;
    let found = open_internal(&image)?.journal;
    let mut superblock = found.superblock().clone();
    let block_size = usize::try_from(image.layout().geometry.block_size())?;
    let data = vec![0x5a; block_size];
    let (mut at, mut id) = (superblock.s_first.get(), TransactionId(superblock.s_sequence.get()));
    // The journal lies in the middle; behind it a fresh filesystem is free.
    let mut target = image.layout().geometry.blocks_count() / 4 * 3;
    while u64::from(at) + BLOCKS + 10 < u64::from(found.blocks().count()) {
        let blocks: Vec<(BlockNumber, &[u8])> =
            (0..BLOCKS).map(|distance| (BlockNumber(target + distance), data.as_slice())).collect();
        target += BLOCKS;
        let contents = TransactionContents { id, seconds: 1_700_000_000, blocks: &blocks, revokes: &[] };
        let encoded = encode_transaction(found.format(), superblock.s_uuid, &contents).context("encoding")?;
        for block in encoded.body.iter().chain([&encoded.commit]) {
            found.blocks().write(at, block)?;
            at += 1;
        }
        id = id.next();
    }
    superblock.s_start.set(superblock.s_first.get());
    found.write_superblock(&superblock)?;
    let mut overlay = image.overlay(OverlayOptions::default());
    group::update_superblock(&mut overlay, |superblock| {
        let mut features = superblock.features();
        features.incompat |= Incompat::RECOVER;
        superblock.set_features(features);
        superblock.refresh_checksum();
    })?;
    let block = image.layout().geometry.superblock_block();
    let bytes = overlay.read(block, BlockKind::Superblock)?;
    store.write_at(block.0 << image.layout().geometry.block_bits(), &bytes)?;
    store.flush()?;
    Ok(())
}
