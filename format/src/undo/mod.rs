//! Undo files of e2fsprogs: written while a filesystem is changed, so that `e2undo` or [`undo`] can put it back.
//!
//! Layout (see [`crate::disk::undo`] for the structures): a header; in block 1 a copy of the superblock, the bits of its
//! magic inverted; from block 2 on a block of keys, the data of those keys in order, the next block of keys, and so on.
//! Each piece of data begins at a block of its own.
//!
//! Invariants:
//! - what a filesystem held *first* stays: a block that is in the file is not recorded again;
//! - the copy of the superblock is the one *after* the changes, by which a reader knows that the file belongs to this
//!   state of this filesystem;
//! - the header says "finished" only after [`UndoFile::finish`], so that a file of a run that was cut short is told apart.
//!
//! Order of a run: [`UndoFile::record`] every block that will be changed, [`UndoFile::sync`], change the filesystem,
//! [`UndoFile::finish`].

mod read;
mod write;

pub use read::{UndoOptions, Undone, undo};
pub use write::UndoFile;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::disk::superblock::{PRIMARY_OFFSET, SIZE};
use crate::disk::undo::{UndoHeader, UndoKey, data_checksum, keys_per_block, parse_keys, superblock};
use crate::error::{Defect, Error, Place, Result};
use crate::num::{index, index64, wide};
use crate::store::Store;

/// Block of the undo file that holds the copy of the superblock.
const SUPER_BLOCK: u64 = 1;
/// Block of the undo file that holds the first keys.
const FIRST_KEYS: u64 = 2;
/// The most blocks of data that a key describes, as e2fsprogs have it.
const MOST_BLOCKS: u64 = 512;

fn place() -> Place {
    Place::File("undo file".to_owned())
}

fn corrupt(defect: Defect) -> Error {
    defect.at(place())
}

/// A key, and where its data lies in the undo file.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the data came from, in bytes from the start of the filesystem.
    offset: u64,
    /// Its length in bytes.
    length: u32,
    /// Its checksum.
    checksum: u32,
    /// Where it lies, in bytes from the start of the undo file.
    at: u64,
}

/// What an undo file holds, without the data.
struct Contents {
    header: UndoHeader,
    entries: Vec<Entry>,
    /// The block of the last keys, and those keys.
    last_keys: (u64, Vec<UndoKey>),
    /// The block behind the last data.
    end: u64,
}

fn read_exact(file: &File, at: u64, bytes: &mut [u8]) -> Result<()> {
    match file.read_exact_at(bytes, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(corrupt(Defect::Truncated { what: "undo file" }))
        }
        done => done.map_err(Error::io(place())),
    }
}

/// Reads header and keys. The file's length bounds the walk: each key takes at least a block.
fn read_contents(file: &File) -> Result<Contents> {
    let length = file.metadata().map_err(Error::io(place()))?.len();
    let mut head = [0; size_of::<UndoHeader>()];
    read_exact(file, 0, &mut head)?;
    let header = UndoHeader::parse(&head).map_err(corrupt)?.clone();
    let block_size = header.block_size.get();
    let unit = u64::from(header.fs_block_size.get());
    let most = MOST_BLOCKS.saturating_mul(unit.max(block_size.into()));
    let mut contents =
        Contents { end: header.key_offset.get(), header, entries: Vec::new(), last_keys: (0, Vec::new()) };
    let mut left = contents.header.num_keys.get();
    let mut block = vec![0; index(block_size)];
    while left > 0 {
        let keys_at = contents.end;
        read_exact(file, keys_at.saturating_mul(block_size.into()), &mut block)?;
        let keys = parse_keys(&block, left).map_err(corrupt)?;
        if keys.is_empty() {
            return Err(corrupt(Defect::Truncated { what: "block of keys" }));
        }
        left = left.saturating_sub(wide(keys.len()));
        contents.end = contents.end.saturating_add(1);
        for key in keys {
            Defect::check_range("size of a key", key.size.get().into(), 1, most).map_err(corrupt)?;
            let too_far = || Defect::Contradiction("a key names a block beyond any device".to_owned());
            let entry = Entry {
                offset: key.fsblk.get().checked_mul(unit).ok_or_else(|| corrupt(too_far()))?,
                length: key.size.get(),
                checksum: key.blk_crc.get(),
                at: contents.end.saturating_mul(block_size.into()),
            };
            if entry.at.saturating_add(entry.length.into()) > length {
                return Err(corrupt(Defect::Truncated { what: "undo file" }));
            }
            contents.end = contents.end.saturating_add(u64::from(entry.length).div_ceil(block_size.into()));
            contents.entries.push(entry);
        }
        contents.last_keys = (keys_at, keys.to_vec());
    }
    Ok(contents)
}

/// Whether the copy of the superblock in an undo file is the superblock that a filesystem has.
///
/// The copy itself is compared: its checksum is 0 for every superblock that carries a checksum of its own.
fn belongs(file: &File, header: &UndoHeader, store: &dyn Store) -> Result<bool> {
    let mut copy = [0; SIZE];
    let at = header.super_offset.get().saturating_mul(header.block_size.get().into());
    read_exact(file, at, &mut copy)?;
    let copy = superblock(&copy).map_err(corrupt)?;
    let (bytes, checksum) = superblock_of(store)?;
    Ok(copy == bytes && header.sb_crc.get() == checksum)
}

/// The superblock area of a filesystem, and its checksum as undo files carry it.
fn superblock_of(store: &dyn Store) -> Result<([u8; SIZE], u32)> {
    let mut bytes = [0; SIZE];
    store.read_at(PRIMARY_OFFSET, &mut bytes).map_err(Error::io(Place::Superblock))?;
    let checksum = data_checksum(&bytes);
    Ok((bytes, checksum))
}

/// Whether a block of keys is full.
fn is_full(keys: usize, block_size: u32) -> bool {
    keys >= keys_per_block(block_size)
}

/// The bytes of an entry's data, its checksum verified.
fn read_data(file: &File, entry: &Entry, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.resize(index64(entry.length.into()), 0);
    read_exact(file, entry.at, buffer)?;
    let computed = data_checksum(buffer);
    if computed == entry.checksum {
        return Ok(());
    }
    Err(corrupt(Defect::Checksum { stored: entry.checksum, computed }))
}
