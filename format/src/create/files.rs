//! The files and directories that every filesystem has.

use std::sync::Arc;

use super::{Parameters, Plan, hidden, write_skeleton};
use crate::disk::dirent::FileType;
use crate::disk::features::{Compat, Incompat, RoCompat};
use crate::disk::inode::{EXTRA_SIZE, Inode, Timestamp};
use crate::error::{Error, Result};
use crate::ids::{GroupNumber, InodeNumber};
use crate::num::index;
use crate::store::Store;
use crate::tree::{dir, group, inode, map};
use crate::txn::{Overlay, OverlayOptions, Transaction};

/// `lost+found` gets this many bytes of blocks ahead, within its direct blocks, so that a checker need not allocate.
const LOST_AND_FOUND_SIZE: u64 = 16 << 10;
/// The most blocks that `lost+found` gets.
const LOST_AND_FOUND_BLOCKS: u64 = 12;

/// An overlay over the store that holds the planned filesystem, empty but for what every filesystem has.
///
/// Fails with [`Error::Unsupported`] for features that need structures which are not made yet.
pub fn create_filesystem(
    store: Arc<dyn Store>,
    plan: &Plan,
    parameters: &Parameters,
    options: OverlayOptions,
) -> Result<Overlay> {
    refuse_unsupported(parameters)?;
    let mut overlay = write_skeleton(store, plan, parameters, options)?;
    let txn = &mut overlay;
    create_root(txn, parameters)?;
    if parameters.features.compat.contains(Compat::RESIZE_INODE) {
        hidden::create_resize_inode(txn, parameters)?;
    }
    if let Some(journal) = parameters.journal {
        hidden::create_journal(txn, parameters, journal)?;
    }
    if parameters.features.compat.contains(Compat::ORPHAN_FILE) {
        hidden::create_orphan_file(txn, parameters)?;
    }
    if parameters.features.incompat.contains(Incompat::MMP) {
        hidden::create_mmp_block(txn, parameters)?;
    }
    Ok(overlay)
}

fn refuse_unsupported(parameters: &Parameters) -> Result<()> {
    if parameters.features.ro_compat.contains(RoCompat::QUOTA) {
        return Err(Error::Unsupported("creating quota files".to_owned()));
    }
    if parameters.features.compat.contains(Compat::HAS_JOURNAL) != parameters.journal.is_some() {
        return Err(Error::Invalid("the feature has_journal goes with a journal size".to_owned()));
    }
    Ok(())
}

/// How many blocks `lost+found` gets.
pub(super) fn lost_and_found_blocks(block_size: u32) -> u64 {
    LOST_AND_FOUND_SIZE.div_ceil(block_size.max(1).into()).clamp(2, LOST_AND_FOUND_BLOCKS)
}

/// The time of creation as inodes have it.
pub(super) fn creation_time(parameters: &Parameters) -> Timestamp {
    Timestamp { seconds: parameters.time, nanoseconds: 0 }
}

/// A fresh inode with all four times set to the time of creation.
pub(super) fn fresh_inode(txn: &dyn Transaction, number: InodeNumber, parameters: &Parameters) -> Inode {
    let mut inode = Inode::fresh(number, index(txn.layout().geometry.inode_size()), EXTRA_SIZE);
    let time = creation_time(parameters);
    inode.set_access_time(time);
    inode.set_change_time(time);
    inode.set_modification_time(time);
    inode.set_creation_time(time);
    inode
}

/// Whether new files map their blocks by extents.
pub(super) fn extents(txn: &dyn Transaction) -> bool {
    txn.layout().features().incompat.contains(Incompat::EXTENTS)
}

/// The root directory with `lost+found` in it.
fn create_root(txn: &mut dyn Transaction, parameters: &Parameters) -> Result<()> {
    let mut root = fresh_inode(txn, InodeNumber::ROOT, parameters);
    root.set_mode(0o040_000 | (parameters.root_mode & 0o7777));
    root.set_owner_ids(parameters.root_owner.0, parameters.root_owner.1);
    root.set_links(3);
    map::initialise(&mut root, extents(txn))?;
    dir::create(txn, &mut root, InodeNumber::ROOT)?;
    group::update_descriptor(txn, GroupNumber(0), |descriptor| {
        descriptor.used_directories = descriptor.used_directories.saturating_add(1);
    })?;

    let number = txn.allocate_inode(GroupNumber(0), true)?;
    let mut lost = fresh_inode(txn, number, parameters);
    lost.set_mode(0o040_700);
    lost.set_links(2);
    map::initialise(&mut lost, extents(txn))?;
    dir::create(txn, &mut lost, InodeNumber::ROOT)?;
    for _ in 1..lost_and_found_blocks(txn.layout().geometry.block_size()) {
        dir::expand(txn, &mut lost)?;
    }
    inode::write_over(txn, &lost)?;
    dir::insert(txn, &mut root, b"lost+found", number, FileType::DIRECTORY)?;
    inode::write_over(txn, &root)
}
