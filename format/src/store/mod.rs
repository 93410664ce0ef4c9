//! Bytes at offsets, with a flush as the barrier: the device under a filesystem.
//!
//! A store knows nothing of blocks or formats. Wrappers compose: a partition inside a disk image is a
//! sub-range of a file; a test's device is a recorder over a fault injector over memory.
//!
//! Contract of every store:
//! - reads and writes are whole or fail; a failed write may have written any part of its range;
//! - writes may reach the medium in any order until a [`Store::flush`] that was called after they returned has
//!   returned; then all of them are durable;
//! - all methods may be called from many threads at once.

use std::io;

/// A device or file that holds an image.
pub trait Store: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buffer` from byte `offset`.
    ///
    /// Reading past the end is an error of kind [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at byte `offset`.
    ///
    /// Writing past the end is an error of kind [`io::ErrorKind::WriteZero`], and a store opened read-only gives
    /// [`io::ErrorKind::ReadOnlyFilesystem`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes `length` bytes from `offset` read as zero, without writing them where the store can do that.
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Returns when every write that returned before this call is durable.
    fn flush(&self) -> io::Result<()>;

    /// The whole store as memory, if it is mapped. The bytes must not be relied on to stay the same while
    /// somebody writes to the store.
    fn as_memory(&self) -> Option<&[u8]> {
        None
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }
}
