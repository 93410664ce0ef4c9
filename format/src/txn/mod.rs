//! Changes as transactions over blocks.
//!
//! Every tree algorithm in [`crate::tree`] is written once, against [`Transaction`]. Offline it is the
//! [`Overlay`], whose changed blocks lie in memory over an unchanged store until they are
//! committed or dropped; online it is a JBD2 handle on the running transaction.
//!
//! Rules that callers keep, so that the same code runs under many threads:
//! - a [`Block`] that was read is a snapshot and pins nothing; hold it as long as you like;
//! - a writable view lives for one edit, a closure; inside it no other block can be asked for;
//! - an inode's tree is changed only by whoever holds that inode's lock; blocks shared by many inodes (inode table,
//!   bitmaps, descriptors, superblock, attribute blocks) are changed by one edit at a time;
//! - between two steps that each leave the tree consistent, [`Transaction::ensure_credits`] is called, and the
//!   implementor may start a new transaction there;
//! - every block is asked for by its kind. The kind says which checksum the block carries, and each checksum is put
//!   right once, on the block's way out.

mod commit;
mod kind;
mod overlay;
mod redo;
mod seal;

use std::ops::Deref;
use std::sync::Arc;

pub use commit::{commit_new, forget_old_filesystem};
pub use kind::{BlockKind, Owner};
pub use overlay::{Change, DataPolicy, Overlay, OverlayOptions};
pub use redo::{RedoLog, commit_with_redo_log};

use crate::error::Result;
use crate::ids::{BlockNumber, BlockRun, GroupNumber, InodeNumber};
use crate::layout::Layout;

/// The bytes of one block as a transaction saw them: a snapshot, cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(Arc<[u8]>);

impl Block {
    /// A block of these bytes.
    pub fn new(bytes: Arc<[u8]>) -> Self {
        Self(bytes)
    }

    /// The bytes, shared with every other holder of the snapshot.
    pub fn into_bytes(self) -> Arc<[u8]> {
        self.0
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// What a tree asks of the allocator.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest {
    /// Where the first block should be, or as close behind it as possible.
    pub goal: BlockNumber,
    /// How many blocks are wanted, at least 1. Fewer may come, never none.
    pub wanted: u64,
    /// The inode that will own the blocks: for quota, and for whoever may dip into the reserve.
    pub owner: InodeNumber,
}

/// A set of changes to blocks that becomes visible as a whole or not at all.
///
/// The closures run exactly once when `Ok` is returned, and not at all when an error is. Generic callers use
/// [`modify`] and [`create`], which pass a closure's result through.
pub trait Transaction {
    /// Shape of the filesystem: geometry, features, checksum seeds. Fixed for the life of the transaction.
    fn layout(&self) -> &Layout;

    /// The block as this transaction sees it.
    ///
    /// The checksum of what the kind names (the block, or one record of it) is verified, unless this transaction has
    /// changed it: a mismatch is [`crate::Error::Corrupt`]. Read as [`BlockKind::Plain`] to take the bytes as they
    /// are.
    fn read(&self, at: BlockNumber, kind: BlockKind) -> Result<Block>;

    /// Changes a block in place; the first call keeps whatever commit needs. Prefer [`modify`].
    fn modify_with(
        &mut self,
        at: BlockNumber,
        kind: BlockKind,
        edit: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()>;

    /// A block new to the transaction: zeroed, never read from the store. Prefer [`create`].
    fn create_with(
        &mut self,
        at: BlockNumber,
        kind: BlockKind,
        edit: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()>;

    /// The block is no longer metadata: its changes are dropped, and online a revoke is recorded.
    /// It does not free the block; [`Transaction::release_blocks`] does.
    fn forget(&mut self, at: BlockNumber) -> Result<()>;

    /// Fills `buffer`, a whole number of blocks, from consecutive blocks of file data.
    fn read_data(&self, start: BlockNumber, buffer: &mut [u8]) -> Result<()>;

    /// Writes file data, a whole number of blocks, at its final place. It is durable before the commit that makes
    /// it reachable.
    fn write_data(&mut self, start: BlockNumber, bytes: &[u8]) -> Result<()>;

    /// Makes consecutive blocks of file data read as zero.
    fn zero_data(&mut self, run: BlockRun) -> Result<()>;

    /// Takes free blocks: one run of at most the wanted length, in whole clusters where the filesystem has them.
    fn allocate_blocks(&mut self, request: BlockRequest) -> Result<BlockRun>;

    /// Gives blocks back. With clusters, the caller gives whole clusters. A block that is already free is
    /// [`crate::Error::Corrupt`].
    fn release_blocks(&mut self, run: BlockRun) -> Result<()>;

    /// Takes a free inode, in the group if possible. Counts it as a directory if it will be one. The slot's old
    /// bytes are left as they are.
    fn allocate_inode(&mut self, near: GroupNumber, directory: bool) -> Result<InodeNumber>;

    /// Gives an inode back and lowers the group's count of directories if it was one.
    fn release_inode(&mut self, inode: InodeNumber, directory: bool) -> Result<()>;

    /// Called between two steps that each leave the tree consistent: makes room for a step that changes at most
    /// `blocks` metadata blocks. Online this may end the handle's transaction and join the next one; offline it
    /// may spill changed blocks to a temporary file.
    fn ensure_credits(&mut self, blocks: u32) -> Result<()>;
}

/// Changes a block in place and returns what the edit returns.
pub fn modify<R>(
    txn: &mut dyn Transaction,
    at: BlockNumber,
    kind: BlockKind,
    edit: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    run_once(edit, |edit| txn.modify_with(at, kind, edit))
}

/// Starts a block from zeroes and returns what the edit returns.
pub fn create<R>(
    txn: &mut dyn Transaction,
    at: BlockNumber,
    kind: BlockKind,
    edit: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    run_once(edit, |edit| txn.create_with(at, kind, edit))
}

/// Lets a closure that runs once, and has a result, pass through the object-safe methods of the trait.
fn run_once<R>(
    edit: impl FnOnce(&mut [u8]) -> R,
    call: impl FnOnce(&mut dyn FnMut(&mut [u8])) -> Result<()>,
) -> Result<R> {
    let mut edit = Some(edit);
    let mut result = None;
    call(&mut |bytes| {
        if let Some(edit) = edit.take() {
            result = Some(edit(bytes));
        }
    })?;
    result.ok_or_else(|| crate::Error::Invalid("a transaction returned without running its edit".to_owned()))
}
