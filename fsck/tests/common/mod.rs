//! Filesystems in memory for the tests.

use std::sync::Arc;

use ext4kit_format::create::{
    Identity, InodeCount, JournalParameters, Parameters, Plan, create_filesystem, default_journal_blocks,
    write_backups,
};
use ext4kit_format::disk::features::{Feature, Features};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::txn::{OverlayOptions, commit_new};

/// An empty ext4 filesystem with the usual features.
pub fn ext4(blocks_count: u64, block_size: u32) -> MemoryStore {
    let mut features = Features::default();
    for name in [
        "has_journal",
        "ext_attr",
        "resize_inode",
        "dir_index",
        "filetype",
        "extent",
        "64bit",
        "flex_bg",
        "sparse_super",
        "large_file",
        "huge_file",
        "dir_nlink",
        "extra_isize",
        "metadata_csum",
    ] {
        features.set(Feature::from_name(name).unwrap(), true);
    }
    let parameters = Parameters {
        blocks_count,
        block_size,
        cluster_size: block_size,
        per_group: None,
        features,
        revision: 1,
        inode_size: 256,
        inodes: InodeCount::BytesPerInode(16384),
        flex_groups: 16,
        reserved_percent: 5.0,
        resize_blocks: None,
        journal: default_journal_blocks(blocks_count)
            .map(|blocks| JournalParameters { blocks, fast_commit_blocks: 0 }),
        orphan_file_blocks: 0,
        identity: Identity { uuid: [0x11; 16], hash_seed: [0x22; 16], ..Identity::default() },
        time: 1_700_000_000,
        errors: 1,
        creator_os: 0,
        mount_options: 0xc,
        hash_version: 1,
        unsigned_hash: false,
        raid: (0, 0),
        encoding: (0, 0),
        backups: 2,
        root_owner: (0, 0),
        root_mode: 0o755,
        target_is_zero: true,
        lazy_tables: true,
    };
    let plan = Plan::new(&parameters).unwrap();
    let store = Arc::new(MemoryStore::new(blocks_count * u64::from(block_size)));
    let to = Arc::clone(&store) as Arc<dyn Store>;
    let mut overlay = create_filesystem(to, &plan, &parameters, OverlayOptions::default()).unwrap();
    write_backups(&mut overlay).unwrap();
    commit_new(&mut overlay).unwrap();
    drop(overlay);
    MemoryStore::clone(&store)
}
