//! A partition inside another store: a stretch of it that begins at byte 0 of its own.

use std::io;
use std::ops::Range;

use super::{Store, check_read, check_write, rest};
use crate::error::{Error, Result};
use crate::num;

/// `size` bytes of a store from `start`.
#[derive(Debug)]
pub struct SubRange<S> {
    inner: S,
    start: u64,
    size: u64,
}

impl<S: Store> SubRange<S> {
    /// The store from byte `start` to its end.
    pub fn from_offset(inner: S, start: u64) -> Result<Self> {
        let whole = inner.size();
        match whole.checked_sub(start) {
            None | Some(0) => Err(Error::Invalid(format!(
                "offset {start} lies beyond the end of a device of {whole} bytes"
            ))),
            Some(size) => Ok(Self { inner, start, size }),
        }
    }

    /// `size` bytes of the store from byte `start`. They must lie inside it, and be at least one.
    pub fn new(inner: S, start: u64, size: u64) -> Result<Self> {
        let whole = inner.size();
        if size == 0 || start.checked_add(size).is_none_or(|end| end > whole) {
            return Err(Error::Invalid(format!(
                "{size} bytes at offset {start} do not lie inside a device of {whole} bytes"
            )));
        }
        Ok(Self { inner, start, size })
    }
}

impl<S: Store> Store for SubRange<S> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_read(self.size, offset, num::wide(buffer.len()))?;
        self.inner.read_at(self.start.saturating_add(offset), buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_write(self.size, offset, num::wide(bytes.len()))?;
        self.inner.write_at(self.start.saturating_add(offset), bytes)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        check_write(self.size, offset, length)?;
        self.inner.zero_range(self.start.saturating_add(offset), length)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        check_write(self.size, offset, length)?;
        self.inner.discard(self.start.saturating_add(offset), length)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.inner.drop_cache()
    }

    fn as_memory(&self) -> Option<&[u8]> {
        let start = num::index64(self.start);
        self.inner.as_memory()?.get(start..start.checked_add(num::index64(self.size))?)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let found = self.inner.next_data(self.start.saturating_add(offset))?;
        let Some(found) = found else { return Ok(None) };
        // Whatever lies behind this range belongs to somebody else.
        let (from, to) = (found.start.saturating_sub(self.start), found.end.saturating_sub(self.start));
        Ok(rest(from, to.min(self.size)))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStore, contract};
    use super::*;

    #[test]
    fn keeps_the_contract_and_leaves_its_neighbours_alone() {
        let disk = MemoryStore::new(contract::SIZE + 1000);
        disk.write_at(0, &[7; 600]).unwrap();
        disk.write_at(600 + contract::SIZE, &[8; 400]).unwrap();
        contract::check(&SubRange::new(&disk, 600, contract::SIZE).unwrap());
        let bytes = disk.to_vec();
        assert_eq!(bytes[..600], [7; 600]);
        assert_eq!(bytes[600 + contract::LENGTH..], [8; 400]);
    }

    #[test]
    fn a_range_outside_is_refused() {
        let disk = MemoryStore::new(1000);
        assert_eq!(SubRange::from_offset(&disk, 999).unwrap().size(), 1);
        let text = SubRange::from_offset(&disk, 1000).unwrap_err().to_string();
        assert_eq!(text, "offset 1000 lies beyond the end of a device of 1000 bytes");
        assert!(SubRange::from_offset(&disk, u64::MAX).is_err());
        assert!(SubRange::new(&disk, 1, 1000).is_err());
        let text = SubRange::new(&disk, u64::MAX, 2).unwrap_err().to_string();
        assert_eq!(text, "2 bytes at offset 18446744073709551615 do not lie inside a device of 1000 bytes");
    }
}
