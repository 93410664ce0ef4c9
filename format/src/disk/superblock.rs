//! The superblock: 1024 bytes at byte 1024 of the filesystem, with copies at the start of the backup groups.
//!
//! [`Superblock`] is the layout itself. Numbers that are stored in two halves have one accessor here; whether the
//! numbers make sense together is decided by [`crate::geometry::Geometry::new`].

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc::crc32c;
use super::features::{Compat, Features, Incompat, RoCompat};
use crate::error::Defect;
use crate::ids::InodeNumber;
use crate::num::{high32, join16, join32, low16, low32};

/// Where the primary superblock begins, in bytes from the start of the filesystem.
pub const PRIMARY_OFFSET: u64 = 1024;
/// Size of a superblock in bytes.
pub const SIZE: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xef53;

/// `s_state`: what is known about the filesystem's health.
pub mod state {
    /// Unmounted cleanly.
    pub const VALID: u16 = 0x1;
    /// The kernel met an error.
    pub const ERROR: u16 = 0x2;
    /// Orphans are being recovered.
    pub const ORPHANS: u16 = 0x4;
    /// Fast commits are being replayed.
    pub const FAST_COMMIT_REPLAY: u16 = 0x20;
}

/// `s_flags`: odds and ends.
pub mod flags {
    /// Directory hashes treat characters as signed.
    pub const SIGNED_HASH: u32 = 0x1;
    /// Directory hashes treat characters as unsigned.
    pub const UNSIGNED_HASH: u32 = 0x2;
    /// A filesystem for testing development code.
    pub const TEST_FILESYSTEM: u32 = 0x4;
}

/// `s_default_mount_opts`: options that a mount takes on by itself.
pub mod mount_options {
    /// `debug`.
    pub const DEBUG: u32 = 0x1;
    /// `bsdgroups`.
    pub const BSD_GROUPS: u32 = 0x2;
    /// `user_xattr`.
    pub const USER_XATTR: u32 = 0x4;
    /// `acl`.
    pub const ACL: u32 = 0x8;
    /// `uid16`.
    pub const UID16: u32 = 0x10;
    /// The two bits of the journalling mode.
    pub const JOURNAL_MODE: u32 = 0x60;
    /// `journal_data`.
    pub const JOURNAL_DATA: u32 = 0x20;
    /// `journal_data_ordered`.
    pub const JOURNAL_ORDERED: u32 = 0x40;
    /// `journal_data_writeback`.
    pub const JOURNAL_WRITEBACK: u32 = 0x60;
    /// `nobarrier`.
    pub const NO_BARRIER: u32 = 0x100;
    /// `block_validity`.
    pub const BLOCK_VALIDITY: u32 = 0x200;
    /// `discard`.
    pub const DISCARD: u32 = 0x400;
    /// `nodelalloc`.
    pub const NO_DELALLOC: u32 = 0x800;
}

/// `s_jnl_backup_type` when `s_jnl_blocks` holds the journal inode's map.
pub const JOURNAL_BACKUP_BLOCKS: u8 = 1;
/// `s_checksum_type`: the only one there is.
pub const CHECKSUM_CRC32C: u8 = 1;
/// `s_rev_level` of the original format: inodes of 128 bytes, 11 the first free one, no features.
pub const REVISION_ORIGINAL: u32 = 0;
/// `s_rev_level` of everything since.
pub const REVISION_DYNAMIC: u32 = 1;

/// One record of an error that the kernel met: the first or the last.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ErrorRecord {
    /// When, in seconds; the superblock has the high byte elsewhere.
    pub time: U32,
    /// The inode concerned, or 0.
    pub inode: U32,
    /// The block concerned, or 0.
    pub block: U64,
    /// The function of the kernel.
    pub function: [u8; 32],
    /// The line of its source.
    pub line: U32,
}

/// The superblock as it lies on disk. Field names are the kernel's.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the kernel's; what needs saying is at the accessors")]
pub struct Superblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [u8; 16],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_update_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error: ErrorRecord,
    pub s_last_error: ErrorRecord,
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_def_resuid_hi: U16,
    pub s_def_resgid_hi: U16,
    pub s_reserved: [U32; 93],
    pub s_checksum: U32,
}

const _: () = {
    assert!(size_of::<Superblock>() == SIZE);
    assert!(size_of::<ErrorRecord>() == 52);
    assert!(offset_of!(Superblock, s_magic) == 0x38);
    assert!(offset_of!(Superblock, s_feature_compat) == 0x5c);
    assert!(offset_of!(Superblock, s_reserved_gdt_blocks) == 0xce);
    assert!(offset_of!(Superblock, s_hash_seed) == 0xec);
    assert!(offset_of!(Superblock, s_desc_size) == 0xfe);
    assert!(offset_of!(Superblock, s_blocks_count_hi) == 0x150);
    assert!(offset_of!(Superblock, s_mmp_block) == 0x168);
    assert!(offset_of!(Superblock, s_kbytes_written) == 0x178);
    assert!(offset_of!(Superblock, s_error_count) == 0x194);
    assert!(offset_of!(Superblock, s_mount_opts) == 0x200);
    assert!(offset_of!(Superblock, s_backup_bgs) == 0x24c);
    assert!(offset_of!(Superblock, s_checksum_seed) == 0x270);
    assert!(offset_of!(Superblock, s_encoding) == 0x27c);
    assert!(offset_of!(Superblock, s_orphan_file_inum) == 0x280);
    assert!(offset_of!(Superblock, s_checksum) == 0x3fc);
};

impl Superblock {
    /// A superblock whose bytes are all zero.
    pub fn zeroed() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }

    /// A copy of the 1024 bytes at the start of a slice. Fails only if they are not there or the magic is not.
    pub fn parse(bytes: &[u8]) -> Result<Self, Defect> {
        let (superblock, _) =
            Self::read_from_prefix(bytes).map_err(|_| Defect::Truncated { what: "superblock" })?;
        if superblock.s_magic.get() == MAGIC {
            Ok(superblock)
        } else {
            Err(Defect::Magic { found: superblock.s_magic.get().into(), wanted: MAGIC.into() })
        }
    }

    /// Features, unknown bits included.
    pub fn features(&self) -> Features {
        Features {
            compat: Compat::from_bits_retain(self.s_feature_compat.get()),
            incompat: Incompat::from_bits_retain(self.s_feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(self.s_feature_ro_compat.get()),
        }
    }

    /// Stores all three feature words.
    pub fn set_features(&mut self, features: Features) {
        self.s_feature_compat.set(features.compat.bits());
        self.s_feature_incompat.set(features.incompat.bits());
        self.s_feature_ro_compat.set(features.ro_compat.bits());
    }

    fn is_64bit(&self) -> bool {
        self.features().incompat.contains(Incompat::BIT64)
    }

    /// A block count of two halves, where the high one counts only with 64-bit block numbers.
    fn block_count(&self, low: U32, high: U32) -> u64 {
        join32(low.get(), if self.is_64bit() { high.get() } else { 0 })
    }

    /// Size of the filesystem in blocks.
    pub fn blocks_count(&self) -> u64 {
        self.block_count(self.s_blocks_count_lo, self.s_blocks_count_hi)
    }

    /// Stores the size of the filesystem in blocks.
    pub fn set_blocks_count(&mut self, count: u64) {
        self.s_blocks_count_lo.set(low32(count));
        self.s_blocks_count_hi.set(high32(count));
    }

    /// Blocks kept back for the super-user.
    pub fn reserved_blocks_count(&self) -> u64 {
        self.block_count(self.s_r_blocks_count_lo, self.s_r_blocks_count_hi)
    }

    /// Stores the number of blocks kept back for the super-user.
    pub fn set_reserved_blocks_count(&mut self, count: u64) {
        self.s_r_blocks_count_lo.set(low32(count));
        self.s_r_blocks_count_hi.set(high32(count));
    }

    /// Free blocks as last summed up, in blocks also under bigalloc. Stale after a crash.
    pub fn free_blocks_count(&self) -> u64 {
        self.block_count(self.s_free_blocks_count_lo, self.s_free_blocks_count_hi)
    }

    /// Stores the sum of free blocks, in blocks also under bigalloc.
    pub fn set_free_blocks_count(&mut self, count: u64) {
        self.s_free_blocks_count_lo.set(low32(count));
        self.s_free_blocks_count_hi.set(high32(count));
    }

    /// Whether this is the original revision without features and with fixed inode sizes.
    pub fn is_original_revision(&self) -> bool {
        self.s_rev_level.get() == REVISION_ORIGINAL
    }

    /// Size of an inode's slot in bytes, as stored or as fixed by the original revision. Not yet checked.
    pub fn inode_size(&self) -> u16 {
        if self.is_original_revision() { 128 } else { self.s_inode_size.get() }
    }

    /// The first inode that is not reserved. Not yet checked.
    pub fn first_inode(&self) -> u32 {
        if self.is_original_revision() { 11 } else { self.s_first_ino.get() }
    }

    /// Size of a group descriptor in bytes: 32 without 64-bit block numbers. Not yet checked.
    pub fn descriptor_size(&self) -> u16 {
        if self.is_64bit() { self.s_desc_size.get() } else { 32 }
    }

    /// User that may use the reserved blocks.
    pub fn reserved_uid(&self) -> u32 {
        join16(self.s_def_resuid.get(), self.s_def_resuid_hi.get())
    }

    /// Group that may use the reserved blocks.
    pub fn reserved_gid(&self) -> u32 {
        join16(self.s_def_resgid.get(), self.s_def_resgid_hi.get())
    }

    /// Stores the user and group that may use the reserved blocks.
    pub fn set_reserved_owner(&mut self, uid: u32, gid: u32) {
        self.s_def_resuid.set(low16(uid));
        self.s_def_resuid_hi.set(low16(uid >> 16));
        self.s_def_resgid.set(low16(gid));
        self.s_def_resgid_hi.set(low16(gid >> 16));
    }

    /// The journal's inode, if the journal is inside this filesystem.
    pub fn journal_inode(&self) -> Option<InodeNumber> {
        InodeNumber::new(self.s_journal_inum.get())
            .filter(|_| self.features().compat.contains(Compat::HAS_JOURNAL))
    }

    /// The seed of every checksum but the superblock's own: `s_checksum_seed`, or derived from the UUID.
    pub fn checksum_seed(&self) -> u32 {
        if self.features().incompat.contains(Incompat::CSUM_SEED) {
            self.s_checksum_seed.get()
        } else {
            crc32c(u32::MAX, &self.s_uuid)
        }
    }

    /// The checksum that the contents call for.
    pub fn computed_checksum(&self) -> u32 {
        let (contents, _) = self.as_bytes().split_at(offset_of!(Self, s_checksum));
        crc32c(u32::MAX, contents)
    }

    /// Checks the stored checksum where metadata has checksums.
    pub fn verify_checksum(&self) -> Result<(), Defect> {
        if !self.features().ro_compat.contains(RoCompat::METADATA_CSUM) {
            return Ok(());
        }
        let (stored, computed) = (self.s_checksum.get(), self.computed_checksum());
        if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
    }

    /// Puts the checksum right where metadata has checksums. Elsewhere it is 0, as mke2fs leaves it: an old one would
    /// look as if the feature had been lost.
    pub fn refresh_checksum(&mut self) {
        let has_checksum = self.features().ro_compat.contains(RoCompat::METADATA_CSUM);
        self.s_checksum.set(if has_checksum { self.computed_checksum() } else { 0 });
    }

    /// The four words of the directory hash's seed.
    pub fn hash_seed(&self) -> [u32; 4] {
        let (words, _) = self.s_hash_seed.as_chunks::<4>();
        let mut seed = [0; 4];
        for (word, bytes) in seed.iter_mut().zip(words) {
            *word = u32::from_le_bytes(*bytes);
        }
        seed
    }
}

/// Text of a fixed field up to its first NUL. Bytes that are not UTF-8 are replaced.
pub fn field_text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or(field)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_count_only_with_64_bit_numbers() {
        let mut superblock = Superblock::zeroed();
        superblock.set_blocks_count(0x1_0000_0002);
        assert_eq!(superblock.blocks_count(), 2);
        superblock.s_feature_incompat.set(Incompat::BIT64.bits());
        assert_eq!(superblock.blocks_count(), 0x1_0000_0002);
    }

    #[test]
    fn checksum_covers_all_but_itself() {
        let mut superblock = Superblock::zeroed();
        superblock.s_feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
        superblock.refresh_checksum();
        superblock.verify_checksum().unwrap();
        superblock.s_reserved[92].set(1);
        assert!(matches!(superblock.verify_checksum(), Err(Defect::Checksum { .. })));
    }

    #[test]
    fn needs_magic_and_length() {
        assert!(matches!(Superblock::parse(&[0; 1023]), Err(Defect::Truncated { .. })));
        assert!(matches!(Superblock::parse(&[0; 1024]), Err(Defect::Magic { .. })));
    }
}
