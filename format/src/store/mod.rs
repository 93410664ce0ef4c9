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
//!
//! | kind | what it is |
//! | --- | --- |
//! | [`MemoryStore`] | sparse memory; a clone shares what neither side has changed |
//! | [`FileStore`] | a regular file or block device through positioned reads and writes |
//! | [`MappedStore`] | a regular file, mapped, never written |
//! | [`SubRange`] | a partition inside another store |
//! | [`ReadOnly`] | a guard over a store that must not be written |
//! | [`Recorder`] | keeps every write and flush in order |
//! | [`Fault`] | errors, torn and lost writes, a power cut at the n-th operation |
//! | [`Latency`] | a device of a given service time |
//!
//! Start with [`open`], which finds out whether somebody else uses the image before it gives one out.

mod fault;
mod file;
mod in_use;
mod latency;
mod mapped;
mod memory;
mod open;
mod read_only;
mod recorder;
mod sub_range;
mod sync;

#[cfg(test)]
mod contract;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::num;

pub use fault::{Counts, Effect, Fault, Operation as FaultyOperation, Rule, When};
pub use file::FileStore;
pub use in_use::{Use, uses};
pub use latency::{Latency, ServiceTimes};
pub use mapped::MappedStore;
pub use memory::MemoryStore;
pub use open::{Access, create_sparse_file, open};
pub use read_only::ReadOnly;
pub use recorder::{Operation, Record, Recorder};
pub use sub_range::SubRange;

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

    /// The next stretch from `offset` that may hold something other than zeros; `None` if only zeros follow.
    ///
    /// For walks over sparse stores that need not look at holes. A store that cannot tell gives all the rest of
    /// itself. A stretch that is being written by others meanwhile may be missed.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok(rest(offset, self.size()))
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }
}

macro_rules! store_behind_a_pointer {
    ($($pointer:ty),*) => {$(
        impl<S: Store + ?Sized> Store for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }

            fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
                (**self).read_at(offset, buffer)
            }

            fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
                (**self).write_at(offset, bytes)
            }

            fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
                (**self).zero_range(offset, length)
            }

            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }

            fn as_memory(&self) -> Option<&[u8]> {
                (**self).as_memory()
            }

            fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
                (**self).next_data(offset)
            }

            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
        }
    )*};
}
store_behind_a_pointer!(Arc<S>, Box<S>, &S);

/// All that follows an offset, if anything does.
fn rest(offset: u64, size: u64) -> Option<Range<u64>> {
    (offset < size).then_some(offset..size)
}

/// Checks that a read lies inside a store of this size.
fn check_read(size: u64, offset: u64, length: u64) -> io::Result<()> {
    check_inside(size, offset, length, io::ErrorKind::UnexpectedEof, "read")
}

/// Checks that a write lies inside a store of this size.
fn check_write(size: u64, offset: u64, length: u64) -> io::Result<()> {
    check_inside(size, offset, length, io::ErrorKind::WriteZero, "write")
}

fn check_inside(size: u64, offset: u64, length: u64, kind: io::ErrorKind, what: &str) -> io::Result<()> {
    if offset.checked_add(length).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(io::Error::new(kind, format!("{what} of {length} bytes at {offset} passes the end at {size}")))
}

/// The error of a write to a store that refuses them.
pub(crate) fn refuse_write() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened read-only")
}

/// Writes zeros, for stores and ranges that have no quicker way.
fn write_zeros(
    offset: u64,
    length: u64,
    mut write_at: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    static ZEROS: [u8; 65536] = [0; 65536];
    let end = offset.saturating_add(length);
    let mut at = offset;
    while at < end {
        let count = end.saturating_sub(at).min(num::wide(ZEROS.len()));
        write_at(at, ZEROS.get(..num::index64(count)).unwrap_or(&ZEROS))?;
        at = at.saturating_add(count);
    }
    Ok(())
}
