//! The list of bad blocks, which inode 1 keeps: blocks that are found to be bad or are named in a file come into it before
//! the check, so that what lies in them is found to have two owners, and moves.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_cli::size::parse_number;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::geometry::Geometry;
use ext4kit_format::num::{index64, wide};
use ext4kit_format::store::Store;
use ext4kit_format::{BlockNumber, BlockRun, Place};

use crate::check;
use crate::checks::context::Knowledge;
use crate::opening::Opened;
use crate::repairs::workshop::Workshop;
use crate::repairs::{UntilInodes, maps};

/// What is read at once, in bytes.
const CHUNK: u64 = 1 << 20;

/// How the blocks of a device are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// They are read.
    Read,
    /// They are read, written with what they hold, and read again. What they hold is at no risk, whenever the power goes.
    Rewrite,
}

/// How the list changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Blocks that come into it.
    pub add: BTreeSet<BlockNumber>,
    /// Whether those that are in it stay.
    pub keep: bool,
}

/// What became of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// How many blocks the list has.
    pub blocks: u64,
    /// Blocks that are not in it: the filesystem's own metadata lies there, and cannot be moved by a list.
    pub in_metadata: Vec<BlockNumber>,
}

/// Reads a list of block numbers, one on each line.
pub fn read_file(path: &Path) -> std::result::Result<BTreeSet<BlockNumber>, Failure> {
    let place = path.display().to_string();
    let failed = |error: std::io::Error| Failure::new(FailureKind::Io, &*place, error.to_string());
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
    } else {
        text = std::fs::read_to_string(path).map_err(failed)?;
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| match parse_number(line) {
            Ok(number) => Ok(BlockNumber(number)),
            Err(_) => Err(Failure::new(FailureKind::Invalid, &*place, format!("`{line}` is no block"))),
        })
        .collect()
}

/// Tries every block of the filesystem; gives those that failed.
pub fn find(
    store: &dyn Store,
    geometry: &Geometry,
    trial: Trial,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BTreeSet<BlockNumber>> {
    store.drop_cache().map_err(Error::io(Place::Block(BlockNumber(0))))?;
    let total = geometry.blocks_count();
    let most = (CHUNK >> geometry.block_bits()).max(1);
    let mut bad = BTreeSet::new();
    let mut at = 0;
    while at < total {
        let count = most.min(total.saturating_sub(at));
        if let Some(differing) = differing(store, (at, count), (geometry, trial)) {
            bad.extend(differing);
        } else {
            for one in at..at.saturating_add(count) {
                let failed = differing_one(store, one, (geometry, trial));
                bad.extend(failed.then_some(BlockNumber(one)));
            }
        }
        at = at.saturating_add(count);
        progress(at, total);
    }
    Ok(bad)
}

fn differing_one(store: &dyn Store, block: u64, how: (&Geometry, Trial)) -> bool {
    differing(store, (block, 1), how).is_none_or(|blocks| !blocks.is_empty())
}

/// The blocks of a run that did not keep what was written; `None` if any of them could not be read or written.
fn differing(
    store: &dyn Store,
    (start, count): (u64, u64),
    (geometry, trial): (&Geometry, Trial),
) -> Option<Vec<BlockNumber>> {
    let offset = start << geometry.block_bits();
    let mut bytes = vec![0; index64(count << geometry.block_bits())];
    store.read_at(offset, &mut bytes).ok()?;
    if trial == Trial::Read {
        return Some(Vec::new());
    }
    let mut again = vec![0; bytes.len()];
    let written = store
        .write_at(offset, &bytes)
        .and_then(|()| store.flush())
        .and_then(|()| store.drop_cache())
        .and_then(|()| store.read_at(offset, &mut again));
    written.ok()?;
    let length = geometry.block_length();
    let pairs = (start..).zip(bytes.chunks(length).zip(again.chunks(length)));
    Some(pairs.filter(|(_, (old, new))| old != new).map(|(block, _)| BlockNumber(block)).collect())
}

/// Writes the list anew, in the opened overlay alone.
pub fn change(opened: &mut Opened, change: &Change, now: u32) -> Result<Listed> {
    let geometry = opened.source.layout().geometry.clone();
    if let Some(outside) = change.add.iter().find(|block| !geometry.contains(**block)) {
        return Err(Error::Invalid(format!("bad block {outside} lies outside the filesystem")));
    }
    let (_, mut knowledge) = check::round(opened, &mut UntilInodes);
    let superblock = opened.superblock.clone();
    let mut shop = Workshop::new(&mut opened.source, &mut knowledge, &superblock, now);
    let mut blocks = change.add.clone();
    if change.keep {
        blocks.extend(maps::bad_blocks(&shop)?);
    }
    let mut listed = Listed::default();
    for block in &change.add {
        if !is_movable(shop.knowledge, *block) {
            listed.in_metadata.push(*block);
            blocks.remove(block);
        }
    }
    // The list must not be written to a bad block.
    for block in &blocks {
        let cluster = shop.knowledge.claims.cluster(block.0);
        shop.knowledge.claims.used.insert(cluster);
    }
    listed.blocks = wide(blocks.len());
    maps::write_bad_blocks(&mut shop, blocks)?;
    shop.overlay().seal()?;
    opened.refresh()?;
    Ok(listed)
}

fn is_movable(knowledge: &Knowledge, block: BlockNumber) -> bool {
    knowledge.claims.in_metadata(BlockRun::single(block)).is_none()
}

#[cfg(test)]
mod tests {
    use std::io;

    use ext4kit_format::store::MemoryStore;
    use ext4kit_testkit::filesystem;

    use super::*;

    /// A device with spots that cannot be read, and spots that keep nothing.
    struct Spotted {
        inner: MemoryStore,
        unreadable: u64,
        forgetful: u64,
    }

    impl Store for Spotted {
        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            if (offset..offset + buffer.len() as u64).contains(&(self.unreadable * 1024)) {
                return Err(io::Error::other("medium error"));
            }
            self.inner.read_at(offset, buffer)
        }

        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.inner.write_at(offset, bytes)?;
            if (offset..offset + bytes.len() as u64).contains(&(self.forgetful * 1024)) {
                self.inner.write_at(self.forgetful * 1024, &[0xff; 1024])?;
            }
            Ok(())
        }

        fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
            self.inner.zero_range(offset, length)
        }

        fn flush(&self) -> io::Result<()> {
            self.inner.flush()
        }
    }

    #[test]
    fn reading_finds_what_cannot_be_read_and_writing_what_is_not_kept() {
        let inner = filesystem::ext4(8192, 1024);
        let image = ext4kit_format::image::Image::open(std::sync::Arc::new(inner.clone())).unwrap();
        let store = Spotted { inner, unreadable: 5000, forgetful: 6001 };
        let mut last = 0;
        let mut found = |trial| {
            find(&store, &image.layout().geometry, trial, &mut |done, total| {
                assert!(done <= total);
                last = done;
            })
            .unwrap()
        };
        assert_eq!(found(Trial::Read), BTreeSet::from([BlockNumber(5000)]));
        assert_eq!(found(Trial::Rewrite), BTreeSet::from([BlockNumber(5000), BlockNumber(6001)]));
        assert_eq!(last, 8192);
    }
}
