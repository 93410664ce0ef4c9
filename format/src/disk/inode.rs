//! Inodes: 128 bytes that every inode has, then as many extra fields as `i_extra_isize` says, then room for extended
//! attributes up to the slot's size.
//!
//! [`InodeView`] reads an inode where it lies, [`Inode`] is a copy that can be changed and written back. Fields that
//! an inode is too short for read as `None` or as what the format says they default to.

use std::mem::offset_of;

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc::{crc32c, crc32c_lanes};
use crate::bytes::{all_zero, le16, le32, put_le16, put_le32, span, span_mut};
use crate::error::Defect;
use crate::ids::{BlockNumber, InodeNumber};
use crate::num::{high32, join16, join32, low16, low32};
use crate::txn::Owner;

pub use super::timestamp::Timestamp;

/// Size of the part that every inode has, in bytes; also where the extra fields begin.
pub const HEAD_SIZE: usize = 128;
/// Size of the extra fields that are known, in bytes.
pub const EXTRA_SIZE: u16 = 32;
/// Size of `i_block`: 15 block pointers, an extent root, a short symlink or inline data.
pub const MAP_SIZE: usize = 60;
/// Where `i_block` begins, in bytes from the inode's start.
pub const MAP_OFFSET: usize = offset_of!(InodeHead, i_block);
/// Most links that an inode may have. A directory with more subdirectories stores 1 under `dir_nlink`.
pub const MAX_LINKS: u16 = 65_000;

bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// Wish for secure deletion (s).
        const SECURE_DELETION = 0x1;
        /// Wish for undeletion (u).
        const UNDELETABLE = 0x2;
        /// Compressed (c).
        const COMPRESSED = 0x4;
        /// Writes are synchronous (S).
        const SYNCHRONOUS = 0x8;
        /// Cannot be changed (i).
        const IMMUTABLE = 0x10;
        /// Can only grow (a).
        const APPEND = 0x20;
        /// Not to be dumped (d).
        const NO_DUMP = 0x40;
        /// Access times are not kept (A).
        const NO_ATIME = 0x80;
        /// Compression, out of tree.
        const DIRTY = 0x100;
        /// Compression, out of tree.
        const COMPRESSED_BLOCKS = 0x200;
        /// Compression, out of tree.
        const NO_COMPRESSION = 0x400;
        /// Encrypted (E).
        const ENCRYPTED = 0x800;
        /// A directory with a hash tree (I).
        const INDEX = 0x1000;
        /// An inode of AFS.
        const IMAGIC = 0x2000;
        /// Data goes through the journal (j).
        const JOURNAL_DATA = 0x4000;
        /// Tails are not merged (t); unused.
        const NO_TAIL = 0x8000;
        /// Changes to the directory are synchronous (D).
        const DIRECTORY_SYNC = 0x1_0000;
        /// Top of a directory hierarchy (T), for spreading.
        const TOP_DIRECTORY = 0x2_0000;
        /// `i_blocks` counts filesystem blocks.
        const HUGE_FILE = 0x4_0000;
        /// Blocks are mapped by extents (e).
        const EXTENTS = 0x8_0000;
        /// Protected by fs-verity (V).
        const VERITY = 0x10_0000;
        /// The value of a large extended attribute.
        const EA_INODE = 0x20_0000;
        /// Blocks may lie past the size; no longer used.
        const EOF_BLOCKS = 0x40_0000;
        /// No copy on write (C).
        const NO_COPY_ON_WRITE = 0x80_0000;
        /// Direct access (x).
        const DAX = 0x200_0000;
        /// Contents lie inside the inode (N).
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project (P).
        const PROJECT_INHERIT = 0x2000_0000;
        /// Names are compared without regard to case (F).
        const CASEFOLD = 0x4000_0000;
    }
}

/// The type of a file, from the upper four bits of `i_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharacterDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The kind that a mode stands for; `None` where its upper bits stand for none.
    pub const fn from_mode(mode: u16) -> Option<Self> {
        match mode & 0xf000 {
            0x1000 => Some(Self::Fifo),
            0x2000 => Some(Self::CharacterDevice),
            0x4000 => Some(Self::Directory),
            0x6000 => Some(Self::BlockDevice),
            0x8000 => Some(Self::Regular),
            0xa000 => Some(Self::Symlink),
            0xc000 => Some(Self::Socket),
            _ => None,
        }
    }

    /// The upper bits of a mode of this kind.
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0x1000,
            Self::CharacterDevice => 0x2000,
            Self::Directory => 0x4000,
            Self::BlockDevice => 0x6000,
            Self::Regular => 0x8000,
            Self::Symlink => 0xa000,
            Self::Socket => 0xc000,
        }
    }
}

/// The 128 bytes that every inode has. Field names are the kernel's.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the kernel's; what needs saying is at the accessors")]
pub struct InodeHead {
    pub i_mode: U16,
    pub i_uid_lo: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid_lo: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version_lo: U32,
    pub i_block: [u8; MAP_SIZE],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
}

const _: () = {
    assert!(size_of::<InodeHead>() == HEAD_SIZE);
    assert!(offset_of!(InodeHead, i_block) == 0x28);
    assert!(offset_of!(InodeHead, i_generation) == 0x64);
    assert!(offset_of!(InodeHead, i_file_acl_high) == 0x76);
    assert!(offset_of!(InodeHead, i_checksum_lo) == CHECKSUM_LOW);
};

/// What an inode's checksum is computed over, put together: one run over aligned words, with zeros where the checksum lies,
/// is several times as fast as the seven short runs around it.
#[repr(align(8))]
struct CheckedBytes([u8; CHECKED_PREFIX.saturating_add(USUAL_SIZE)]);

/// The usual size of a slot, in bytes.
const USUAL_SIZE: usize = 256;
/// What an inode's checksum begins with, beside the filesystem's seed: its number and its generation.
const CHECKED_PREFIX: usize = 8;
const CHECKSUM_LOW: usize = 0x7c;
const EXTRA_ISIZE: usize = 0x80;
const CHECKSUM_HIGH: usize = 0x82;
const CTIME_EXTRA: usize = 0x84;
const MTIME_EXTRA: usize = 0x88;
const ATIME_EXTRA: usize = 0x8c;
const CRTIME: usize = 0x90;
const CRTIME_EXTRA: usize = 0x94;
const VERSION_HIGH: usize = 0x98;
const PROJECT_ID: usize = 0x9c;

/// Seed of the checksums of an inode and of its blocks: filesystem seed, then number, then generation.
pub fn inode_seed(filesystem_seed: u32, owner: Owner) -> u32 {
    let register = crc32c(filesystem_seed, &owner.inode.get().to_le_bytes());
    crc32c(register, &owner.generation.to_le_bytes())
}

/// An inode where it lies: its whole slot, of 128 bytes or more.
#[derive(Clone, Copy, Debug)]
pub struct InodeView<'a> {
    head: &'a InodeHead,
    bytes: &'a [u8],
}

impl<'a> InodeView<'a> {
    /// A view of an inode's slot.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Defect> {
        let (head, _) = InodeHead::ref_from_prefix(bytes).map_err(|_| Defect::Truncated { what: "inode" })?;
        Ok(Self { head, bytes })
    }

    /// The fields that every inode has.
    pub fn head(self) -> &'a InodeHead {
        self.head
    }

    /// The whole slot.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// `i_mode`: kind and permissions.
    pub fn mode(self) -> u16 {
        self.head.i_mode.get()
    }

    /// The kind of file; `None` where the mode names none.
    pub fn kind(self) -> Option<FileKind> {
        FileKind::from_mode(self.mode())
    }

    /// Whether this is a directory.
    pub fn is_directory(self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    /// `i_flags`, unknown bits included.
    pub fn flags(self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.head.i_flags.get())
    }

    /// Size in bytes. The high half counts for every kind of file here; whether it may be set is a question for a
    /// checker.
    pub fn size(self) -> u64 {
        join32(self.head.i_size_lo.get(), self.head.i_size_high.get())
    }

    /// Owner.
    pub fn uid(self) -> u32 {
        join16(self.head.i_uid_lo.get(), self.head.i_uid_high.get())
    }

    /// Group.
    pub fn gid(self) -> u32 {
        join16(self.head.i_gid_lo.get(), self.head.i_gid_high.get())
    }

    /// Link count.
    pub fn links(self) -> u16 {
        self.head.i_links_count.get()
    }

    /// `i_generation`.
    pub fn generation(self) -> u32 {
        self.head.i_generation.get()
    }

    /// `i_blocks` as stored in 48 bits. Its unit is 512 bytes, or a filesystem block where the filesystem has
    /// `huge_file` and the inode the flag; without `huge_file` only the low 32 bits count.
    pub fn blocks_raw(self) -> u64 {
        join32(self.head.i_blocks_lo.get(), self.head.i_blocks_high.get().into())
    }

    /// The block of extended attributes, or block 0 for none.
    pub fn attribute_block(self) -> BlockNumber {
        BlockNumber(join32(self.head.i_file_acl_lo.get(), self.head.i_file_acl_high.get().into()))
    }

    /// `i_dtime`: when the inode was deleted, or the next inode of the orphan chain.
    pub fn deletion_time(self) -> u32 {
        self.head.i_dtime.get()
    }

    /// `i_block`: block map, extent root, short symlink target or inline data.
    pub fn map(self) -> &'a [u8; MAP_SIZE] {
        &self.head.i_block
    }

    /// `i_extra_isize` as stored; `None` where the slot has only 128 bytes. Not checked against the slot.
    pub fn extra_size(self) -> Option<u16> {
        le16(self.bytes, EXTRA_ISIZE)
    }

    /// The extra 32-bit field at an offset, if `i_extra_isize` reaches over it.
    fn extra_field(self, offset: usize) -> Option<u32> {
        let end = HEAD_SIZE.checked_add(usize::from(self.extra_size()?))?;
        if offset.checked_add(4)? > end { None } else { le32(self.bytes, offset) }
    }

    /// Time of the last access.
    pub fn access_time(self) -> Timestamp {
        Timestamp::decode(self.head.i_atime.get(), self.extra_field(ATIME_EXTRA))
    }

    /// Time of the last change of the inode.
    pub fn change_time(self) -> Timestamp {
        Timestamp::decode(self.head.i_ctime.get(), self.extra_field(CTIME_EXTRA))
    }

    /// Time of the last change of the contents.
    pub fn modification_time(self) -> Timestamp {
        Timestamp::decode(self.head.i_mtime.get(), self.extra_field(MTIME_EXTRA))
    }

    /// Time of creation, where the inode is long enough to have one.
    pub fn creation_time(self) -> Option<Timestamp> {
        Some(Timestamp::decode(self.extra_field(CRTIME)?, self.extra_field(CRTIME_EXTRA)))
    }

    /// `i_version`: 64 bits where the inode is long enough, else 32.
    pub fn version(self) -> u64 {
        join32(self.head.i_version_lo.get(), self.extra_field(VERSION_HIGH).unwrap_or(0))
    }

    /// `i_projid`; 0 where the inode is too short to have one.
    pub fn project(self) -> u32 {
        self.extra_field(PROJECT_ID).unwrap_or(0)
    }

    /// The room behind the extra fields, where extended attributes may lie; empty where there is none or where
    /// `i_extra_isize` points out of the slot.
    pub fn attribute_area(self) -> &'a [u8] {
        self.extra_size()
            .and_then(|extra| self.bytes.get(HEAD_SIZE.checked_add(usize::from(extra))?..))
            .unwrap_or_default()
    }

    /// Device number of a device file: the old form in the first map word, else the new one in the second.
    pub fn device(self) -> (u32, u32) {
        let old = le32(self.map(), 0).unwrap_or(0);
        if old != 0 {
            return ((old >> 8) & 0xff, old & 0xff);
        }
        let new = le32(self.map(), 4).unwrap_or(0);
        ((new >> 8) & 0xfff, (new & 0xff) | ((new >> 12) & 0xf_ff00))
    }

    /// Whether the high half of the checksum exists: the slot is long enough and `i_extra_isize` reaches over it.
    pub fn has_checksum_high(self) -> bool {
        self.extra_size().is_some_and(|extra| extra >= 4)
    }

    /// The stored checksum: 32 bits, or 16 where the inode is too short for the high half.
    pub fn stored_checksum(self) -> u32 {
        let high = if self.has_checksum_high() { le16(self.bytes, CHECKSUM_HIGH).unwrap_or(0) } else { 0 };
        join16(self.head.i_checksum_lo.get(), high)
    }

    /// The checksum that the contents call for, of as many bits as can be stored.
    pub fn computed_checksum(self, filesystem_seed: u32, number: InodeNumber) -> u32 {
        let has_high = self.has_checksum_high();
        let mut copy = CheckedBytes([0; CHECKED_PREFIX.saturating_add(USUAL_SIZE)]);
        let (prefix, slot) = copy.0.split_at_mut(CHECKED_PREFIX);
        let (usual, rest) = self.bytes.split_at_checked(USUAL_SIZE).unwrap_or((self.bytes, &[]));
        let end = CHECKED_PREFIX.saturating_add(usual.len());
        // A copy of known length is much cheaper than one of any.
        match <&[u8; USUAL_SIZE]>::try_from(usual) {
            Ok(usual) => slot.copy_from_slice(usual),
            Err(_) => slot.get_mut(..usual.len()).unwrap_or_default().copy_from_slice(usual),
        }
        let _ = put_le16(slot, CHECKSUM_LOW, 0);
        if has_high {
            let _ = put_le16(slot, CHECKSUM_HIGH, 0);
        }
        let _ = put_le32(prefix, 0, number.get());
        let _ = put_le32(prefix, 4, self.generation());
        let mut register = crc32c(filesystem_seed, copy.0.get(..end).unwrap_or_default());
        if !rest.is_empty() {
            register = crc32c(register, rest);
        }
        if has_high { register } else { register & 0xffff }
    }

    /// Checks the checksum. An inode whose first 128 bytes are zero was never written and has none.
    pub fn verify_checksum(self, filesystem_seed: u32, number: InodeNumber) -> Result<(), Defect> {
        let (stored, computed) = (self.stored_checksum(), self.computed_checksum(filesystem_seed, number));
        if stored == computed || all_zero(self.head.as_bytes()) {
            Ok(())
        } else {
            Err(Defect::Checksum { stored, computed })
        }
    }
}

/// Whether the checksums of four inodes in a row, in slots of the usual size, are right; computed together, which is
/// several times as fast as one by one. Whoever needs to know what is wrong asks [`InodeView::verify_checksum`].
pub fn verify_four(slots: &[u8; 4 * USUAL_SIZE], filesystem_seed: u32, first: InodeNumber) -> [bool; 4] {
    /// The first of the two words that hold the halves of the checksum, and masks of what else they hold.
    const LOW_WORD: usize = CHECKSUM_LOW / 8;
    const LOW_MASK: u64 = 0xffff_0000_ffff_ffff;
    const HIGH_MASK: u64 = 0xffff_ffff_0000_ffff;
    let (slots, _) = slots.as_chunks::<USUAL_SIZE>();
    let mut lanes = [[0u64; 1 + USUAL_SIZE / 8]; 4];
    let mut stored = [(0, false); 4];
    for (((lane, stored), slot), number) in lanes.iter_mut().zip(&mut stored).zip(slots).zip(first.get()..) {
        let Ok(view) = InodeView::new(slot) else { continue };
        let [prefix, words @ ..] = lane;
        *prefix = join32(number, view.generation());
        for (word, bytes) in words.iter_mut().zip(slot.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        *stored = (view.stored_checksum(), view.has_checksum_high());
        if let Some([low, high]) = words.get_mut(LOW_WORD..).and_then(<[u64]>::first_chunk_mut::<2>) {
            *low &= LOW_MASK;
            *high &= if stored.1 { HIGH_MASK } else { u64::MAX };
        }
    }
    let sums = crc32c_lanes(filesystem_seed, &lanes);
    let mut right = [false; 4];
    for ((right, sum), (stored, has_high)) in right.iter_mut().zip(sums).zip(stored) {
        *right = stored == if has_high { sum } else { sum & 0xffff };
    }
    right
}

/// Puts right the checksum of the inode in a slot.
pub fn refresh_checksum(slot: &mut [u8], filesystem_seed: u32, number: InodeNumber) {
    let Ok(view) = InodeView::new(slot) else { return };
    let checksum = view.computed_checksum(filesystem_seed, number);
    let high = view.has_checksum_high();
    let _ = put_le16(slot, CHECKSUM_LOW, low16(checksum));
    if high {
        let _ = put_le16(slot, CHECKSUM_HIGH, low16(checksum >> 16));
    }
}

/// A copy of an inode that can be changed; whoever holds it writes it back through a transaction, which puts its
/// checksum right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    number: InodeNumber,
    bytes: Vec<u8>,
}

impl Inode {
    /// A copy of the inode in a slot of 128 bytes or more.
    pub fn from_slot(number: InodeNumber, slot: &[u8]) -> Result<Self, Defect> {
        InodeView::new(slot)?;
        Ok(Self { number, bytes: slot.to_vec() })
    }

    /// A fresh inode of a slot's size, all zero but for `i_extra_isize`.
    pub fn fresh(number: InodeNumber, slot_size: usize, extra_size: u16) -> Self {
        let mut bytes = vec![0; slot_size.max(HEAD_SIZE)];
        if slot_size > HEAD_SIZE {
            let _ = put_le16(&mut bytes, EXTRA_ISIZE, extra_size);
        }
        Self { number, bytes }
    }

    /// The inode's number.
    pub fn number(&self) -> InodeNumber {
        self.number
    }

    /// Number and generation: the owner of the inode's blocks.
    pub fn owner(&self) -> Owner {
        Owner { inode: self.number, generation: self.view().generation() }
    }

    /// For reading.
    #[expect(clippy::expect_used, reason = "both constructors see to it that there are 128 bytes")]
    pub fn view(&self) -> InodeView<'_> {
        InodeView::new(&self.bytes).expect("an inode has at least 128 bytes")
    }

    /// For changing the fields that every inode has.
    #[expect(clippy::expect_used, reason = "both constructors see to it that there are 128 bytes")]
    pub fn head_mut(&mut self) -> &mut InodeHead {
        InodeHead::mut_from_prefix(&mut self.bytes).expect("an inode has at least 128 bytes").0
    }

    /// The slot's bytes, to write back.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// `i_block`, for changing.
    pub fn map_mut(&mut self) -> &mut [u8; MAP_SIZE] {
        &mut self.head_mut().i_block
    }

    /// The room behind the extra fields, for changing; empty where there is none.
    pub fn attribute_area_mut(&mut self) -> &mut [u8] {
        let length = self.view().attribute_area().len();
        let start = self.bytes.len().saturating_sub(length);
        span_mut(&mut self.bytes, start, length).unwrap_or_default()
    }

    /// Stores `i_extra_isize`, where the slot has it; what lies in the fields is as it was.
    pub fn set_extra_size(&mut self, size: u16) {
        let _ = put_le16(&mut self.bytes, EXTRA_ISIZE, size);
    }

    /// Sets kind and permissions.
    pub fn set_mode(&mut self, mode: u16) {
        self.head_mut().i_mode.set(mode);
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.head_mut().i_flags.set(flags.bits());
    }

    /// Sets the size in bytes.
    pub fn set_size(&mut self, size: u64) {
        let head = self.head_mut();
        head.i_size_lo.set(low32(size));
        head.i_size_high.set(high32(size));
    }

    /// Sets owner and group.
    pub fn set_owner_ids(&mut self, uid: u32, gid: u32) {
        let head = self.head_mut();
        head.i_uid_lo.set(low16(uid));
        head.i_uid_high.set(low16(uid >> 16));
        head.i_gid_lo.set(low16(gid));
        head.i_gid_high.set(low16(gid >> 16));
    }

    /// Sets the link count.
    pub fn set_links(&mut self, links: u16) {
        self.head_mut().i_links_count.set(links);
    }

    /// Sets `i_generation`. Every checksum that hangs from the inode changes with it.
    pub fn set_generation(&mut self, generation: u32) {
        self.head_mut().i_generation.set(generation);
    }

    /// Sets `i_dtime`.
    pub fn set_deletion_time(&mut self, seconds: u32) {
        self.head_mut().i_dtime.set(seconds);
    }

    /// Sets the 48 bits of `i_blocks`; a number beyond them is refused.
    pub fn set_blocks_raw(&mut self, blocks: u64) -> Result<(), Defect> {
        Defect::check_range("i_blocks", blocks, 0, (1 << 48) - 1)?;
        let head = self.head_mut();
        head.i_blocks_lo.set(low32(blocks));
        head.i_blocks_high.set(low16(high32(blocks)));
        Ok(())
    }

    /// Sets the block of extended attributes; block 0 for none. A number beyond 48 bits is refused.
    pub fn set_attribute_block(&mut self, block: BlockNumber) -> Result<(), Defect> {
        Defect::check_range("i_file_acl", block.0, 0, (1 << 48) - 1)?;
        let head = self.head_mut();
        head.i_file_acl_lo.set(low32(block.0));
        head.i_file_acl_high.set(low16(high32(block.0)));
        Ok(())
    }

    /// Writes an extra field; `false` if the inode is too short for it.
    fn set_extra_field(&mut self, offset: usize, value: u32) -> bool {
        self.view().extra_field(offset).is_some() && put_le32(&mut self.bytes, offset, value).is_some()
    }

    /// Sets the time of the last access, as precisely as the inode can hold it.
    pub fn set_access_time(&mut self, time: Timestamp) {
        let (seconds, extra) = time.encode(self.view().extra_field(ATIME_EXTRA).is_some());
        self.head_mut().i_atime.set(seconds);
        self.set_extra_field(ATIME_EXTRA, extra);
    }

    /// Sets the time of the last change of the inode, as precisely as the inode can hold it.
    pub fn set_change_time(&mut self, time: Timestamp) {
        let (seconds, extra) = time.encode(self.view().extra_field(CTIME_EXTRA).is_some());
        self.head_mut().i_ctime.set(seconds);
        self.set_extra_field(CTIME_EXTRA, extra);
    }

    /// Sets the time of the last change of the contents, as precisely as the inode can hold it.
    pub fn set_modification_time(&mut self, time: Timestamp) {
        let (seconds, extra) = time.encode(self.view().extra_field(MTIME_EXTRA).is_some());
        self.head_mut().i_mtime.set(seconds);
        self.set_extra_field(MTIME_EXTRA, extra);
    }

    /// Sets the time of creation; `false` if the inode is too short to have one.
    pub fn set_creation_time(&mut self, time: Timestamp) -> bool {
        let (seconds, extra) = time.encode(self.view().extra_field(CRTIME_EXTRA).is_some());
        self.set_extra_field(CRTIME_EXTRA, extra);
        self.set_extra_field(CRTIME, seconds)
    }

    /// Sets `i_version` as far as the inode can hold it.
    pub fn set_version(&mut self, version: u64) {
        self.head_mut().i_version_lo.set(low32(version));
        self.set_extra_field(VERSION_HIGH, high32(version));
    }

    /// Sets the project; `false` if the inode is too short to have one.
    pub fn set_project(&mut self, project: u32) -> bool {
        self.set_extra_field(PROJECT_ID, project)
    }

    /// Sets the device number of a device file, in the old form where it fits. `false` if it fits neither form.
    pub fn set_device(&mut self, major: u32, minor: u32) -> bool {
        let fits_old = major < 256 && minor < 256;
        let fits_new = major < 1 << 12 && minor < 1 << 20;
        let (old, new) = if fits_old {
            (major << 8 | minor, 0)
        } else {
            (0, (minor & 0xff) | major << 8 | (minor & !0xff) << 12)
        };
        if !fits_new {
            return false;
        }
        let map = self.map_mut();
        put_le32(map, 0, old).and_then(|()| put_le32(map, 4, new)).is_some()
    }

    /// Writes the inode over its slot. The slot has the size that the inode came with.
    pub fn store(&self, slot: &mut [u8]) -> Result<(), Defect> {
        let target = slot.get_mut(..self.bytes.len()).ok_or(Defect::Truncated { what: "inode" })?;
        target.copy_from_slice(&self.bytes);
        Ok(())
    }
}

/// The target of a symbolic link that lies in the inode itself, if it does: `i_block` up to the size.
pub fn short_symlink_target(view: InodeView<'_>) -> Option<&[u8]> {
    let length = usize::try_from(view.size()).ok().filter(|length| *length < MAP_SIZE)?;
    span(view.map(), 0, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number() -> InodeNumber {
        InodeNumber::new(12).unwrap()
    }

    #[test]
    fn short_inodes_have_no_extra_fields() {
        let mut inode = Inode::fresh(number(), 128, 32);
        assert!(!inode.set_project(7) && !inode.set_creation_time(Timestamp::default()));
        inode.set_modification_time(Timestamp { seconds: 5, nanoseconds: 9 });
        assert_eq!(inode.view().modification_time(), Timestamp { seconds: 5, nanoseconds: 0 });
        assert!(inode.view().attribute_area().is_empty());
        assert_eq!(inode.bytes().len(), 128);
    }

    #[test]
    fn extra_fields_need_extra_size() {
        let mut inode = Inode::fresh(number(), 256, 28);
        assert!(!inode.set_project(7), "extra size 28 ends where i_projid begins");
        assert!(inode.set_creation_time(Timestamp { seconds: 1, nanoseconds: 2 }));
        let mut inode = Inode::fresh(number(), 256, 32);
        assert!(inode.set_project(7));
        assert_eq!((inode.view().project(), inode.view().attribute_area().len()), (7, 96));
    }

    #[test]
    fn extra_size_out_of_the_slot_is_harmless() {
        let inode = Inode::fresh(number(), 256, 0xffff);
        assert!(inode.view().attribute_area().is_empty());
        assert_eq!(inode.view().project(), 0);
        inode.view().computed_checksum(1, number());
    }

    #[test]
    fn checksum_halves_follow_the_extra_size() {
        for (size, extra, bits) in [(128, 0, 16), (256, 0, 16), (256, 32, 32)] {
            let mut inode = Inode::fresh(number(), size, extra);
            inode.set_size(77);
            refresh_checksum(&mut inode.bytes, 3, number());
            inode.view().verify_checksum(3, number()).unwrap();
            assert!(inode.view().verify_checksum(4, number()).is_err());
            assert_eq!(inode.view().stored_checksum() >> 16 != 0, bits == 32);
            for at in 0..size {
                let mut damaged = inode.bytes.clone();
                damaged[at] ^= 0x10;
                let view = InodeView::new(&damaged).unwrap();
                assert!(view.verify_checksum(3, number()).is_err(), "byte {at} of {size}");
            }
        }
    }

    #[test]
    fn devices_take_the_old_form_where_they_fit() {
        let mut inode = Inode::fresh(number(), 256, 32);
        for (major, minor) in [(1, 3), (255, 255), (256, 0), (8, 256), (4095, 0xf_ffff)] {
            assert!(inode.set_device(major, minor));
            assert_eq!(inode.view().device(), (major, minor));
        }
        assert!(!inode.set_device(4096, 0) && !inode.set_device(0, 1 << 20));
    }
}
