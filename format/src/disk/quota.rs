//! Quota files: headers, tree blocks, leaves, and records of every revision.
//!
//! A file of version 2 is made of 1024-byte blocks whatever the filesystem's block size. Block 0 has the two headers, block 1
//! is the root of a tree of four levels, each choosing a child by one byte of the id, highest first. A leaf
//! block holds records in slots; a slot of zeroes is free. Revision 0 has 32-bit limits, revision 1 (which ext4 makes)
//! 64-bit ones. Version 1 is an array of records without any header, indexed by the id.
//!
//! Limits of space count units of 1024 bytes, the space in use counts bytes.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{all_zero, le32, put_le32, span, span_mut};
use crate::error::Defect;
use crate::num::wide;

/// Size of a block of the file, in bytes.
pub const BLOCK_SIZE: usize = 1024;
/// The block with the root of the tree.
pub const TREE_ROOT: u32 = 1;
/// Levels of the tree above the leaves.
pub const TREE_DEPTH: u8 = 4;
/// Grace periods of a new file, in seconds: a week.
pub const DEFAULT_GRACE: u32 = 604_800;

const CUT: Defect = Defect::Truncated { what: "quota file block" };

/// What a quota counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// By owner.
    User,
    /// By group.
    Group,
    /// By project.
    Project,
}

impl QuotaKind {
    /// First field of the kind's file.
    pub const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

/// The revision of a version 2 file: how large its records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revision {
    /// 32-bit limits.
    R0,
    /// 64-bit limits.
    R1,
}

impl Revision {
    /// Size of a record, in bytes.
    pub const fn record_size(self) -> usize {
        match self {
            Self::R0 => size_of::<V2R0Record>(),
            Self::R1 => size_of::<V2R1Record>(),
        }
    }

    /// Slots of a leaf.
    pub const fn slots(self) -> u16 {
        match self {
            Self::R0 => 21,
            Self::R1 => 14,
        }
    }
}

/// Block 0 of a version 2 file: `v2_disk_dqheader` and `v2_disk_dqinfo`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct QuotaHeader {
    /// [`QuotaKind::magic`].
    pub dqh_magic: U32,
    /// The revision, 0 or 1.
    pub dqh_version: U32,
    /// How long space may stay above its soft limit, in seconds.
    pub dqi_bgrace: U32,
    /// How long inodes may stay above their soft limit, in seconds.
    pub dqi_igrace: U32,
    /// Flags; none are known here.
    pub dqi_flags: U32,
    /// Blocks of the file.
    pub dqi_blocks: U32,
    /// First block of the list of free blocks; 0 for none.
    pub dqi_free_blk: U32,
    /// First leaf of the list of leaves with a free slot; 0 for none.
    pub dqi_free_entry: U32,
}

/// The head of a leaf block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LeafHeader {
    /// The next leaf with a free slot, or the next free block; 0 for none.
    pub dqdh_next_free: U32,
    /// The one before in that list; 0 for none.
    pub dqdh_prev_free: U32,
    /// Slots in use.
    pub dqdh_entries: U16,
    /// Zero.
    pub dqdh_pad1: U16,
    /// Zero.
    pub dqdh_pad2: U32,
}

/// A record of revision 0.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct V2R0Record {
    /// Whose.
    pub dqb_id: U32,
    /// Most inodes.
    pub dqb_ihardlimit: U32,
    /// Most inodes for longer than the grace period.
    pub dqb_isoftlimit: U32,
    /// Inodes in use.
    pub dqb_curinodes: U32,
    /// Most space, in units of 1024 bytes.
    pub dqb_bhardlimit: U32,
    /// Most space for longer than the grace period, in units of 1024 bytes.
    pub dqb_bsoftlimit: U32,
    /// Space in use, in bytes.
    pub dqb_curspace: U64,
    /// When the grace period of space ends; 0 while below the limit.
    pub dqb_btime: U64,
    /// When the grace period of inodes ends; 0 while below the limit.
    pub dqb_itime: U64,
}

/// A record of revision 1; fields as in [`V2R0Record`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are those of V2R0Record, wider")]
pub struct V2R1Record {
    pub dqb_id: U32,
    pub dqb_pad: U32,
    pub dqb_ihardlimit: U64,
    pub dqb_isoftlimit: U64,
    pub dqb_curinodes: U64,
    pub dqb_bhardlimit: U64,
    pub dqb_bsoftlimit: U64,
    pub dqb_curspace: U64,
    pub dqb_btime: U64,
    pub dqb_itime: U64,
}

/// A record of a version 1 file as a 64-bit little-endian machine wrote it. The file is an array of them, and the id is the place.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct V1Record {
    /// Most space, in units of 1024 bytes.
    pub dqb_bhardlimit: U32,
    /// Most space for longer than the grace period, in units of 1024 bytes.
    pub dqb_bsoftlimit: U32,
    /// Space in use, in units of 1024 bytes.
    pub dqb_curblocks: U32,
    /// Most inodes.
    pub dqb_ihardlimit: U32,
    /// Most inodes for longer than the grace period.
    pub dqb_isoftlimit: U32,
    /// Inodes in use.
    pub dqb_curinodes: U32,
    /// When the grace period of space ends; in the record of id 0, its length in seconds.
    pub dqb_btime: U64,
    /// When the grace period of inodes ends; in the record of id 0, its length in seconds.
    pub dqb_itime: U64,
}

const _: () = assert!(size_of::<QuotaHeader>() == 32 && offset_of!(QuotaHeader, dqi_blocks) == 20);
const _: () = assert!(size_of::<LeafHeader>() == 16);
const _: () = assert!(size_of::<V2R0Record>() == 48 && offset_of!(V2R0Record, dqb_curspace) == 24);
const _: () = assert!(size_of::<V2R1Record>() == 72 && offset_of!(V2R1Record, dqb_curspace) == 48);
const _: () = assert!(size_of::<V1Record>() == 40);
const _: () = assert!(size_of::<LeafHeader>() + 21 * size_of::<V2R0Record>() == BLOCK_SIZE);
const _: () = assert!(size_of::<LeafHeader>() + 14 * size_of::<V2R1Record>() == BLOCK_SIZE);

impl QuotaHeader {
    /// The headers of a file of this kind, and its revision. What the headers say of blocks is checked against the
    /// length of the file in blocks.
    pub fn parse(block: &[u8], kind: QuotaKind, file_blocks: u32) -> Result<(&Self, Revision), Defect> {
        let (header, _) = Self::ref_from_prefix(block).map_err(|_| CUT)?;
        let (found, wanted) = (header.dqh_magic.get(), kind.magic());
        if found != wanted {
            return Err(Defect::Magic { found, wanted });
        }
        let version = header.dqh_version.get();
        Defect::check_range("dqh_version", u64::from(version), 0, 1)?;
        let blocks = header.dqi_blocks.get();
        Defect::check_range("dqi_blocks", u64::from(blocks), 2, u64::from(file_blocks))?;
        check_block("dqi_free_blk", header.dqi_free_blk.get(), blocks)?;
        check_block("dqi_free_entry", header.dqi_free_entry.get(), blocks)?;
        Ok((header, if version == 0 { Revision::R0 } else { Revision::R1 }))
    }

    /// The headers of a new file: revision 1, a week of grace, the headers and an empty root.
    pub fn new(kind: QuotaKind) -> Self {
        Self {
            dqh_magic: kind.magic().into(),
            dqh_version: 1.into(),
            dqi_bgrace: DEFAULT_GRACE.into(),
            dqi_igrace: DEFAULT_GRACE.into(),
            dqi_flags: 0.into(),
            dqi_blocks: 2.into(),
            dqi_free_blk: 0.into(),
            dqi_free_entry: 0.into(),
        }
    }
}

/// Checks a reference to a block of the file: 0 for none, else behind the root and inside the file.
pub fn check_block(field: &'static str, block: u32, file_blocks: u32) -> Result<(), Defect> {
    if block == 0 {
        return Ok(());
    }
    let least = u64::from(TREE_ROOT).saturating_add(1);
    Defect::check_range(field, u64::from(block), least, u64::from(file_blocks).saturating_sub(1))
}

/// Which child of a tree block at a level (0 for the root) leads to an id.
pub fn child_slot(id: u32, level: u8) -> Result<usize, Defect> {
    let most = u64::from(TREE_DEPTH).saturating_sub(1);
    Defect::check_range("quota tree level", u64::from(level), 0, most)?;
    Ok(id.to_be_bytes().get(usize::from(level)).copied().map_or(0, usize::from))
}

/// The block that a child of a tree block lies in; 0 for none. [`check_block`] tells whether it can be.
pub fn child(block: &[u8], slot: usize) -> Result<u32, Defect> {
    le32(block, slot.saturating_mul(4)).ok_or(CUT)
}

/// Sets a child of a tree block; 0 takes it away.
pub fn set_child(block: &mut [u8], slot: usize, child: u32) -> Result<(), Defect> {
    put_le32(block, slot.saturating_mul(4), child).ok_or(CUT)
}

/// Each child of a tree block that is there: its slot (a byte of the id) and its block.
pub fn children(block: &[u8]) -> impl Iterator<Item = (u8, u32)> + use<'_> {
    let (words, _) = block.as_chunks::<4>();
    (0..=u8::MAX)
        .zip(words)
        .map(|(slot, word)| (slot, u32::from_le_bytes(*word)))
        .filter(|(_, child)| *child != 0)
}

/// Limits and use of one id, whatever the revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaRecord {
    /// Whose.
    pub id: u32,
    /// Most inodes; 0 for no limit.
    pub inode_hard: u64,
    /// Most inodes for longer than the grace period; 0 for no limit.
    pub inode_soft: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Most space, in units of 1024 bytes; 0 for no limit.
    pub space_hard: u64,
    /// Most space for longer than the grace period, in units of 1024 bytes; 0 for no limit.
    pub space_soft: u64,
    /// Space in use, in bytes.
    pub space: u64,
    /// When the grace period of space ends; 0 while below the limit.
    pub space_time: u64,
    /// When the grace period of inodes ends; 0 while below the limit.
    pub inode_time: u64,
}

impl QuotaRecord {
    /// A record for id 0 with nothing in it would look like a free slot; it is marked by an inode time of 1.
    const ZERO_MARK: Self = Self {
        id: 0,
        inode_hard: 0,
        inode_soft: 0,
        inodes: 0,
        space_hard: 0,
        space_soft: 0,
        space: 0,
        space_time: 0,
        inode_time: 1,
    };

    fn decode(bytes: &[u8], revision: Revision) -> Result<Self, Defect> {
        let record = match revision {
            Revision::R0 => V2R0Record::ref_from_bytes(bytes).map_err(|_| CUT)?.into(),
            Revision::R1 => V2R1Record::ref_from_bytes(bytes).map_err(|_| CUT)?.into(),
        };
        Ok(if record == Self::ZERO_MARK { Self::default() } else { record })
    }

    fn encode(self, revision: Revision) -> Result<Vec<u8>, Defect> {
        let stored = if self == Self::default() { Self::ZERO_MARK } else { self };
        Ok(match revision {
            Revision::R0 => V2R0Record::try_from(stored)?.as_bytes().to_vec(),
            Revision::R1 => V2R1Record::from(stored).as_bytes().to_vec(),
        })
    }
}

impl From<&V2R0Record> for QuotaRecord {
    fn from(stored: &V2R0Record) -> Self {
        Self {
            id: stored.dqb_id.get(),
            inode_hard: stored.dqb_ihardlimit.get().into(),
            inode_soft: stored.dqb_isoftlimit.get().into(),
            inodes: stored.dqb_curinodes.get().into(),
            space_hard: stored.dqb_bhardlimit.get().into(),
            space_soft: stored.dqb_bsoftlimit.get().into(),
            space: stored.dqb_curspace.get(),
            space_time: stored.dqb_btime.get(),
            inode_time: stored.dqb_itime.get(),
        }
    }
}

impl From<&V2R1Record> for QuotaRecord {
    fn from(stored: &V2R1Record) -> Self {
        Self {
            id: stored.dqb_id.get(),
            inode_hard: stored.dqb_ihardlimit.get(),
            inode_soft: stored.dqb_isoftlimit.get(),
            inodes: stored.dqb_curinodes.get(),
            space_hard: stored.dqb_bhardlimit.get(),
            space_soft: stored.dqb_bsoftlimit.get(),
            space: stored.dqb_curspace.get(),
            space_time: stored.dqb_btime.get(),
            inode_time: stored.dqb_itime.get(),
        }
    }
}

impl From<QuotaRecord> for V2R1Record {
    fn from(record: QuotaRecord) -> Self {
        Self {
            dqb_id: record.id.into(),
            dqb_pad: 0.into(),
            dqb_ihardlimit: record.inode_hard.into(),
            dqb_isoftlimit: record.inode_soft.into(),
            dqb_curinodes: record.inodes.into(),
            dqb_bhardlimit: record.space_hard.into(),
            dqb_bsoftlimit: record.space_soft.into(),
            dqb_curspace: record.space.into(),
            dqb_btime: record.space_time.into(),
            dqb_itime: record.inode_time.into(),
        }
    }
}

impl TryFrom<QuotaRecord> for V2R0Record {
    type Error = Defect;

    fn try_from(record: QuotaRecord) -> Result<Self, Defect> {
        Ok(Self {
            dqb_id: record.id.into(),
            dqb_ihardlimit: narrow("dqb_ihardlimit", record.inode_hard)?,
            dqb_isoftlimit: narrow("dqb_isoftlimit", record.inode_soft)?,
            dqb_curinodes: narrow("dqb_curinodes", record.inodes)?,
            dqb_bhardlimit: narrow("dqb_bhardlimit", record.space_hard)?,
            dqb_bsoftlimit: narrow("dqb_bsoftlimit", record.space_soft)?,
            dqb_curspace: record.space.into(),
            dqb_btime: record.space_time.into(),
            dqb_itime: record.inode_time.into(),
        })
    }
}

fn narrow(field: &'static str, value: u64) -> Result<U32, Defect> {
    let most = u64::from(u32::MAX);
    u32::try_from(value).map(U32::new).map_err(|_| Defect::Range { field, value, least: 0, most })
}

/// The head of a leaf block, with its count checked.
pub fn leaf_header(block: &[u8], revision: Revision) -> Result<&LeafHeader, Defect> {
    let (header, _) = LeafHeader::ref_from_prefix(block).map_err(|_| CUT)?;
    let most = u64::from(revision.slots());
    Defect::check_range("dqdh_entries", u64::from(header.dqdh_entries.get()), 0, most)?;
    Ok(header)
}

/// The same, writable: for the list of leaves with a free slot.
pub fn leaf_header_mut(block: &mut [u8]) -> Result<&mut LeafHeader, Defect> {
    LeafHeader::mut_from_prefix(block).map(|(header, _)| header).map_err(|_| CUT)
}

fn slot_offset(slot: u16, revision: Revision) -> Result<usize, Defect> {
    let last = u64::from(revision.slots()).saturating_sub(1);
    Defect::check_range("quota slot", u64::from(slot), 0, last)?;
    let before = usize::from(slot).saturating_mul(revision.record_size());
    Ok(size_of::<LeafHeader>().saturating_add(before))
}

/// The record in a slot of a leaf; `None` if it is free.
pub fn record(block: &[u8], slot: u16, revision: Revision) -> Result<Option<QuotaRecord>, Defect> {
    let bytes = span(block, slot_offset(slot, revision)?, revision.record_size()).ok_or(CUT)?;
    if all_zero(bytes) { Ok(None) } else { QuotaRecord::decode(bytes, revision).map(Some) }
}

/// All records of a leaf, each with its slot.
///
/// The count in the leaf's head must be theirs; where it is not, that is an error, and fsck reads slot by slot.
pub fn records(block: &[u8], revision: Revision) -> Result<Vec<(u16, QuotaRecord)>, Defect> {
    let stored = leaf_header(block, revision)?.dqdh_entries.get();
    let mut found = Vec::new();
    for slot in 0..revision.slots() {
        if let Some(record) = record(block, slot, revision)? {
            found.push((slot, record));
        }
    }
    Defect::check_range("dqdh_entries", u64::from(stored), wide(found.len()), wide(found.len()))?;
    Ok(found)
}

/// Writes a slot of a leaf, or frees it, and keeps the count of slots in use.
pub fn set_record(
    block: &mut [u8],
    slot: u16,
    revision: Revision,
    new: Option<QuotaRecord>,
) -> Result<(), Defect> {
    let was = record(block, slot, revision)?.is_some();
    let count = leaf_header(block, revision)?.dqdh_entries.get();
    let bytes = match new {
        Some(record) => record.encode(revision)?,
        None => vec![0; revision.record_size()],
    };
    let count = match (was, new.is_some()) {
        (false, true) => count.saturating_add(1),
        (true, false) => count.saturating_sub(1),
        _ => count,
    };
    Defect::check_range("dqdh_entries", u64::from(count), 0, u64::from(revision.slots()))?;
    let target = span_mut(block, slot_offset(slot, revision)?, bytes.len()).ok_or(CUT)?;
    target.copy_from_slice(&bytes);
    leaf_header_mut(block)?.dqdh_entries = count.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Made by mke2fs 1.47.0: root with 1 inode, user 1000 with 1. See testdata/disk/README.md.
    const FILE: &[u8] = include_bytes!("../../../testdata/disk/quota_user.bin");

    fn block(number: u32) -> &'static [u8] {
        &FILE[number as usize * BLOCK_SIZE..][..BLOCK_SIZE]
    }

    fn leaf_of(id: u32) -> u32 {
        (0..TREE_DEPTH).fold(TREE_ROOT, |at, level| child(block(at), child_slot(id, level).unwrap()).unwrap())
    }

    #[test]
    fn the_tree_leads_to_each_record() {
        let (header, revision) = QuotaHeader::parse(block(0), QuotaKind::User, 7).unwrap();
        assert_eq!((header.dqi_free_entry.get(), revision), (5, Revision::R1));
        assert_eq!(header.dqi_bgrace.get(), DEFAULT_GRACE);
        assert_eq!((leaf_of(0), leaf_of(1000), leaf_of(1001)), (5, 5, 0));
        assert_eq!(children(block(3)).collect::<Vec<_>>(), [(0, 4), (3, 6)]);
        let root = QuotaRecord { inodes: 1, space: 0x3000, ..QuotaRecord::default() };
        let user = QuotaRecord { id: 1000, inodes: 1, space: 0x400, ..QuotaRecord::default() };
        assert_eq!(records(block(5), revision).unwrap(), [(0, root), (1, user)]);

        let mut rebuilt = vec![0; BLOCK_SIZE];
        set_record(&mut rebuilt, 0, revision, Some(root)).unwrap();
        set_record(&mut rebuilt, 1, revision, Some(user)).unwrap();
        assert_eq!(rebuilt, block(5));
    }

    #[test]
    fn headers_that_cannot_be_are_refused() {
        let parse = |bytes: &[u8], blocks| QuotaHeader::parse(bytes, QuotaKind::User, blocks).map(|_| ());
        let range = |field, value, least, most| Err(Defect::Range { field, value, least, most });
        assert!(matches!(QuotaHeader::parse(block(0), QuotaKind::Project, 7), Err(Defect::Magic { .. })));
        assert_eq!(parse(block(0), 6), range("dqi_blocks", 7, 2, 6));
        let mut damaged = block(0).to_vec();
        damaged[28] = 7;
        assert_eq!(parse(&damaged, 7), range("dqi_free_entry", 7, 2, 6));
        damaged[4] = 2;
        assert_eq!(parse(&damaged, 7), range("dqh_version", 2, 0, 1));
        let mut fresh = QuotaHeader::new(QuotaKind::Group).as_bytes().to_vec();
        fresh.resize(BLOCK_SIZE, 0);
        assert!(QuotaHeader::parse(&fresh, QuotaKind::Group, 2).is_ok());
    }

    #[test]
    fn counts_must_be_those_of_the_slots() {
        let mut leaf = block(5).to_vec();
        leaf[8] = 3;
        let wrong = Defect::Range { field: "dqdh_entries", value: 3, least: 2, most: 2 };
        assert_eq!(records(&leaf, Revision::R1), Err(wrong));
        leaf[8] = 15;
        assert!(leaf_header(&leaf, Revision::R1).is_err());
        assert!(record(&leaf, 14, Revision::R1).is_err() && child_slot(1, 4).is_err());
    }

    #[test]
    fn an_empty_record_of_root_is_not_a_free_slot() {
        for revision in [Revision::R0, Revision::R1] {
            let mut leaf = vec![0; BLOCK_SIZE];
            set_record(&mut leaf, 3, revision, Some(QuotaRecord::default())).unwrap();
            assert!(!all_zero(&leaf[16..]));
            assert_eq!(records(&leaf, revision).unwrap(), [(3, QuotaRecord::default())]);
            set_record(&mut leaf, 3, revision, None).unwrap();
            assert!(all_zero(&leaf));
        }
    }

    #[test]
    fn narrow_records_refuse_wide_limits() {
        let mut leaf = vec![0; BLOCK_SIZE];
        let wide = QuotaRecord { id: 1, space_hard: 1 << 32, ..QuotaRecord::default() };
        assert!(set_record(&mut leaf, 0, Revision::R0, Some(wide)).is_err());
        assert!(all_zero(&leaf));
        set_record(&mut leaf, 0, Revision::R1, Some(wide)).unwrap();
    }

    proptest! {
        #[test]
        fn leaves_keep_their_records(
            steps in prop::collection::vec((0u16..23, any::<Option<(u32, u32)>>()), 0..60),
            narrow: bool,
        ) {
            let revision = if narrow { Revision::R0 } else { Revision::R1 };
            let mut leaf = vec![0; BLOCK_SIZE];
            let mut model = std::collections::BTreeMap::new();
            for (slot, new) in steps {
                let new = new.map(|(id, number)| QuotaRecord {
                    id, inode_hard: number.into(), space: u64::from(number) << 20, ..QuotaRecord::default()
                });
                let fits = slot < revision.slots();
                prop_assert_eq!(set_record(&mut leaf, slot, revision, new).is_ok(), fits);
                if fits {
                    match new { Some(record) => model.insert(slot, record), None => model.remove(&slot) };
                }
                let wanted: Vec<_> = model.iter().map(|(slot, record)| (*slot, *record)).collect();
                prop_assert_eq!(records(&leaf, revision).unwrap(), wanted);
            }
        }
    }
}
