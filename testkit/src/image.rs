//! A store as a temporary file, for programs that want a path.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ext4kit_format::bytes::all_zero;
use ext4kit_format::store::{FileStore, MemoryStore, Store};

/// How much is copied at a time. Runs of zeros this long stay holes.
const STEP: usize = 64 << 10;

/// An image in a temporary file, removed when it goes.
#[derive(Debug)]
pub struct TempImage {
    folder: tempfile::TempDir,
}

impl TempImage {
    /// A file of this many zero bytes, all hole.
    pub fn empty(size: u64) -> io::Result<Self> {
        let image = Self { folder: tempfile::tempdir()? };
        File::create_new(image.path())?.set_len(size)?;
        Ok(image)
    }

    /// A file with a store's bytes. Zeros are left as holes.
    pub fn of(store: &dyn Store) -> io::Result<Self> {
        let image = Self::empty(store.size())?;
        let file = OpenOptions::new().write(true).open(image.path())?;
        let mut buffer = vec![0; STEP];
        let mut at = 0;
        while let Some(data) = store.next_data(at)? {
            at = data.start;
            while at < data.end {
                let count = usize::try_from(data.end - at).unwrap_or(STEP).min(STEP);
                let part = &mut buffer[..count];
                store.read_at(at, part)?;
                if !all_zero(part) {
                    file.write_all_at(part, at)?;
                }
                at += count as u64;
            }
        }
        Ok(image)
    }

    /// Where the file is.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// The file's bytes, into memory.
    pub fn load(&self) -> io::Result<MemoryStore> {
        load(&self.path())
    }
}

/// A file's bytes, into memory. Holes are passed over.
pub fn load(path: &Path) -> io::Result<MemoryStore> {
    MemoryStore::copy_of(&FileStore::new(File::open(path)?, true)?)
}

/// All that a reader gives, into memory; runs of zeros take none.
pub fn read_all(from: &mut impl Read) -> io::Result<MemoryStore> {
    let mut parts = Vec::new();
    let mut size = 0u64;
    loop {
        let mut part = Vec::new();
        let count = from.by_ref().take(STEP as u64).read_to_end(&mut part)?;
        if count == 0 {
            break;
        }
        if !all_zero(&part) {
            parts.push((size, part));
        }
        size += count as u64;
    }
    let store = MemoryStore::new(size);
    for (offset, part) in parts {
        store.write_at(offset, &part)?;
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_out_and_come_back() {
        let store = MemoryStore::new(3 * STEP as u64 + 5);
        store.write_at(STEP as u64 - 1, b"seam").unwrap();
        store.write_at(3 * STEP as u64 + 4, b"!").unwrap();
        let image = TempImage::of(&store).unwrap();
        assert_eq!(image.load().unwrap().to_vec(), store.to_vec());
        let path = image.path();
        drop(image);
        assert!(!path.exists());
    }

    #[test]
    fn a_huge_sparse_store_is_copied_by_what_is_in_it() {
        let size = 1 << 40;
        let store = MemoryStore::new(size);
        store.write_at(size - 3, b"end").unwrap();
        let copy = TempImage::of(&store).unwrap().load().unwrap();
        assert_eq!((copy.size(), copy.allocated()), (size, store.allocated()));
        let mut tail = [0; 4];
        copy.read_at(size - 4, &mut tail).unwrap();
        assert_eq!(&tail, b"\0end");
    }

    #[test]
    fn an_empty_store_is_an_empty_file() {
        assert_eq!(TempImage::of(&MemoryStore::new(0)).unwrap().load().unwrap().size(), 0);
    }
}
