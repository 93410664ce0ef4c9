//! Extended attributes: entries in an inode and in a block, their hashes, and the header of a block.
//!
//! Both places hold a list of entries from the front and values from the back. [`Area`] reads either: of a block,
//! after its [`XattrHeader`], by [`Area::of_block`]; of an inode, after the magic number, by [`Area::of_inode`]. They
//! are written whole from a list of [`Attribute`]s by [`write_block`] and [`write_inode_area`], since a change moves most of the
//! bytes anyway; [`needed`] tells before whether the list fits.
//!
//! A value may lie in an inode of its own (`ea_inode`); then the entry names the inode and its hash covers the hash of the
//! value. Hashes of names with bytes above 0x7f differ between builds of old kernels that had signed and unsigned
//! characters: both are accepted, the unsigned one is written.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{le32, put_le32, span, span_mut};
use crate::disk::crc::crc32c;
use crate::error::Defect;
use crate::ids::{BlockNumber, InodeNumber};
use crate::num::{index, wide};

/// First field of an attribute block, and of the attributes in an inode.
pub const MAGIC: u32 = 0xea02_0000;
/// The most inodes that may share an attribute block.
pub const MAX_REFCOUNT: u32 = 1024;
/// The longest name after its prefix, in bytes.
pub const MAX_NAME: usize = 255;
/// The longest value, in bytes; only an inode of its own holds one this long.
pub const MAX_VALUE: u32 = 1 << 24;
/// Size of the magic number before the entries in an inode, in bytes.
pub const INODE_HEADER: usize = 4;
/// Size of the header before the entries of a block, in bytes.
pub const BLOCK_HEADER: usize = 32;

const ENTRY: usize = 16;
/// The list of entries ends with a word of 0.
const LIST_END: usize = 4;
const CHECKSUM: usize = 16;

/// The head of an attribute block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct XattrHeader {
    /// [`MAGIC`].
    pub h_magic: U32,
    /// How many inodes share the block.
    pub h_refcount: U32,
    /// Blocks used: 1.
    pub h_blocks: U32,
    /// Hash over the entries' hashes, by which equal blocks are found; 0 keeps the block from being shared.
    pub h_hash: U32,
    /// CRC-32C over the block's number and contents.
    pub h_checksum: U32,
    /// Zero.
    pub h_reserved: [U32; 3],
}

/// The fixed part of an entry; the name follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct XattrEntry {
    /// Length of the name after its prefix, in bytes.
    pub e_name_len: u8,
    /// Stands for the name's prefix: a [`NameIndex`].
    pub e_name_index: u8,
    /// Where the value begins, in bytes from the block's start or from the first entry in the inode.
    pub e_value_offs: U16,
    /// The inode that holds the value; 0 if it lies here.
    pub e_value_inum: U32,
    /// Length of the value, in bytes.
    pub e_value_size: U32,
    /// Hash of name and value; 0 for values in the inode.
    pub e_hash: U32,
}

const _: () = assert!(size_of::<XattrHeader>() == BLOCK_HEADER);
const _: () = assert!(offset_of!(XattrHeader, h_checksum) == CHECKSUM);
const _: () = assert!(size_of::<XattrEntry>() == ENTRY && offset_of!(XattrEntry, e_hash) == 12);

/// Stands for the prefix of a name. Unknown values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: Self = Self(1);
    /// `system.posix_acl_access`, with an empty name.
    pub const POSIX_ACL_ACCESS: Self = Self(2);
    /// `system.posix_acl_default`, with an empty name.
    pub const POSIX_ACL_DEFAULT: Self = Self(3);
    /// `trusted.`
    pub const TRUSTED: Self = Self(4);
    /// `security.`
    pub const SECURITY: Self = Self(6);
    /// `system.`, for inline data.
    pub const SYSTEM: Self = Self(7);
    /// `system.richacl`, with an empty name.
    pub const RICHACL: Self = Self(8);
    /// The encryption context, which has no name outside.
    pub const ENCRYPTION: Self = Self(9);
    /// `gnu.`
    pub const HURD: Self = Self(10);
}

/// Each index with its prefix, and whether the prefix is the whole name. Whole names come first: two of them begin
/// with a prefix of another.
const PREFIXES: [(NameIndex, &str, bool); 8] = [
    (NameIndex::POSIX_ACL_ACCESS, "system.posix_acl_access", true),
    (NameIndex::POSIX_ACL_DEFAULT, "system.posix_acl_default", true),
    (NameIndex::RICHACL, "system.richacl", true),
    (NameIndex::USER, "user.", false),
    (NameIndex::TRUSTED, "trusted.", false),
    (NameIndex::SECURITY, "security.", false),
    (NameIndex::SYSTEM, "system.", false),
    (NameIndex::HURD, "gnu.", false),
];

/// The name as programs see it; `None` for an index without a known prefix.
pub fn full_name(index: NameIndex, name: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix, _) = PREFIXES.iter().find(|(known, ..)| *known == index)?;
    Some([prefix.as_bytes(), name].concat())
}

/// The index and the rest of a name as programs see it; `None` if no prefix matches or nothing follows one.
pub fn split_name(full: &[u8]) -> Option<(NameIndex, &[u8])> {
    PREFIXES.iter().find_map(|(index, prefix, whole)| {
        let rest = full.strip_prefix(prefix.as_bytes())?;
        (rest.is_empty() == *whole).then_some((*index, rest))
    })
}

/// Where an entry's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Beside the entry.
    Here(&'a [u8]),
    /// In an inode of its own.
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// Length of the value, in bytes.
        size: u32,
    },
}

/// An entry as it lies in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it begins in the area, in bytes.
    pub offset: usize,
    /// Stands for the prefix.
    pub index: NameIndex,
    /// The name after the prefix.
    pub name: &'a [u8],
    /// The value, or where it is.
    pub value: Value<'a>,
    /// The hash as stored.
    pub hash: u32,
}

impl Entry<'_> {
    /// Whether the stored hash is that of name and value, in either variant. `value_hash` is that of the value's inode where it
    /// has one, and not looked at otherwise.
    pub fn hash_matches(&self, value_hash: u32) -> bool {
        let words = |register| match self.value {
            Value::Here(value) => hash_value(register, value),
            Value::Inode { .. } => hash_word(register, value_hash),
        };
        self.hash == words(hash_name(self.name)) || self.hash == words(hash_name_signed(self.name))
    }

    /// The same as an attribute to be written. The stored hash goes with a value in an inode, as it cannot be
    /// computed from here.
    pub fn to_attribute(&self) -> Attribute {
        let value = match self.value {
            Value::Here(value) => NewValue::Here(value.to_vec()),
            Value::Inode { inode, size } => NewValue::Inode { inode, size, entry_hash: self.hash },
        };
        Attribute { index: self.index, name: self.name.to_vec(), value }
    }
}

/// An entry that contradicts the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEntry {
    /// Where it begins in the area, in bytes.
    pub offset: usize,
    /// What is wrong.
    pub defect: Defect,
}

/// Entries and values of an inode or a block.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    /// What value offsets count from.
    bytes: &'a [u8],
    first: usize,
}

impl<'a> Area<'a> {
    /// The attributes of a block, whose header is checked.
    pub fn of_block(block: &'a [u8]) -> Result<Self, Defect> {
        let header = header(block)?;
        check_magic(header.h_magic.get())?;
        Defect::check_range("h_blocks", u64::from(header.h_blocks.get()), 1, 1)?;
        Defect::check_range("h_refcount", u64::from(header.h_refcount.get()), 1, u64::from(MAX_REFCOUNT))?;
        Ok(Self { bytes: block, first: BLOCK_HEADER })
    }

    /// The attributes of an inode: its bytes after the extra fields. `None` if it has no attributes there.
    pub fn of_inode(rest: &'a [u8]) -> Option<Self> {
        (le32(rest, 0)? == MAGIC).then_some(())?;
        Some(Self { bytes: rest.get(INODE_HEADER..)?, first: 0 })
    }

    /// Each entry; one that contradicts the format comes as an error in its place, and the walk goes on while the
    /// list can be followed.
    pub fn entries(&self) -> Entries<'a> {
        Entries { bytes: self.bytes, offset: Some(self.first), list_end: self.list_end() }
    }

    /// All entries, or the first thing wrong with one.
    pub fn checked(&self) -> Result<Vec<Entry<'a>>, Defect> {
        self.entries().collect::<Result<_, _>>().map_err(|bad| bad.defect)
    }

    /// The entry of a name. An entry before it that contradicts the format is an error.
    pub fn find(&self, index: NameIndex, name: &[u8]) -> Result<Option<Entry<'a>>, Defect> {
        for entry in self.entries() {
            let entry = entry.map_err(|bad| bad.defect)?;
            if entry.index == index && entry.name == name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Where the list's end mark ends, or the area's end if there is none: values lie after it.
    fn list_end(&self) -> usize {
        let mut at = self.first;
        // Each step goes on by 16 bytes or more, so the area's length bounds the walk.
        while let Some(word) = le32(self.bytes, at) {
            if word == 0 {
                return at.saturating_add(LIST_END);
            }
            let [name_length, ..] = word.to_le_bytes();
            at = at.saturating_add(entry_length(usize::from(name_length)));
        }
        self.bytes.len()
    }

    /// Entries whose values lie over another's, and entries out of order where `sorted` (in a block), by offset.
    pub fn check_layout(&self, sorted: bool) -> Vec<BadEntry> {
        let entries: Vec<_> = self.entries().filter_map(Result::ok).collect();
        let mut found = Vec::new();
        let mut spans: Vec<_> = entries.iter().filter_map(|entry| self.value_span(entry)).collect();
        spans.sort_unstable();
        let mut taken = 0;
        for (start, end, offset) in spans {
            if start < taken {
                let defect = Defect::Contradiction(format!("value at byte {start} lies over another"));
                found.push(BadEntry { offset, defect });
            }
            taken = taken.max(end);
        }
        for (before, after) in entries.iter().zip(entries.get(1..).unwrap_or_default()) {
            if sorted && sort_key(before.index, before.name) >= sort_key(after.index, after.name) {
                let defect = Defect::Contradiction("attribute is out of order or there twice".to_owned());
                found.push(BadEntry { offset: after.offset, defect });
            }
        }
        found
    }

    /// Start and end of a value that lies here, padding included, and its entry's offset.
    fn value_span(&self, entry: &Entry) -> Option<(usize, usize, usize)> {
        let Value::Here(value) = entry.value else { return None };
        let (head, _) = XattrEntry::ref_from_prefix(self.bytes.get(entry.offset..)?).ok()?;
        let start = usize::from(head.e_value_offs.get());
        (!value.is_empty()).then(|| (start, start.saturating_add(padded(value.len())), entry.offset))
    }
}

fn check_magic(found: u32) -> Result<(), Defect> {
    if found == MAGIC { Ok(()) } else { Err(Defect::Magic { found, wanted: MAGIC }) }
}

/// The order of entries in a block.
fn sort_key(index: NameIndex, name: &[u8]) -> (NameIndex, usize, &[u8]) {
    (index, name.len(), name)
}

/// The header of a block, unchecked.
pub fn header(block: &[u8]) -> Result<&XattrHeader, Defect> {
    XattrHeader::ref_from_prefix(block).map(|(header, _)| header).map_err(|_| CUT)
}

/// The header of a block, to change the reference count in place.
pub fn header_mut(block: &mut [u8]) -> Result<&mut XattrHeader, Defect> {
    XattrHeader::mut_from_prefix(block).map(|(header, _)| header).map_err(|_| CUT)
}

const CUT: Defect = Defect::Truncated { what: "list of extended attributes" };

/// Iterator over the entries of an area; see [`Area::entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    /// `None` once the walk is over.
    offset: Option<usize>,
    list_end: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, BadEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset.take()?;
        let cut = || BadEntry { offset, defect: CUT };
        match le32(self.bytes, offset) {
            Some(0) => return None,
            None => return Some(Err(cut())),
            Some(_) => {}
        }
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let Ok((head, rest)) = XattrEntry::ref_from_prefix(rest) else { return Some(Err(cut())) };
        let Some(name) = rest.get(..usize::from(head.e_name_len)) else { return Some(Err(cut())) };
        self.offset = offset.checked_add(entry_length(name.len()));
        Some(self.read(offset, head, name).map_err(|defect| BadEntry { offset, defect }))
    }
}

impl<'a> Entries<'a> {
    fn read(&self, offset: usize, head: &XattrEntry, name: &'a [u8]) -> Result<Entry<'a>, Defect> {
        if name.contains(&0) {
            return Err(Defect::Contradiction("attribute name holds a zero byte".to_owned()));
        }
        let size = head.e_value_size.get();
        let value = if let Some(inode) = InodeNumber::new(head.e_value_inum.get()) {
            Defect::check_range("e_value_size", u64::from(size), 0, u64::from(MAX_VALUE))?;
            Value::Inode { inode, size }
        } else if size == 0 {
            Value::Here(&[])
        } else {
            let start = usize::from(head.e_value_offs.get());
            let (least, most) = (wide(self.list_end), wide(self.bytes.len()));
            Defect::check_range("e_value_offs", wide(start), least, most)?;
            let room = most.saturating_sub(wide(start));
            Defect::check_range("e_value_size", u64::from(size), 0, room)?;
            Value::Here(span(self.bytes, start, index(size)).ok_or(CUT)?)
        };
        let index = NameIndex(head.e_name_index);
        Ok(Entry { offset, index, name, value, hash: head.e_hash.get() })
    }
}

fn padded(length: usize) -> usize {
    length.checked_next_multiple_of(4).unwrap_or(usize::MAX)
}

fn entry_length(name_length: usize) -> usize {
    padded(name_length.saturating_add(ENTRY))
}

/// Where the value of an attribute to be written is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewValue {
    /// Beside the entry.
    Here(Vec<u8>),
    /// In an inode of its own.
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// Length of the value, in bytes.
        size: u32,
        /// The entry's hash: [`hash_with_inode`], or as it was stored.
        entry_hash: u32,
    },
}

/// An attribute to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Stands for the prefix.
    pub index: NameIndex,
    /// The name after the prefix, at most 255 bytes.
    pub name: Vec<u8>,
    /// The value, or where it is.
    pub value: NewValue,
}

impl Attribute {
    /// What the attribute takes of an area, entry and value together, in bytes.
    pub fn needed(&self) -> usize {
        let value = match &self.value {
            NewValue::Here(value) => padded(value.len()),
            NewValue::Inode { .. } => 0,
        };
        entry_length(self.name.len()).saturating_add(value)
    }
}

/// What these attributes take after the header of a block or the magic number of an inode, in bytes: they fit where
/// that much is left, [`BLOCK_HEADER`] or [`INODE_HEADER`] taken off. Nothing takes nothing.
pub fn needed(attributes: &[Attribute]) -> usize {
    if attributes.is_empty() {
        return 0;
    }
    attributes.iter().fold(LIST_END, |sum, attribute| sum.saturating_add(attribute.needed()))
}

/// Writes a whole attribute block, sorted as the kernel needs it, with hashes; the checksum stays 0 until
/// [`refresh_checksum`].
pub fn write_block(block: &mut [u8], attributes: &[Attribute], refcount: u32) -> Result<(), Defect> {
    Defect::check_range("h_refcount", u64::from(refcount), 1, u64::from(MAX_REFCOUNT))?;
    let mut sorted: Vec<&Attribute> = attributes.iter().collect();
    sorted.sort_by_key(|attribute| sort_key(attribute.index, &attribute.name));
    check_fit(&sorted, block.len().saturating_sub(BLOCK_HEADER))?;
    block.fill(0);
    let hashes = write_entries(block, BLOCK_HEADER, &sorted, true)?;
    let header = header_mut(block)?;
    header.h_magic = MAGIC.into();
    header.h_refcount = refcount.into();
    header.h_blocks = 1.into();
    header.h_hash = block_hash(hashes).into();
    Ok(())
}

/// Writes all attributes of an inode, in the order given, over its bytes after the extra fields. Without attributes the
/// bytes become zero.
pub fn write_inode_area(rest: &mut [u8], attributes: &[Attribute]) -> Result<(), Defect> {
    let all: Vec<&Attribute> = attributes.iter().collect();
    check_fit(&all, rest.len().saturating_sub(INODE_HEADER))?;
    rest.fill(0);
    if attributes.is_empty() {
        return Ok(());
    }
    put_le32(rest, 0, MAGIC).ok_or(CUT)?;
    write_entries(rest.get_mut(INODE_HEADER..).ok_or(CUT)?, 0, &all, false)?;
    Ok(())
}

fn check_fit(attributes: &[&Attribute], room: usize) -> Result<(), Defect> {
    let mut total = if attributes.is_empty() { 0 } else { LIST_END };
    for attribute in attributes {
        Defect::check_range("e_name_len", wide(attribute.name.len()), 0, wide(MAX_NAME))?;
        total = total.saturating_add(attribute.needed());
    }
    Defect::check_range("size of the attributes", wide(total), 0, wide(room))
}

/// Writes entries from `first` up and values from the end down; returns each entry's hash.
fn write_entries(
    bytes: &mut [u8],
    first: usize,
    attributes: &[&Attribute],
    hashed: bool,
) -> Result<Vec<u32>, Defect> {
    let (mut at, mut values) = (first, bytes.len());
    let mut hashes = Vec::new();
    for attribute in attributes {
        let mut head = XattrEntry {
            e_name_len: u8::try_from(attribute.name.len()).map_err(|_| CUT)?,
            e_name_index: attribute.index.0,
            e_value_offs: 0.into(),
            e_value_inum: 0.into(),
            e_value_size: 0.into(),
            e_hash: 0.into(),
        };
        match &attribute.value {
            NewValue::Here(value) => {
                if !value.is_empty() {
                    values = values.checked_sub(padded(value.len())).ok_or(CUT)?;
                    head.e_value_offs = u16::try_from(values).map_err(|_| CUT)?.into();
                    span_mut(bytes, values, value.len()).ok_or(CUT)?.copy_from_slice(value);
                }
                head.e_value_size = u32::try_from(value.len()).map_err(|_| CUT)?.into();
                head.e_hash = if hashed { hash(&attribute.name, value) } else { 0 }.into();
            }
            NewValue::Inode { inode, size, entry_hash } => {
                head.e_value_inum = inode.get().into();
                head.e_value_size = (*size).into();
                head.e_hash = (*entry_hash).into();
            }
        }
        head.write_to_prefix(bytes.get_mut(at..).ok_or(CUT)?).map_err(|_| CUT)?;
        let name_at = at.saturating_add(ENTRY);
        span_mut(bytes, name_at, attribute.name.len()).ok_or(CUT)?.copy_from_slice(&attribute.name);
        at = at.saturating_add(entry_length(attribute.name.len()));
        hashes.push(head.e_hash.get());
    }
    Ok(hashes)
}

/// The hash of an entry whose value lies beside it.
pub fn hash(name: &[u8], value: &[u8]) -> u32 {
    hash_value(hash_name(name), value)
}

/// The hash of an entry whose value lies in an inode that has this hash of the value (kept in its `i_atime`).
pub fn hash_with_inode(name: &[u8], value_hash: u32) -> u32 {
    hash_word(hash_name(name), value_hash)
}

/// The hash of a value in an inode of its own: CRC-32C from the filesystem's seed.
pub fn inode_value_hash(fs_seed: u32, value: &[u8]) -> u32 {
    crc32c(fs_seed, value)
}

fn hash_name(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, byte| hash.rotate_left(5) ^ u32::from(*byte))
}

/// The variant of kernels whose characters were signed.
fn hash_name_signed(name: &[u8]) -> u32 {
    let widen = |byte: &u8| i32::from(byte.cast_signed()).cast_unsigned();
    name.iter().fold(0, |hash: u32, byte| hash.rotate_left(5) ^ widen(byte))
}

fn hash_value(register: u32, value: &[u8]) -> u32 {
    let (words, rest) = value.as_chunks::<4>();
    let hash = words.iter().fold(register, |hash, word| hash_word(hash, u32::from_le_bytes(*word)));
    if rest.is_empty() {
        return hash;
    }
    let mut last = [0; 4];
    for (target, byte) in last.iter_mut().zip(rest) {
        *target = *byte;
    }
    hash_word(hash, u32::from_le_bytes(last))
}

fn hash_word(register: u32, word: u32) -> u32 {
    register.rotate_left(16) ^ word
}

/// The hash of a block from those of its entries; 0 if one of them is 0, which keeps the block from being shared.
pub fn block_hash(hashes: impl IntoIterator<Item = u32>) -> u32 {
    hashes.into_iter().try_fold(0, |sum, hash| (hash != 0).then(|| hash_word(sum, hash))).unwrap_or(0)
}

/// The checksum that a block's number and contents give, from the filesystem's seed.
pub fn checksum(block: &[u8], fs_seed: u32, at: BlockNumber) -> u32 {
    let register = crc32c(fs_seed, &at.0.to_le_bytes());
    let register = crc32c(register, block.get(..CHECKSUM).unwrap_or_default());
    let register = crc32c(register, &[0; 4]);
    crc32c(register, block.get(CHECKSUM.saturating_add(4)..).unwrap_or_default())
}

/// Compares a block's stored checksum with its contents.
pub fn verify_checksum(block: &[u8], fs_seed: u32, at: BlockNumber) -> Result<(), Defect> {
    let stored = header(block)?.h_checksum.get();
    let computed = checksum(block, fs_seed, at);
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}

/// Writes the checksum that a block's contents give.
pub fn refresh_checksum(block: &mut [u8], fs_seed: u32, at: BlockNumber) -> Result<(), Defect> {
    let computed = checksum(block, fs_seed, at);
    header_mut(block)?.h_checksum = computed.into();
    Ok(())
}

#[cfg(test)]
#[path = "xattr_tests.rs"]
mod tests;
