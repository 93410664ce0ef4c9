//! Finding the journal of a whole filesystem, and recovering it.

use std::sync::Arc;

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use super::super::*;
use crate::create::tests::ext4;
use crate::create::{JournalParameters, Plan, create_filesystem};
use crate::disk::features::Incompat;
use crate::disk::superblock::PRIMARY_OFFSET;
use crate::ids::{BlockNumber, InodeNumber, TransactionId};
use crate::image::Image;
use crate::store::{MemoryStore, Store};
use crate::tree::inode;
use crate::txn::{OverlayOptions, commit_new};

/// An empty filesystem of 16 MiB with a journal of 1024 blocks.
fn filesystem(extents: bool) -> Arc<MemoryStore> {
    let mut parameters = ext4(16384, 1024);
    parameters.journal = Some(JournalParameters { blocks: 1024, fast_commit_blocks: 0 });
    parameters.features.incompat.set(Incompat::EXTENTS, extents);
    let store = Arc::new(MemoryStore::new(16 << 20));
    let plan = Plan::new(&parameters).unwrap();
    let options = OverlayOptions::default();
    let mut overlay = create_filesystem(store.clone(), &plan, &parameters, options).unwrap();
    commit_new(&mut overlay).unwrap();
    store
}

fn open(store: &Arc<MemoryStore>) -> Result<(Image, FoundJournal)> {
    let image = Image::open(store.clone())?;
    let found = open_internal(&image)?;
    Ok((image, found))
}

/// Flips a byte of the journal's inode.
fn damage_inode(store: &Arc<MemoryStore>, at: u64) {
    let image = Image::open(store.clone()).unwrap();
    let (block, offset) =
        inode::locate(&image.overlay(OverlayOptions::default()), InodeNumber::JOURNAL).unwrap();
    let offset = block.0 * 1024 + u64::try_from(offset).unwrap() + at;
    let mut byte = [0];
    store.read_at(offset, &mut byte).unwrap();
    store.write_at(offset, &[byte[0] ^ 0xff]).unwrap();
}

#[test]
fn the_journal_of_a_filesystem_is_found_by_its_inode() {
    for extents in [true, false] {
        let (image, found) = open(&filesystem(extents)).unwrap();
        assert!(found.inode_damage.is_none());
        assert_eq!(found.journal.blocks().count(), 1024);
        assert_eq!(found.journal.superblock().s_uuid, image.superblock().s_uuid);
        assert!(found.journal.scan(16384).unwrap().is_empty());
    }
}

#[test]
fn the_map_in_the_superblock_stands_in_for_a_damaged_inode() {
    for extents in [true, false] {
        // The mode, the size, the map, the checksum.
        for at in [1, 4, 0x28, 0x7c] {
            let store = filesystem(extents);
            damage_inode(&store, at);
            let (_, found) = open(&store).unwrap();
            assert!(found.inode_damage.is_some_and(|error| error.is_corruption()), "byte {at}");
            assert_eq!(found.journal.blocks().count(), 1024);
        }
    }
}

#[test]
fn without_the_map_in_the_superblock_the_damage_is_told() {
    let store = filesystem(true);
    damage_inode(&store, 4);
    let mut superblock = Image::open(store.clone()).unwrap().superblock().clone();
    superblock.s_jnl_backup_type = 0;
    superblock.refresh_checksum();
    store.write_at(PRIMARY_OFFSET, superblock.as_bytes()).unwrap();
    let error = open(&store).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("inode 8: checksum is"), "{error}");
}

#[test]
fn a_filesystem_is_recovered_from_end_to_end() {
    let store = filesystem(true);
    let (image, found) = open(&store).unwrap();
    // What a kernel does: say that recovery is needed, log a block, and lose power.
    let mut superblock = image.superblock().clone();
    let mut features = superblock.features();
    features.incompat.insert(Incompat::RECOVER);
    superblock.set_features(features);
    superblock.refresh_checksum();
    store.write_at(PRIMARY_OFFSET, superblock.as_bytes()).unwrap();
    let journal = found.journal;
    let contents = [0xab; 1024];
    let logged = TransactionContents {
        id: TransactionId(1),
        seconds: 1_700_000_000,
        blocks: &[(BlockNumber(16000), &contents)],
        revokes: &[],
    };
    let encoded = encode_transaction(journal.format(), journal.superblock().s_uuid, &logged).unwrap();
    for (at, block) in (1..).zip(encoded.body.iter().chain([&encoded.commit])) {
        journal.blocks().write(at, block).unwrap();
    }
    let mut dirty = journal.superblock().clone();
    dirty.s_start = U32::new(1);
    journal.write_superblock(&dirty).unwrap();

    let (image, found) = open(&store).unwrap();
    assert!(image.needs_recovery());
    let recovered = recover(store.as_ref(), &found.journal, None).unwrap();
    assert!(!recovered.is_damaged());
    let mut block = [0; 1024];
    store.read_at(16000 * 1024, &mut block).unwrap();
    assert_eq!(block, contents);
    let (image, found) = open(&store).unwrap();
    assert!(!image.needs_recovery() && found.journal.superblock().is_empty());
}
