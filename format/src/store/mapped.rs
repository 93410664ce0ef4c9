//! A regular file as read-only memory: the fastest way through an image that nobody changes. Memory is for looks here and
//! there, [`Store::read_at`] for streams, which the system then reads ahead.

// Mapping a file is the one thing in this crate that the compiler cannot check; see `MappedStore::new`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use memmap2::{Advice, Mmap};

use super::{Store, check_read, file, refuse_write};
use crate::num;

/// A mapped file. It keeps the file open, and with it the lock that [`super::open`] took.
#[derive(Debug)]
pub struct MappedStore {
    map: Mmap,
    file: File,
}

impl MappedStore {
    /// Maps a regular file from end to end.
    ///
    /// If another process truncates the file, or the medium fails, a later read of the lost part ends this process
    /// with SIGBUS: a mapping has no other way to report it. Whoever has to survive that reads through a
    /// [`super::FileStore`].
    pub fn new(file: File) -> io::Result<Self> {
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "only regular files are mapped"));
        }
        // SAFETY: the map must not change while it is borrowed. This process never writes a mapped image: the map
        // is read-only, and `open` gives out no writable store under the same lock. Other users of ext4kit are kept
        // out by that lock. A program that ignores it and writes or truncates the file can make us read
        // inconsistent bytes, which every parser here takes as a damaged image, or end us with SIGBUS, as
        // documented above. That is accepted for the speed, and only where nobody is seen to use the file.
        let map = unsafe { Mmap::map(&file)? };
        // Whoever looks at the map jumps about; reading around each fault would fill memory with the holes of a sparse
        // image. Streams are for `read_at`. That this is only advice makes a refusal harmless.
        let _ = map.advise(Advice::Random);
        Ok(Self { map, file })
    }
}

impl Drop for MappedStore {
    /// As for [`super::FileStore`]: the lock is given back at once.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Store for MappedStore {
    fn size(&self) -> u64 {
        num::wide(self.map.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_read(self.size(), offset, num::wide(buffer.len()))?;
        self.file.read_exact_at(buffer, offset)
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
        Some(&self.map)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        if offset >= self.size() {
            return Ok(None);
        }
        file::next_data(&self.file, self.size(), offset)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract;
    use super::*;

    #[test]
    fn keeps_the_contract() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&contract::pattern(), 0).unwrap();
        let store = MappedStore::new(file).unwrap();
        assert!(store.as_memory().is_some());
        contract::check_read_only(&store);
    }

    #[test]
    fn an_empty_file_is_an_empty_store() {
        let store = MappedStore::new(tempfile::tempfile().unwrap()).unwrap();
        assert_eq!(store.size(), 0);
        assert_eq!(store.read_at(0, &mut [0]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_folder_is_refused() {
        assert!(MappedStore::new(File::open(std::env::temp_dir()).unwrap()).is_err());
    }
}
