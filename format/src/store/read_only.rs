//! A guard over a store that must not be written.

use std::io;
use std::ops::Range;

use super::{Store, refuse_write};

/// A store whose writes are refused, whatever is under it.
#[derive(Debug)]
pub struct ReadOnly<S>(S);

impl<S: Store> ReadOnly<S> {
    /// Guards a store.
    pub fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: Store> Store for ReadOnly<S> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(refuse_write())
    }

    fn zero_range(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(refuse_write())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn as_memory(&self) -> Option<&[u8]> {
        self.0.as_memory()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.0.next_data(offset)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStore, contract};
    use super::*;

    #[test]
    fn keeps_the_contract() {
        contract::check_read_only(&ReadOnly::new(MemoryStore::from_bytes(&contract::pattern())));
    }
}
