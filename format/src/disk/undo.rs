//! Undo files of e2fsprogs: what a tool was about to overwrite, so that `e2undo` can put it back.
//!
//! The file begins with a header, then comes a copy of the superblock, then blocks of keys, each followed by the data
//! that its keys describe, in order. A key says which block of the filesystem the data came from. All checksums are
//! CRC-32C from a register of ones.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::span_mut;
use crate::disk::crc::crc32c;
use crate::error::Defect;
use crate::num::{index, index64, wide};

/// First field of the file.
pub const MAGIC: [u8; 8] = *b"E2UNDO02";
/// First field of a block of keys.
pub const KEY_MAGIC: u32 = 0xcade_cade;
/// State of a file whose writer ended as it should.
pub const STATE_FINISHED: u32 = 1;
/// Compatible feature: `fs_offset` is valid.
pub const COMPAT_FS_OFFSET: u32 = 1;

const CHECKSUM: usize = 0x1fc;
const KEY_CHECKSUM: usize = 4;

/// The head of the file, 512 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UndoHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Keys in the whole file.
    pub num_keys: U64,
    /// Where the copy of the superblock lies, in blocks of the undo file.
    pub super_offset: U64,
    /// Where the first block of keys lies, in blocks of the undo file.
    pub key_offset: U64,
    /// Size of the undo file's blocks, in bytes.
    pub block_size: U32,
    /// Size of the blocks that keys count, in bytes.
    pub fs_block_size: U32,
    /// Checksum of the copy of the superblock.
    pub sb_crc: U32,
    /// [`STATE_FINISHED`], or 0 while being written.
    pub state: U32,
    /// Features that a reader need not know.
    pub f_compat: U32,
    /// Features that a reader must know.
    pub f_incompat: U32,
    /// Features that a writer must know.
    pub f_rocompat: U32,
    /// Zero.
    pub pad32: U32,
    /// Where the filesystem begins on its device, in bytes.
    pub fs_offset: U64,
    /// Unused; kept as found.
    pub padding: [u8; 436],
    /// CRC-32C over all before it.
    pub header_crc: U32,
}

/// The head of a block of keys.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UndoKeyBlock {
    /// [`KEY_MAGIC`].
    pub magic: U32,
    /// CRC-32C over the block with this field zero.
    pub crc: U32,
    /// Zero.
    pub reserved: U64,
}

/// A key: where data came from.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UndoKey {
    /// The block of the filesystem, in units of `fs_block_size`.
    pub fsblk: U64,
    /// CRC-32C over the data.
    pub blk_crc: U32,
    /// Length of the data, in bytes.
    pub size: U32,
}

const _: () = assert!(size_of::<UndoHeader>() == 512 && offset_of!(UndoHeader, header_crc) == CHECKSUM);
const _: () = assert!(offset_of!(UndoHeader, state) == 0x2c && offset_of!(UndoHeader, fs_offset) == 0x40);
const _: () = assert!(size_of::<UndoKeyBlock>() == 16 && offset_of!(UndoKeyBlock, crc) == KEY_CHECKSUM);
const _: () = assert!(size_of::<UndoKey>() == 16);

const CUT: Defect = Defect::Truncated { what: "undo file" };

impl UndoHeader {
    /// The header of a file, with its magic number, checksum, sizes and order of parts checked.
    pub fn parse(bytes: &[u8]) -> Result<&Self, Defect> {
        let (header, _) = Self::ref_from_prefix(bytes).map_err(|_| CUT)?;
        if header.magic != MAGIC {
            let version = String::from_utf8_lossy(&header.magic).into_owned();
            return Err(Defect::Contradiction(format!(
                "undo file begins with {version:?}, not \"E2UNDO02\""
            )));
        }
        let (stored, computed) = (header.header_crc.get(), header.checksum());
        if stored != computed {
            return Err(Defect::Checksum { stored, computed });
        }
        check_block_size("block_size", header.block_size.get())?;
        check_block_size("fs_block_size", header.fs_block_size.get())?;
        Defect::check_range("super_offset", header.super_offset.get(), 1, u64::from(u32::MAX))?;
        Defect::check_range("key_offset", header.key_offset.get(), 1, u64::from(u32::MAX))?;
        Ok(header)
    }

    /// The checksum that the fields give.
    pub fn checksum(&self) -> u32 {
        crc32c(u32::MAX, self.as_bytes().get(..CHECKSUM).unwrap_or_default())
    }

    /// Writes the checksum that the fields give.
    pub fn refresh_checksum(&mut self) {
        self.header_crc = self.checksum().into();
    }
}

/// Undo files have blocks of 1 KiB to 1 MiB, in powers of two.
fn check_block_size(field: &'static str, size: u32) -> Result<(), Defect> {
    Defect::check_range(field, u64::from(size), 1024, 1 << 20)?;
    if size.is_power_of_two() {
        return Ok(());
    }
    Err(Defect::Contradiction(format!("{field} is {size}, not a power of two")))
}

/// How many keys a block of this size holds.
pub fn keys_per_block(block_size: u32) -> usize {
    let room = index(block_size).saturating_sub(size_of::<UndoKeyBlock>());
    room.checked_div(size_of::<UndoKey>()).unwrap_or(0)
}

/// The first `count` keys of a block of keys, once its magic number and checksum are right.
///
/// `count` is what is left of the header's `num_keys`; a block with room for fewer gives those.
pub fn parse_keys(block: &[u8], count: u64) -> Result<&[UndoKey], Defect> {
    let (head, rest) = UndoKeyBlock::ref_from_prefix(block).map_err(|_| CUT)?;
    let found = head.magic.get();
    if found != KEY_MAGIC {
        return Err(Defect::Magic { found, wanted: KEY_MAGIC });
    }
    let (stored, computed) = (head.crc.get(), key_checksum(block));
    if stored != computed {
        return Err(Defect::Checksum { stored, computed });
    }
    let room = rest.len().checked_div(size_of::<UndoKey>()).unwrap_or(0);
    let count = index64(count).min(room);
    let (keys, _) = <[UndoKey]>::ref_from_prefix_with_elems(rest, count).map_err(|_| CUT)?;
    Ok(keys)
}

/// Makes a block one of these keys, with its checksum.
pub fn write_keys(block: &mut [u8], keys: &[UndoKey]) -> Result<(), Defect> {
    let room = block.len().saturating_sub(size_of::<UndoKeyBlock>()).checked_div(size_of::<UndoKey>());
    Defect::check_range("keys of a block", wide(keys.len()), 0, wide(room.unwrap_or(0)))?;
    block.fill(0);
    let (head, rest) = UndoKeyBlock::mut_from_prefix(block).map_err(|_| CUT)?;
    head.magic = KEY_MAGIC.into();
    keys.write_to_prefix(rest).map_err(|_| CUT)?;
    let computed = key_checksum(block);
    let (head, _) = UndoKeyBlock::mut_from_prefix(block).map_err(|_| CUT)?;
    head.crc = computed.into();
    Ok(())
}

/// The checksum that a block of keys gives.
fn key_checksum(block: &[u8]) -> u32 {
    let register = crc32c(u32::MAX, block.get(..KEY_CHECKSUM).unwrap_or_default());
    let register = crc32c(register, &[0; 4]);
    crc32c(register, block.get(KEY_CHECKSUM.saturating_add(4)..).unwrap_or_default())
}

/// Where `s_magic` lies in a superblock, in bytes.
const SUPER_MAGIC: usize = 0x38;

/// The superblock from its copy in the undo file: there the bits of its magic number are inverted, so that nothing
/// takes the undo file for a filesystem.
pub fn superblock(copy: &[u8]) -> Result<Vec<u8>, Defect> {
    let mut bytes = copy.to_vec();
    let magic = span_mut(&mut bytes, SUPER_MAGIC, 2).ok_or(CUT)?;
    for byte in magic {
        *byte = !*byte;
    }
    Ok(bytes)
}

/// The checksum of data that a key describes, and of the [`superblock`] whose copy the file holds.
///
/// It is 0 for a superblock with a checksum of its own, since a register that takes in its own value becomes 0.
pub fn data_checksum(data: &[u8]) -> u32 {
    crc32c(u32::MAX, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by tune2fs 1.47.0. See testdata/disk/README.md.
    const FILE: &[u8] = include_bytes!("../../../testdata/disk/undo.bin");

    #[test]
    fn a_file_of_tune2fs_reads_and_checks() {
        let header = UndoHeader::parse(FILE).unwrap();
        assert_eq!((header.num_keys.get(), header.state.get()), (2, STATE_FINISHED));
        assert_eq!((header.super_offset.get(), header.key_offset.get()), (1, 2));
        assert_eq!((header.block_size.get(), header.fs_block_size.get()), (1024, 1024));
        let superblock = superblock(&FILE[1024..2048]).unwrap();
        assert_eq!(superblock[0x38..0x3a], [0x53, 0xef]);
        assert_eq!(data_checksum(&superblock), header.sb_crc.get());
        let keys = parse_keys(&FILE[2048..3072], header.num_keys.get()).unwrap();
        let found: Vec<_> = keys.iter().map(|key| (key.fsblk.get(), key.size.get())).collect();
        assert_eq!(found, [(0x2001, 1024), (1, 1024)]);
        for (key, data) in keys.iter().zip(FILE[3072..].chunks(1024)) {
            assert_eq!(key.blk_crc.get(), data_checksum(data));
        }

        let mut rebuilt = vec![0xff; 1024];
        write_keys(&mut rebuilt, keys).unwrap();
        assert_eq!(rebuilt, FILE[2048..3072]);
        let mut header = header.clone();
        header.header_crc = 0.into();
        header.refresh_checksum();
        assert_eq!(header.as_bytes(), &FILE[..512]);
    }

    #[test]
    fn damage_is_refused() {
        let header = |at: usize, value: u8, honest: bool| {
            let mut bytes = FILE[..512].to_vec();
            bytes[at] = value;
            if honest {
                UndoHeader::mut_from_bytes(&mut bytes).unwrap().refresh_checksum();
            }
            UndoHeader::parse(&bytes).map(|_| ()).unwrap_err()
        };
        assert!(matches!(header(0, b'F', true), Defect::Contradiction(_)));
        assert!(matches!(header(100, 1, false), Defect::Checksum { .. }));
        assert!(matches!(header(0x21, 0, true), Defect::Range { field: "block_size", .. }));
        assert!(matches!(header(0x24, 1, true), Defect::Contradiction(_)));
        assert!(matches!(header(0x18, 0, true), Defect::Range { field: "key_offset", .. }));
        let mut keys = FILE[2048..3072].to_vec();
        keys[16] ^= 1;
        assert!(matches!(parse_keys(&keys, 2), Err(Defect::Checksum { .. })));
        assert!(matches!(parse_keys(&FILE[1024..2048], 2), Err(Defect::Magic { .. })));
        assert!(UndoHeader::parse(&FILE[..511]).is_err() && parse_keys(&FILE[2048..2063], 2).is_err());
    }

    #[test]
    fn counts_are_not_believed_past_the_block() {
        assert_eq!(parse_keys(&FILE[2048..3072], u64::MAX).unwrap().len(), keys_per_block(1024));
        let keys = vec![UndoKey { fsblk: 1.into(), blk_crc: 2.into(), size: 3.into() }; 64];
        assert!(write_keys(&mut [0; 1024], &keys).is_err());
        write_keys(&mut [0; 1024], &keys[..63]).unwrap();
    }
}
