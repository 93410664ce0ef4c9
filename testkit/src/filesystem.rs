//! Filesystems in memory, made for a test, and e2fsck's opinion of them.

use std::sync::Arc;

use crate::oracle;
use ext4kit_format::create::{Identity, InodeCount, Parameters, Plan, create_filesystem, write_backups};
use ext4kit_format::disk::dirent::FileType;
use ext4kit_format::disk::features::{Feature, Features};
use ext4kit_format::disk::inode::{EXTRA_SIZE, Inode, Timestamp};
use ext4kit_format::store::MemoryStore;
use ext4kit_format::tree::{dir, group, inode, map};
use ext4kit_format::txn::{DataPolicy, Overlay, OverlayOptions, Transaction, commit_new};
use ext4kit_format::{GroupNumber, InodeNumber};

/// The time of everything.
pub const TIME: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

const EXT4: &str = "has_journal ext_attr resize_inode dir_index filetype extent 64bit flex_bg sparse_super \
                    large_file huge_file dir_nlink extra_isize metadata_csum";

/// Parameters of an ext4 filesystem with more features, or fewer where a name begins with `^`.
pub fn parameters(blocks_count: u64, block_size: u32, changes: &str) -> Parameters {
    let mut features = Features::default();
    for name in EXT4.split_whitespace().chain(changes.split_whitespace()) {
        let (name, wanted) = name.strip_prefix('^').map_or((name, true), |name| (name, false));
        features.set(Feature::from_name(name).unwrap(), wanted);
    }
    Parameters {
        inodes: InodeCount::BytesPerInode(4096),
        identity: Identity { uuid: [0x11; 16], hash_seed: [0x22; 16], ..Identity::default() },
        time: TIME.seconds,
        target_is_zero: true,
        ..Parameters::new(blocks_count, block_size, features)
    }
}

/// An empty filesystem in memory, not committed yet.
pub fn filesystem(parameters: &Parameters) -> (Arc<MemoryStore>, Overlay) {
    let plan = Plan::new(parameters).unwrap();
    let store = Arc::new(MemoryStore::new(parameters.blocks_count * u64::from(parameters.block_size)));
    let options = OverlayOptions { data: DataPolicy::WriteThrough, ..OverlayOptions::default() };
    let overlay = create_filesystem(Arc::clone(&store) as Arc<_>, &plan, parameters, options).unwrap();
    (store, overlay)
}

/// An empty ext4 filesystem of the usual features, committed.
pub fn ext4(blocks_count: u64, block_size: u32) -> MemoryStore {
    let (store, mut overlay) = filesystem(&parameters(blocks_count, block_size, ""));
    commit(&mut overlay);
    MemoryStore::clone(&store)
}

/// Writes the backups of a filesystem and commits it.
pub fn commit(overlay: &mut Overlay) {
    // A superblock that did not change would be missing after a commit that takes the filesystem for new.
    group::update_superblock(overlay, |_| ()).unwrap();
    write_backups(overlay).unwrap();
    commit_new(overlay).unwrap();
}

/// Commits a filesystem and asks e2fsck, which has to be silent.
pub fn commit_clean(store: &MemoryStore, overlay: &mut Overlay) {
    commit(overlay);
    oracle::assert_clean(store);
}

/// A new file or directory inode, not named and not written yet.
pub fn fresh(txn: &mut Overlay, mode: u16) -> Inode {
    let directory = mode & 0xf000 == 0x4000;
    let number = txn.allocate_inode(GroupNumber(0), directory).unwrap();
    let size = txn.layout().geometry.inode_size() as usize;
    let mut inode = Inode::fresh(number, size, EXTRA_SIZE);
    inode.set_mode(mode);
    inode.set_links(1 + u16::from(directory));
    for set in [Inode::set_access_time, Inode::set_change_time, Inode::set_modification_time] {
        set(&mut inode, TIME);
    }
    let extents = txn.layout().features().iter().any(|feature| feature.name() == Some("extent"));
    map::initialise(&mut inode, extents).unwrap();
    inode
}

/// Puts an inode under a name into the root directory, and writes it.
pub fn put_in_root(txn: &mut Overlay, name: &str, file: &Inode) {
    let mut root = inode::read(txn, InodeNumber::ROOT).unwrap();
    let file_type = FileType::from_mode(file.view().mode());
    dir::insert(txn, &mut root, name.as_bytes(), file.number(), file_type).unwrap();
    if file.view().is_directory() {
        root.set_links(root.view().links() + 1);
    }
    inode::write_over(txn, &root).unwrap();
    inode::write_over(txn, file).unwrap();
}
