//! Images kept in `testdata/`, packed with zstd.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ext4kit_format::store::MemoryStore;
use ruzstd::decoding::StreamingDecoder;

use crate::image;

/// A file or folder below `testdata/`.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name)
}

/// The image `testdata/NAME`, unpacked. A missing or broken fixture is a broken checkout, so it panics.
pub fn load(name: &str) -> MemoryStore {
    unpack(&path(name)).unwrap_or_else(|error| panic!("testdata/{name}: {error}"))
}

/// Any image packed with zstd, unpacked.
pub fn unpack(path: &Path) -> io::Result<MemoryStore> {
    let mut decoder = StreamingDecoder::new(File::open(path)?).map_err(io::Error::other)?;
    image::read_all(&mut decoder)
}

#[cfg(test)]
mod tests {
    use ext4kit_format::store::Store;

    use super::*;

    #[test]
    fn the_small_image_is_unpacked() {
        let store = load("images/small-ext4.img.zst");
        assert_eq!(store.size(), 1 << 20);
        let mut magic = [0; 2];
        store.read_at(1024 + 0x38, &mut magic).unwrap();
        assert_eq!(magic, [0x53, 0xef]);
    }

    #[test]
    fn what_is_not_packed_is_an_error() {
        assert!(unpack(&path("images/README.md")).is_err());
    }
}
