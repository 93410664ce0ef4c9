//! Indexes of large directories: root and inner nodes of a hash tree, and their checksum.
//!
//! The root is the directory's block 0. To a reader that knows no indexes it is a leaf in which `..` takes everything
//! after `.`; the information of the root and its entries lie in that slack. An inner node looks like one unused
//! record. Entries of both begin with a pair of limit and count in the place of the first hash, so the first child
//! takes every hash below the second's.
//!
//! [`Index::parse`] checks limit and count against the block; [`Root::parse`] the information of a root besides.
//! Changes are made in place by [`IndexMut`].

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{le16, le32, put_le32, span};
use crate::disk::crc::crc32c;
use crate::disk::dirent::{EntryFormat, FileType, NewEntry, decode_rec_len};
use crate::disk::dirhash::HashVersion;
use crate::error::Defect;
use crate::ids::{InodeNumber, LogicalBlock};
use crate::num::wide;

/// Where the entries of a root begin, in bytes.
pub const ROOT_ENTRIES: usize = 32;
/// Where the entries of an inner node begin, in bytes.
pub const NODE_ENTRIES: usize = 8;
/// The bits of an entry's block number that count; the others are reserved.
pub const BLOCK_MASK: u32 = 0x0fff_ffff;
/// Levels of inner nodes below the root that any filesystem may have; `large_dir` allows one more.
pub const MAX_INDIRECT_LEVELS: u8 = 1;
/// The same with `large_dir`.
pub const MAX_INDIRECT_LEVELS_LARGE: u8 = 2;

/// Where the information of a root lies, in bytes.
const INFO: usize = 24;
const INFO_LENGTH: u8 = 8;
const ENTRY: usize = 8;
const TAIL: usize = 8;

/// What a root says of its tree.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RootInfo {
    /// 0.
    pub reserved_zero: U32,
    /// Which hash orders the tree: a [`HashVersion`], signed as stored.
    pub hash_version: u8,
    /// 8, the size of this record.
    pub info_length: u8,
    /// Levels of inner nodes between the root and the leaves.
    pub indirect_levels: u8,
    /// Unused; kept as found.
    pub unused_flags: u8,
}

/// A child: which block takes the hashes from here on.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DxEntry {
    /// The least hash of the child; in the first entry limit and count lie here. The lowest bit means that the hash
    /// goes on from the child before.
    pub hash: U32,
    /// The child's logical block, under [`BLOCK_MASK`].
    pub block: U32,
}

/// What lies in the place of the first entry's hash.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CountLimit {
    /// Entries that there are, this one included.
    pub limit: U16,
    /// Entries in use, this one included.
    pub count: U16,
}

const _: () = assert!(size_of::<RootInfo>() == 8 && offset_of!(RootInfo, indirect_levels) == 6);
const _: () = assert!(size_of::<DxEntry>() == ENTRY && offset_of!(DxEntry, block) == 4);
const _: () = assert!(size_of::<CountLimit>() == 4);
const _: () = assert!(INFO + size_of::<RootInfo>() == ROOT_ENTRIES);

const CUT: Defect = Defect::Truncated { what: "index block" };

impl DxEntry {
    /// A child that takes the hashes from `hash` on.
    pub fn new(hash: u32, block: LogicalBlock) -> Result<Self, Defect> {
        check_block(block)?;
        Ok(Self { hash: hash.into(), block: block.0.into() })
    }

    /// The child's logical block.
    pub fn child(&self) -> LogicalBlock {
        LogicalBlock(self.block.get() & BLOCK_MASK)
    }
}

fn check_block(block: LogicalBlock) -> Result<(), Defect> {
    Defect::check_range("dx_entry block", u64::from(block.0), 0, u64::from(BLOCK_MASK))
}

/// How many entries fit into a block whose entries begin at `entries_at`, the first included.
pub fn limit(block_length: usize, entries_at: usize, checksummed: bool) -> u16 {
    let tail = if checksummed { TAIL } else { 0 };
    let room = block_length.saturating_sub(entries_at).saturating_sub(tail);
    u16::try_from(room.checked_div(ENTRY).unwrap_or(0)).unwrap_or(u16::MAX)
}

/// Where the entries of an index block begin: [`ROOT_ENTRIES`] or [`NODE_ENTRIES`], told by the fake directory entries
/// at its start. `None` for a block that is neither.
pub fn entries_offset(block: &[u8]) -> Option<usize> {
    let block_size = u32::try_from(block.len()).ok()?;
    let first = decode_rec_len(le16(block, 4)?, block_size);
    if first == block.len() {
        return Some(NODE_ENTRIES);
    }
    let second = decode_rec_len(le16(block, 16)?, block_size);
    if first != 12 || second.checked_add(12)? != block.len() {
        return None;
    }
    let info = read_info(block)?;
    (info.reserved_zero.get() == 0 && info.info_length == INFO_LENGTH).then_some(ROOT_ENTRIES)
}

fn read_info(block: &[u8]) -> Option<&RootInfo> {
    RootInfo::ref_from_bytes(span(block, INFO, size_of::<RootInfo>())?).ok()
}

/// A root: its information and its entries.
#[derive(Clone, Copy, Debug)]
pub struct Root<'a> {
    /// Which hash, and how many levels.
    pub info: &'a RootInfo,
    /// The entries.
    pub index: Index<'a>,
}

impl<'a> Root<'a> {
    /// Reads a root that fills the slice. Levels above what `large_dir` allows are refused; whether the filesystem has
    /// `large_dir` is for the caller.
    pub fn parse(block: &'a [u8], checksummed: bool) -> Result<Self, Defect> {
        let info = read_info(block).ok_or(CUT)?;
        let length = u64::from(INFO_LENGTH);
        Defect::check_range("info_length", u64::from(info.info_length), length, length)?;
        Defect::check_range("reserved_zero", u64::from(info.reserved_zero.get()), 0, 0)?;
        let levels = u64::from(info.indirect_levels);
        Defect::check_range("indirect_levels", levels, 0, u64::from(MAX_INDIRECT_LEVELS_LARGE))?;
        let index = Index::parse(block, checksummed)?;
        if index.is_root() { Ok(Self { info, index }) } else { Err(not_index("root")) }
    }

    /// The hash that orders the tree, as stored.
    pub fn hash_version(&self) -> HashVersion {
        HashVersion(self.info.hash_version)
    }
}

fn not_index(what: &str) -> Defect {
    Defect::Contradiction(format!("the entries at its start are not those of an index {what}"))
}

/// The entries of a root or inner node, at least one.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    entries: &'a [DxEntry],
    limit: u16,
    offset: usize,
}

impl<'a> Index<'a> {
    /// Reads the entries of an index block that fills the slice. The limit must be the one that the block's size gives,
    /// as the kernel demands. Neither checksum nor order is looked at.
    pub fn parse(block: &'a [u8], checksummed: bool) -> Result<Self, Defect> {
        let offset = entries_offset(block).ok_or_else(|| not_index("block"))?;
        let counts = CountLimit::ref_from_bytes(span(block, offset, 4).ok_or(CUT)?).map_err(|_| CUT)?;
        let (stored, count) = (counts.limit.get(), counts.count.get());
        let wanted = u64::from(limit(block.len(), offset, checksummed));
        Defect::check_range("limit", u64::from(stored), wanted, wanted)?;
        Defect::check_range("count", u64::from(count), 1, u64::from(stored))?;
        let length = usize::from(count).saturating_mul(ENTRY);
        let entries =
            <[DxEntry]>::ref_from_bytes(span(block, offset, length).ok_or(CUT)?).map_err(|_| CUT)?;
        Ok(Self { entries, limit: stored, offset })
    }

    /// Whether the block is a root.
    pub fn is_root(&self) -> bool {
        self.offset == ROOT_ENTRIES
    }

    /// How many entries there are; at least 1.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is left.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= usize::from(self.limit)
    }

    /// The least hash of the child at a position; 0 for the first, which has none stored.
    pub fn hash(&self, position: usize) -> Option<u32> {
        let entry = self.entries.get(position)?;
        Some(if position == 0 { 0 } else { entry.hash.get() })
    }

    /// The logical block of the child at a position.
    pub fn child(&self, position: usize) -> Option<LogicalBlock> {
        self.entries.get(position).map(DxEntry::child)
    }

    /// Each child with its least hash.
    pub fn children(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u32, LogicalBlock)> + ExactSizeIterator + use<'a> {
        self.entries.iter().enumerate().map(|(position, entry)| {
            let hash = if position == 0 { 0 } else { entry.hash.get() };
            (hash, entry.child())
        })
    }

    /// The position of the child that takes a hash: the last whose least hash is not above it.
    ///
    /// Names of one hash may go on in the children after it, as long as their hash is the same but for the
    /// lowest bit, which is then set; see [`Index::continues`].
    pub fn position(&self, hash: u32) -> usize {
        let rest = self.entries.get(1..).unwrap_or_default();
        rest.partition_point(|entry| entry.hash.get() <= hash)
    }

    /// Whether the child at a position may hold further names of this hash that began in the child before.
    pub fn continues(&self, position: usize, hash: u32) -> bool {
        position > 0 && self.hash(position) == Some(hash | 1)
    }

    /// Positions whose hash is below the one before: a tree in which some names cannot be found.
    pub fn check_order(&self) -> Vec<usize> {
        let rest = self.entries.get(1..).unwrap_or_default();
        let pairs = rest.iter().zip(rest.get(1..).unwrap_or_default());
        let back = pairs.enumerate().filter(|(_, (before, after))| after.hash.get() < before.hash.get());
        back.map(|(at, _)| at.saturating_add(2)).collect()
    }
}

/// An index block to change in place.
#[derive(Debug)]
pub struct IndexMut<'a> {
    block: &'a mut [u8],
    offset: usize,
    checksummed: bool,
}

/// Who a new root belongs to, and how its tree is ordered.
#[derive(Clone, Copy, Debug)]
pub struct NewRoot {
    /// The directory.
    pub own: InodeNumber,
    /// Its parent.
    pub parent: InodeNumber,
    /// The hash, signed as it is stored.
    pub hash_version: HashVersion,
    /// The only child.
    pub child: LogicalBlock,
}

impl<'a> IndexMut<'a> {
    /// An index block that is there already, checked as in [`Index::parse`].
    pub fn parse(block: &'a mut [u8], checksummed: bool) -> Result<Self, Defect> {
        let offset = Index::parse(block, checksummed)?.offset;
        Ok(Self { block, offset, checksummed })
    }

    /// Makes the whole block the root of a tree with one leaf.
    pub fn create_root(
        block: &'a mut [u8],
        format: EntryFormat,
        checksummed: bool,
        root: NewRoot,
    ) -> Result<Self, Defect> {
        let dot = |inode, name| NewEntry { inode, file_type: FileType::DIRECTORY, name, hash: None };
        format.pack(block, [dot(root.own, b".".as_slice()), dot(root.parent, b"..")])?;
        let info = RootInfo {
            reserved_zero: 0.into(),
            hash_version: root.hash_version.0,
            info_length: INFO_LENGTH,
            indirect_levels: 0,
            unused_flags: 0,
        };
        info.write_to_prefix(block.get_mut(INFO..).ok_or(CUT)?).map_err(|_| CUT)?;
        let mut index = Self { block, offset: ROOT_ENTRIES, checksummed };
        index.fill(&[DxEntry::new(0, root.child)?])?;
        Ok(index)
    }

    /// Makes the whole block an inner node of these children, at least one. The first one's hash is not stored: the
    /// parent has it.
    pub fn create_node(
        block: &'a mut [u8],
        format: EntryFormat,
        checksummed: bool,
        children: &[DxEntry],
    ) -> Result<Self, Defect> {
        format.clear(block)?;
        let mut index = Self { block, offset: NODE_ENTRIES, checksummed };
        index.fill(children)?;
        Ok(index)
    }

    /// The entries for reading.
    pub fn view(&self) -> Result<Index<'_>, Defect> {
        Index::parse(self.block, self.checksummed)
    }

    /// The entries from a position on, as they are stored: for [`IndexMut::create_node`] of a split. The first of
    /// all has limit and count in the place of its hash.
    pub fn entries_from(&self, position: usize) -> Result<Vec<DxEntry>, Defect> {
        Ok(self.view()?.entries.get(position..).unwrap_or_default().to_vec())
    }

    /// Replaces all entries by these, at least one and at most the limit.
    pub fn fill(&mut self, children: &[DxEntry]) -> Result<(), Defect> {
        let limit = limit(self.block.len(), self.offset, self.checksummed);
        Defect::check_range("count", wide(children.len()), 1, u64::from(limit))?;
        let count = u16::try_from(children.len()).map_err(|_| CUT)?;
        let area = self.block.get_mut(self.offset..).ok_or(CUT)?;
        children.write_to_prefix(area).map_err(|_| CUT)?;
        let counts = CountLimit { limit: limit.into(), count: count.into() };
        counts.write_to_prefix(area).map_err(|_| CUT)
    }

    /// Puts a child at a position after the first, moving those from there on up by one.
    pub fn insert(&mut self, position: usize, child: &DxEntry) -> Result<(), Defect> {
        let mut entries = self.entries_from(0)?;
        Defect::check_range("entry position", wide(position), 1, wide(entries.len()))?;
        entries.insert(position, child.clone());
        self.fill(&entries)
    }

    /// Takes a child out; the last one must stay. If it is the first, the second takes all hashes below its own as
    /// well.
    pub fn remove(&mut self, position: usize) -> Result<(), Defect> {
        let mut entries = self.entries_from(0)?;
        Defect::check_range("entry position", wide(position), 0, wide(entries.len()).saturating_sub(1))?;
        entries.remove(position);
        self.fill(&entries)
    }

    /// Keeps only the first `count` children, at least one: what a split leaves behind.
    pub fn truncate(&mut self, count: usize) -> Result<(), Defect> {
        let mut entries = self.entries_from(0)?;
        Defect::check_range("count", wide(count), 1, wide(entries.len()))?;
        entries.truncate(count);
        self.fill(&entries)
    }

    /// Makes the child at a position another block, and keeps its hash.
    pub fn set_child(&mut self, position: usize, block: LogicalBlock) -> Result<(), Defect> {
        check_block(block)?;
        let last = wide(self.view()?.count()).saturating_sub(1);
        Defect::check_range("entry position", wide(position), 0, last)?;
        let at = self.offset.saturating_add(position.saturating_mul(ENTRY)).saturating_add(4);
        put_le32(self.block, at, block.0).ok_or(CUT)
    }

    /// Sets how many levels of inner nodes the tree has; only a root says so.
    pub fn set_levels(&mut self, levels: u8) -> Result<(), Defect> {
        Defect::check_range("indirect_levels", u64::from(levels), 0, u64::from(MAX_INDIRECT_LEVELS_LARGE))?;
        if self.offset != ROOT_ENTRIES {
            return Err(not_index("root"));
        }
        let at = INFO.saturating_add(offset_of!(RootInfo, indirect_levels));
        *self.block.get_mut(at).ok_or(CUT)? = levels;
        Ok(())
    }
}

/// Where an index block's tail lies (`dt_reserved`, then `dt_checksum`), in bytes.
fn tail_offset(block: &[u8]) -> Result<(usize, Index<'_>), Defect> {
    let index = Index::parse(block, true)?;
    let length = usize::from(index.limit).saturating_mul(ENTRY);
    Ok((index.offset.saturating_add(length), index))
}

/// The checksum that the contents of an index block give, from the directory's seed: the block up to the last entry
/// in use, then `dt_reserved` as stored, then zero in the place of the checksum.
pub fn checksum(block: &[u8], inode_seed: u32) -> Result<u32, Defect> {
    let (tail, index) = tail_offset(block)?;
    let used = index.offset.saturating_add(index.count().saturating_mul(ENTRY));
    let register = crc32c(inode_seed, block.get(..used).ok_or(CUT)?);
    let register = crc32c(register, span(block, tail, 4).ok_or(CUT)?);
    Ok(crc32c(register, &[0; 4]))
}

/// Compares an index block's stored checksum with its contents.
pub fn verify_checksum(block: &[u8], inode_seed: u32) -> Result<(), Defect> {
    let computed = checksum(block, inode_seed)?;
    let (tail, _) = tail_offset(block)?;
    let stored = le32(block, tail.saturating_add(4)).ok_or(CUT)?;
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}

/// Writes the checksum that an index block's contents give.
pub fn refresh_checksum(block: &mut [u8], inode_seed: u32) -> Result<(), Defect> {
    let computed = checksum(block, inode_seed)?;
    let (tail, _) = tail_offset(block)?;
    put_le32(block, tail.saturating_add(4), computed).ok_or(CUT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // A root that a 6.18 kernel wrote. See testdata/disk/README.md.
    const ROOT: &[u8] = include_bytes!("../../../testdata/disk/htree_root.bin");
    const SEED: u32 = 0x9baa_f855;
    const FORMAT: EntryFormat = EntryFormat { block_size: 1024, file_type: true, hashed: false };

    fn new_root() -> NewRoot {
        NewRoot {
            own: InodeNumber::new(13).unwrap(),
            parent: InodeNumber::ROOT,
            hash_version: HashVersion::HALF_MD4,
            child: LogicalBlock(1),
        }
    }

    #[test]
    fn a_kernel_written_root_reads_and_checks() {
        let root = Root::parse(ROOT, true).unwrap();
        assert_eq!(root.hash_version(), HashVersion::HALF_MD4);
        assert_eq!((root.info.indirect_levels, root.index.count()), (0, 0x75));
        assert_eq!(verify_checksum(ROOT, SEED), Ok(()));
        assert!(root.index.check_order().is_empty());
        assert_eq!(root.index.position(0), 0);
        assert_eq!(root.index.position(0x03bb_cef5), 0);
        assert_eq!(root.index.position(0x03bb_cef6), 1);
        assert_eq!(root.index.child(1), Some(LogicalBlock(0x3a)));
        assert_eq!(root.index.position(u32::MAX), 0x74);
        assert!(Root::parse(ROOT, false).is_err(), "the limit of a block without checksums is another");
    }

    #[test]
    fn the_root_is_rebuilt_from_its_entries() {
        let mut block = vec![0; 1024];
        let mut index = IndexMut::create_root(&mut block, FORMAT, true, new_root()).unwrap();
        for (position, (hash, child)) in Root::parse(ROOT, true).unwrap().index.children().enumerate().skip(1)
        {
            index.insert(position, &DxEntry::new(hash, child).unwrap()).unwrap();
        }
        let used = ROOT_ENTRIES + 8 * 0x75;
        assert_eq!(block[..used], ROOT[..used]);
        // dt_reserved is covered by the checksum, so it has to be what the kernel found there.
        block[used..1020].copy_from_slice(&ROOT[used..1020]);
        refresh_checksum(&mut block, SEED).unwrap();
        assert_eq!(block, ROOT);
    }

    #[test]
    fn unused_entries_are_outside_the_checksum_but_dt_reserved_is_inside() {
        let mut block = ROOT.to_vec();
        block[ROOT_ENTRIES + 8 * 0x76] ^= 1;
        assert_eq!(verify_checksum(&block, SEED), Ok(()));
        block[1016] ^= 1;
        assert!(matches!(verify_checksum(&block, SEED), Err(Defect::Checksum { .. })));
    }

    #[test]
    fn limits_with_and_without_checksum() {
        assert_eq!((limit(4096, ROOT_ENTRIES, true), limit(4096, NODE_ENTRIES, true)), (507, 510));
        assert_eq!((limit(4096, ROOT_ENTRIES, false), limit(4096, NODE_ENTRIES, false)), (508, 511));
        assert_eq!(limit(1024, ROOT_ENTRIES, true), 0x7b);
    }

    #[test]
    fn contradictions_are_refused() {
        let damaged = |at: usize, value: u8| {
            let mut block = ROOT.to_vec();
            block[at] = value;
            Root::parse(&block, true).map(|_| ()).unwrap_err()
        };
        let range = |field, value, least, most| Defect::Range { field, value, least, most };
        assert_eq!(damaged(0x1d, 9), range("info_length", 9, 8, 8));
        assert_eq!(damaged(0x1e, 3), range("indirect_levels", 3, 0, 2));
        assert_eq!(damaged(0x20, 0x7c), range("limit", 0x7c, 0x7b, 0x7b));
        assert_eq!(damaged(0x22, 0), range("count", 0, 1, 0x7b));
        assert_eq!(damaged(0x22, 0x7c), range("count", 0x7c, 1, 0x7b));
        assert!(matches!(damaged(0x10, 0), Defect::Contradiction(_)), "`..` must take the rest");
        let mut block = ROOT.to_vec();
        block[0x28..0x2c].copy_from_slice(&0xf000_0000u32.to_le_bytes());
        assert_eq!(Root::parse(&block, true).unwrap().index.check_order(), [2]);
    }

    #[test]
    fn a_full_node_splits() {
        let mut left = ROOT.to_vec();
        let mut right = vec![0; 1024];
        let mut index = IndexMut::parse(&mut left, true).unwrap();
        let upper = index.entries_from(60).unwrap();
        IndexMut::create_node(&mut right, FORMAT, true, &upper).unwrap();
        index.truncate(60).unwrap();
        index.set_levels(1).unwrap();
        let (left, right) = (Root::parse(&left, true).unwrap(), Index::parse(&right, true).unwrap());
        assert_eq!((left.index.count(), right.count(), left.info.indirect_levels), (60, 0x75 - 60, 1));
        assert_eq!((right.hash(0), right.child(0)), (Some(0), Some(upper[0].child())));
        assert!(!right.is_root());
    }

    #[test]
    fn block_numbers_keep_to_their_mask() {
        let mut block = vec![0; 1024];
        let mut index = IndexMut::create_root(&mut block, FORMAT, true, new_root()).unwrap();
        assert!(DxEntry::new(2, LogicalBlock(0x1000_0000)).is_err());
        assert!(index.set_child(0, LogicalBlock(0x1000_0000)).is_err());
        index.set_child(0, LogicalBlock(0x0fff_ffff)).unwrap();
        assert!(index.set_child(1, LogicalBlock(1)).is_err() && index.remove(0).is_err());
        assert_eq!(index.view().unwrap().child(0), Some(LogicalBlock(0x0fff_ffff)));
    }

    proptest! {
        #[test]
        fn search_agrees_with_a_scan(mut hashes in prop::collection::vec(any::<u32>(), 1..100), wanted: u32) {
            hashes.sort_unstable();
            hashes[0] = 0;
            let children: Vec<_> = (0..)
                .zip(&hashes)
                .map(|(at, hash)| DxEntry::new(*hash, LogicalBlock(at)).unwrap())
                .collect();
            let mut block = vec![0; 1024];
            let index = IndexMut::create_node(&mut block, FORMAT, false, &children).unwrap();
            let scan = hashes.iter().rposition(|hash| *hash <= wanted).unwrap();
            prop_assert_eq!(index.view().unwrap().position(wanted), scan);
        }

        #[test]
        fn no_bytes_make_it_panic(mut block in prop::collection::vec(any::<u8>(), 0..128), root: bool) {
            let length = u16::try_from(block.len()).unwrap();
            if block.len() >= 40 {
                block[4..6].copy_from_slice(&(if root { 12 } else { length }).to_le_bytes());
                block[16..18].copy_from_slice(&(length - 12).to_le_bytes());
                block[24..30].copy_from_slice(&[0, 0, 0, 0, 1, 8]);
            }
            let _ = Root::parse(&block, true);
            let _ = refresh_checksum(&mut block, 1);
            if let Ok(mut index) = IndexMut::parse(&mut block, true) {
                let _ = index.insert(1, &DxEntry::new(5, LogicalBlock(5)).unwrap());
                let _ = index.remove(0);
            }
        }
    }
}
