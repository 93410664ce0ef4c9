//! Directory entries, leaf blocks with their checksum tail, and inline directories.
//!
//! An area is a slice that entries fill without a gap: a block, a block without its tail ([`leaf_area`]), or one of the
//! two areas of an inline directory ([`INLINE_ENTRIES`] of `i_block`, and the value of the `system.data` attribute).
//! [`EntryFormat`] knows how entries look in a directory, and reads and edits areas of any of these kinds in place.
//!
//! Every record length is checked against the area before it is followed, so a walk ends after at most one twelfth
//! of the area's bytes.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{le16, le32, put_le16, put_le32, span, span_mut};
use crate::disk::crc::crc32c;
use crate::error::Defect;
use crate::ids::InodeNumber;
use crate::num::{index, low16, wide};

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// Bytes of an entry before its name.
pub const ENTRY_HEADER: usize = 8;
/// The shortest record, in bytes: a name of 1 to 4 bytes.
pub const MIN_RECORD: usize = 12;
/// Size of a leaf's tail, in bytes.
pub const TAIL_SIZE: usize = 12;
/// Size of the hash that follows a name in an encrypted and casefolded directory, in bytes.
pub const HASH_SIZE: usize = 8;
/// Where entries lie in the `i_block` of an inline directory; before them is the parent's inode number.
pub const INLINE_ENTRIES: Range<usize> = 4..60;

/// Where a record of 65536 bytes has this stored length; 0 means the same.
const WHOLE_64K: u16 = 0xffff;
const BLOCK_64K: u32 = 65536;

/// What kind of file an entry names. Unknown values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileType(pub u8);

impl FileType {
    /// Not recorded: directories without the `filetype` feature.
    pub const UNKNOWN: Self = Self(0);
    /// A regular file.
    pub const REGULAR: Self = Self(1);
    /// A directory.
    pub const DIRECTORY: Self = Self(2);
    /// A character device.
    pub const CHARACTER_DEVICE: Self = Self(3);
    /// A block device.
    pub const BLOCK_DEVICE: Self = Self(4);
    /// A named pipe.
    pub const FIFO: Self = Self(5);
    /// A socket.
    pub const SOCKET: Self = Self(6);
    /// A symbolic link.
    pub const SYMLINK: Self = Self(7);
    /// Not a file: marks the checksum tail of a leaf.
    pub const TAIL: Self = Self(0xde);

    /// The type that an `i_mode` has; [`FileType::UNKNOWN`] if its format bits name none.
    pub const fn from_mode(mode: u16) -> Self {
        match mode >> 12 {
            0x8 => Self::REGULAR,
            0x4 => Self::DIRECTORY,
            0x2 => Self::CHARACTER_DEVICE,
            0x6 => Self::BLOCK_DEVICE,
            0x1 => Self::FIFO,
            0xc => Self::SOCKET,
            0xa => Self::SYMLINK,
            _ => Self::UNKNOWN,
        }
    }
}

/// The tail of a leaf, made to look like an unused entry to readers that do not know it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DirectoryTail {
    /// 0, where an entry has its inode.
    pub det_reserved_zero1: U32,
    /// 12.
    pub det_rec_len: U16,
    /// 0, where an entry has the length of its name.
    pub det_reserved_zero2: u8,
    /// [`FileType::TAIL`].
    pub det_reserved_ft: u8,
    /// CRC-32C over the block before the tail, from the inode's seed.
    pub det_checksum: U32,
}

const _: () =
    assert!(size_of::<DirectoryTail>() == TAIL_SIZE && offset_of!(DirectoryTail, det_checksum) == 8);

/// The hash that is stored after a name where it cannot be computed without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredHash {
    /// The major hash, by which the index is ordered.
    pub hash: u32,
    /// The minor hash.
    pub minor: u32,
}

/// An entry as it lies in an area. With an inode of 0 the record is unused and its name means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where the record begins in the area, in bytes.
    pub offset: usize,
    /// Length of the record up to the next, in bytes.
    pub rec_len: usize,
    /// The inode that is named; `None` for an unused record.
    pub inode: Option<InodeNumber>,
    /// The kind of file.
    pub file_type: FileType,
    /// The name as stored.
    pub name: &'a [u8],
    /// The hash after the name, in a directory whose entries have one.
    pub hash: Option<StoredHash>,
}

impl<'a> Entry<'a> {
    /// The same as an entry to be written; `None` if unused.
    pub fn to_new(self) -> Option<NewEntry<'a>> {
        let inode = self.inode?;
        Some(NewEntry { inode, file_type: self.file_type, name: self.name, hash: self.hash })
    }
}

/// An entry to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The inode to be named.
    pub inode: InodeNumber,
    /// The kind of file; not written in a directory without file types.
    pub file_type: FileType,
    /// The name, 1..=255 bytes.
    pub name: &'a [u8],
    /// The hash to store after the name; needed in a directory whose entries have one, except for `.` and `..`.
    pub hash: Option<StoredHash>,
}

/// A record that contradicts the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEntry {
    /// Where it begins in the area, in bytes.
    pub offset: usize,
    /// The inode number as stored, if the record reaches that far.
    pub inode: Option<InodeNumber>,
    /// Length of the record if it can be followed; without one the walk ends here.
    pub rec_len: Option<usize>,
    /// What is wrong.
    pub defect: Defect,
}

/// How entries look in one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryFormat {
    /// Size of the filesystem's blocks, in bytes: 64 KiB blocks store record lengths in their own way.
    pub block_size: u32,
    /// Whether entries have a file type; without the `filetype` feature that byte is the high half of the name's
    /// length.
    pub file_type: bool,
    /// Whether a hash follows each name: the directory is both encrypted and casefolded.
    pub hashed: bool,
}

impl EntryFormat {
    /// The least length of a record with this name, in bytes.
    pub fn needed(self, name: &[u8]) -> usize {
        let hash = if self.hashed && !is_dot(name) { HASH_SIZE } else { 0 };
        name_end(name.len()).saturating_add(hash)
    }

    /// Each record of an area, used or not, with those that contradict the format in their place.
    ///
    /// A record whose name is wrong but whose length is sound is reported and passed; the walk ends at a length that
    /// cannot be followed.
    pub fn entries(self, area: &[u8]) -> Entries<'_> {
        Entries { area, offset: 0, format: self }
    }

    /// The used entry with this name, compared byte for byte. A bad record before it is an error.
    pub fn find<'a>(self, area: &'a [u8], name: &[u8]) -> Result<Option<Entry<'a>>, Defect> {
        for entry in self.entries(area) {
            let entry = entry.map_err(|bad| bad.defect)?;
            if entry.inode.is_some() && entry.name == name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Puts an entry into the first slack that holds it: an unused record, or the rest of a used one.
    ///
    /// Returns its offset, or `None` (and nothing changed) if there is no room. Whether the name is there already is
    /// for the caller to look up.
    pub fn insert(self, area: &mut [u8], new: &NewEntry) -> Result<Option<usize>, Defect> {
        self.check_new(new)?;
        let needed = self.needed(new.name);
        let mut found = None;
        for entry in self.entries(area) {
            let entry = entry.map_err(|bad| bad.defect)?;
            let kept = if entry.inode.is_some() { self.needed(entry.name) } else { 0 };
            if entry.rec_len.saturating_sub(kept) >= needed {
                found = Some((entry.offset, entry.rec_len, kept));
                break;
            }
        }
        let Some((offset, rec_len, kept)) = found else { return Ok(None) };
        if kept > 0 {
            self.put_rec_len(area, offset, kept)?;
        }
        let offset_new = offset.saturating_add(kept);
        self.write(area, offset_new, rec_len.saturating_sub(kept), new)?;
        Ok(Some(offset_new))
    }

    /// Takes out the entry that begins at `offset`: its record joins the one before it, or becomes unused if it is the
    /// first. The bytes of the entry are wiped, as the kernel does.
    pub fn remove(self, area: &mut [u8], offset: usize) -> Result<(), Defect> {
        let (entry, previous) = self.locate(area, offset)?;
        let wipe = span_mut(area, offset, entry).ok_or(CUT)?;
        wipe.fill(0);
        match previous {
            Some((before, length)) => self.put_rec_len(area, before, length.saturating_add(entry)),
            None => self.put_rec_len(area, offset, entry),
        }
    }

    /// Makes the entry at `offset` name another inode: how a rename replaces its target and moves `..`.
    pub fn set_target(
        self,
        area: &mut [u8],
        offset: usize,
        target: (InodeNumber, FileType),
    ) -> Result<(), Defect> {
        self.locate(area, offset)?;
        put_le32(area, offset, target.0.get()).ok_or(CUT)?;
        if self.file_type {
            *area.get_mut(offset.saturating_add(7)).ok_or(CUT)? = target.1.0;
        }
        Ok(())
    }

    /// Makes the area one unused record. Areas hold a whole number of 4-byte words, 12 bytes at least.
    pub fn clear(self, area: &mut [u8]) -> Result<(), Defect> {
        area.fill(0);
        self.put_rec_len(area, 0, area.len())
    }

    /// Fills the area with these entries, packed from its start; the last takes the rest.
    ///
    /// They must fit, which `needed` tells; if they do not, the area's contents are undefined and the error says so.
    pub fn pack<'e>(
        self,
        area: &mut [u8],
        entries: impl IntoIterator<Item = NewEntry<'e>>,
    ) -> Result<(), Defect> {
        self.clear(area)?;
        let (mut at, mut last) = (0usize, None);
        for entry in entries {
            self.check_new(&entry)?;
            let length = self.needed(entry.name);
            if wide(at.saturating_add(length)) > wide(area.len()) {
                return Err(Defect::Contradiction(format!("entries do not fit into {} bytes", area.len())));
            }
            self.write(area, at, length, &entry)?;
            last = Some(at);
            at = at.saturating_add(length);
        }
        match last {
            Some(last) => self.put_rec_len(area, last, area.len().saturating_sub(last)),
            None => Ok(()),
        }
    }

    /// Writes `.` and `..` over the first block of a new directory (its area, without the tail).
    pub fn write_dots(self, area: &mut [u8], own: InodeNumber, parent: InodeNumber) -> Result<(), Defect> {
        let dot = |inode, name| NewEntry { inode, file_type: FileType::DIRECTORY, name, hash: None };
        self.pack(area, [dot(own, b"."), dot(parent, b"..")])
    }

    /// Gives an area that has grown from `old_length` bytes its new end: the last record takes the rest, and an
    /// area that was empty becomes one unused record. This is how the value of an inline directory grows.
    pub fn extend(self, area: &mut [u8], old_length: usize) -> Result<(), Defect> {
        if old_length == 0 {
            return self.clear(area);
        }
        let old = area.get(..old_length).ok_or(CUT)?;
        let mut last = 0;
        for entry in self.entries(old) {
            last = entry.map_err(|bad| bad.defect)?.offset;
        }
        let rest = area.len().saturating_sub(last);
        area.get_mut(old_length..).ok_or(CUT)?.fill(0);
        self.put_rec_len(area, last, rest)
    }

    /// Length of the record at `offset`, and the record before it.
    fn locate(self, area: &[u8], offset: usize) -> Result<(usize, Option<(usize, usize)>), Defect> {
        let mut previous = None;
        for entry in self.entries(area) {
            let entry = entry.map_err(|bad| bad.defect)?;
            if entry.offset == offset {
                return Ok((entry.rec_len, previous));
            }
            previous = Some((entry.offset, entry.rec_len));
        }
        Err(Defect::Contradiction(format!("no directory entry begins at byte {offset}")))
    }

    fn check_new(self, new: &NewEntry) -> Result<(), Defect> {
        Defect::check_range("name_len", wide(new.name.len()), 1, wide(MAX_NAME))?;
        if self.hashed && new.hash.is_none() && !is_dot(new.name) {
            return Err(Defect::Contradiction(
                "entry has no hash in a directory that stores them".to_owned(),
            ));
        }
        Ok(())
    }

    /// Writes a whole record; `rec_len` is at least what the name needs.
    fn write(self, area: &mut [u8], at: usize, rec_len: usize, new: &NewEntry) -> Result<(), Defect> {
        span_mut(area, at, rec_len).ok_or(CUT)?.fill(0);
        self.put_rec_len(area, at, rec_len)?;
        let record = span_mut(area, at, rec_len).ok_or(CUT)?;
        put_le32(record, 0, new.inode.get()).ok_or(CUT)?;
        let name_length = u8::try_from(new.name.len()).map_err(|_| CUT)?;
        let file_type = if self.file_type { new.file_type.0 } else { 0 };
        span_mut(record, 6, 2).ok_or(CUT)?.copy_from_slice(&[name_length, file_type]);
        span_mut(record, ENTRY_HEADER, new.name.len()).ok_or(CUT)?.copy_from_slice(new.name);
        if let (true, false, Some(stored)) = (self.hashed, is_dot(new.name), new.hash) {
            let after = name_end(new.name.len());
            put_le32(record, after, stored.hash).ok_or(CUT)?;
            put_le32(record, after.saturating_add(4), stored.minor).ok_or(CUT)?;
        }
        Ok(())
    }

    fn put_rec_len(self, area: &mut [u8], at: usize, length: usize) -> Result<(), Defect> {
        Defect::check_range("rec_len", wide(length), wide(MIN_RECORD), u64::from(self.block_size))?;
        let stored = encode_rec_len(length, self.block_size)?;
        put_le16(area, at.saturating_add(4), stored).ok_or(CUT)
    }
}

const CUT: Defect = Defect::Truncated { what: "directory entry" };

/// Whether a name is `.` or `..`, which never have a hash stored.
pub fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Where the name ends in its record, rounded up to a whole word.
fn name_end(name_length: usize) -> usize {
    name_length.saturating_add(ENTRY_HEADER).checked_next_multiple_of(4).unwrap_or(usize::MAX)
}

/// The length of a record from its stored form, in bytes.
///
/// With 64 KiB blocks a length needs 17 bits: the low two, which are 0 in any sound length, carry bits 16 and 17, and
/// both 0 and 0xffff stand for the whole block.
pub fn decode_rec_len(stored: u16, block_size: u32) -> usize {
    if block_size < BLOCK_64K {
        return usize::from(stored);
    }
    if stored == 0 || stored == WHOLE_64K {
        return index(block_size);
    }
    index(u32::from(stored & 0xfffc) | (u32::from(stored & 3) << 16))
}

/// The stored form of a record's length.
pub fn encode_rec_len(length: usize, block_size: u32) -> Result<u16, Defect> {
    let bad = Defect::Range { field: "rec_len", value: wide(length), least: 0, most: u64::from(block_size) };
    if !length.is_multiple_of(4) || length > index(block_size) {
        return Err(bad);
    }
    if block_size < BLOCK_64K {
        return u16::try_from(length).map_err(|_| bad);
    }
    if length == index(block_size) {
        return Ok(WHOLE_64K);
    }
    let length = u32::try_from(length).map_err(|_| bad)?;
    Ok(low16(length & 0xfffc) | low16((length >> 16) & 3))
}

/// Iterator over the records of an area; see [`EntryFormat::entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    area: &'a [u8],
    offset: usize,
    format: EntryFormat,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, BadEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.area.len() {
            return None;
        }
        let offset = self.offset;
        let inode = le32(self.area, offset).and_then(InodeNumber::new);
        let bad = |defect, rec_len| BadEntry { offset, inode, rec_len, defect };
        let rec_len = match self.record_length(offset) {
            Ok(rec_len) => rec_len,
            Err(defect) => {
                self.offset = self.area.len();
                return Some(Err(bad(defect, None)));
            }
        };
        self.offset = offset.saturating_add(rec_len);
        let record = span(self.area, offset, rec_len)?;
        Some(self.format.read(record, offset, inode).map_err(|defect| bad(defect, Some(rec_len))))
    }
}

impl Entries<'_> {
    /// The length of the record at `offset`, once it can be followed: a multiple of 4 inside the area that leaves
    /// no rest too small for another record.
    fn record_length(&self, offset: usize) -> Result<usize, Defect> {
        let rest = self.area.len().saturating_sub(offset);
        let stored = le16(self.area, offset.saturating_add(4)).ok_or(CUT)?;
        let rec_len = decode_rec_len(stored, self.format.block_size);
        Defect::check_range("rec_len", wide(rec_len), wide(MIN_RECORD), wide(rest))?;
        if !rec_len.is_multiple_of(4) {
            return Err(Defect::Contradiction(format!("rec_len is {rec_len}, not a multiple of 4")));
        }
        let left = rest.saturating_sub(rec_len);
        if left != 0 && left < MIN_RECORD {
            let text = format!("rec_len is {rec_len}, which leaves {left} bytes at the end of the block");
            return Err(Defect::Contradiction(text));
        }
        Ok(rec_len)
    }
}

impl EntryFormat {
    fn read(self, record: &[u8], offset: usize, inode: Option<InodeNumber>) -> Result<Entry<'_>, Defect> {
        let [low, high] = le16(record, 6).ok_or(CUT)?.to_le_bytes();
        let (name_length, file_type) = if self.file_type {
            (usize::from(low), FileType(high))
        } else {
            (usize::from(u16::from_le_bytes([low, high])), FileType::UNKNOWN)
        };
        let room = record.len().saturating_sub(ENTRY_HEADER).min(MAX_NAME);
        let least = u64::from(inode.is_some());
        Defect::check_range("name_len", wide(name_length), least, wide(room))?;
        let name = span(record, ENTRY_HEADER, name_length).ok_or(CUT)?;
        let hash = if self.hashed && inode.is_some() && !is_dot(name) {
            let after = name_end(name_length);
            let cut = Defect::Truncated { what: "hash after the name" };
            let word = |at| le32(record, at).ok_or_else(|| cut.clone());
            Some(StoredHash { hash: word(after)?, minor: word(after.saturating_add(4))? })
        } else {
            None
        };
        Ok(Entry { offset, rec_len: record.len(), inode, file_type, name, hash })
    }
}

/// The part of a leaf that holds entries: all but the tail where leaves have one (`metadata_csum`).
pub fn leaf_area(block: &[u8], checksummed: bool) -> &[u8] {
    let tail = if checksummed { TAIL_SIZE } else { 0 };
    block.get(..block.len().saturating_sub(tail)).unwrap_or_default()
}

/// The same as [`leaf_area`], writable.
pub fn leaf_area_mut(block: &mut [u8], checksummed: bool) -> &mut [u8] {
    let tail = if checksummed { TAIL_SIZE } else { 0 };
    let end = block.len().saturating_sub(tail);
    block.get_mut(..end).unwrap_or_default()
}

/// Where the tail of a leaf lies, in bytes; `None` if the block has none.
///
/// The bytes at that place are not proof: a block that became the root of a hash tree keeps those of its old tail.
/// The chain of record lengths must land there as well, and in an index block it does not.
pub fn tail_offset(block: &[u8]) -> Option<usize> {
    let tail = block.len().checked_sub(TAIL_SIZE)?;
    let (found, _) = DirectoryTail::ref_from_prefix(block.get(tail..)?).ok()?;
    let shape = (found.det_reserved_zero1.get(), found.det_rec_len.get(), found.det_reserved_zero2);
    if shape != (0, 12, 0) || found.det_reserved_ft != FileType::TAIL.0 {
        return None;
    }
    let block_size = u32::try_from(block.len()).ok()?;
    let mut at = 0usize;
    while at < tail {
        let length = decode_rec_len(le16(block, at.checked_add(4)?)?, block_size);
        if length < MIN_RECORD {
            return None;
        }
        at = at.checked_add(length)?;
    }
    (at == tail).then_some(tail)
}

/// Writes the tail of a new leaf; its checksum stays 0 until [`refresh_checksum`].
pub fn write_tail(block: &mut [u8]) -> Result<(), Defect> {
    let at = block.len().checked_sub(TAIL_SIZE).ok_or(NO_TAIL)?;
    let tail = DirectoryTail {
        det_reserved_zero1: 0.into(),
        det_rec_len: 12.into(),
        det_reserved_zero2: 0,
        det_reserved_ft: FileType::TAIL.0,
        det_checksum: 0.into(),
    };
    tail.write_to(block.get_mut(at..).ok_or(NO_TAIL)?).map_err(|_| NO_TAIL)
}

const NO_TAIL: Defect = Defect::Truncated { what: "checksum tail of the directory block" };

/// The checksum that the contents of a leaf give, from the directory's seed.
pub fn checksum(block: &[u8], inode_seed: u32) -> u32 {
    crc32c(inode_seed, leaf_area(block, true))
}

/// Compares a leaf's stored checksum with its contents. A block without a tail is reported as cut short.
pub fn verify_checksum(block: &[u8], inode_seed: u32) -> Result<(), Defect> {
    compare_checksum(block, tail_offset(block).ok_or(NO_TAIL)?, checksum(block, inode_seed))
}

/// Compares the checksum that is stored in a tail with what the contents give, both found before.
pub fn compare_checksum(block: &[u8], tail: usize, computed: u32) -> Result<(), Defect> {
    let stored = le32(block, tail.saturating_add(8)).ok_or(NO_TAIL)?;
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}

/// Writes the checksum that a leaf's contents give; the block must have a tail.
pub fn refresh_checksum(block: &mut [u8], inode_seed: u32) -> Result<(), Defect> {
    let at = tail_offset(block).ok_or(NO_TAIL)?;
    let computed = checksum(block, inode_seed);
    put_le32(block, at.saturating_add(8), computed).ok_or(NO_TAIL)
}

/// The parent's inode number of an inline directory, from its `i_block`.
pub fn inline_parent(i_block: &[u8]) -> Option<InodeNumber> {
    le32(i_block, 0).and_then(InodeNumber::new)
}

/// Writes the parent's inode number of an inline directory.
pub fn set_inline_parent(i_block: &mut [u8], parent: InodeNumber) -> Result<(), Defect> {
    put_le32(i_block, 0, parent.get()).ok_or(Defect::Truncated { what: "i_block" })
}

#[cfg(test)]
#[path = "dirent_tests.rs"]
mod tests;
