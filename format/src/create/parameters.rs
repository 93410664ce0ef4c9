//! What a filesystem is to be like: every choice made, nothing left to defaults, clock or chance.

use crate::disk::features::{Compat, Features, RoCompat};
use crate::disk::mmp::DEFAULT_INTERVAL;
use crate::disk::superblock::{REVISION_DYNAMIC, mount_options};

/// How many inodes to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeCount {
    /// One for so many bytes of the filesystem.
    BytesPerInode(u32),
    /// At least so many.
    AtLeast(u32),
}

/// Names and numbers that tell one filesystem from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `s_uuid`.
    pub uuid: [u8; 16],
    /// `s_hash_seed`.
    pub hash_seed: [u8; 16],
    /// `s_volume_name`, zero-padded.
    pub label: [u8; 16],
    /// `s_last_mounted`, zero-padded.
    pub last_mounted: [u8; 64],
}

impl Default for Identity {
    /// All zero: no UUID, no seed, no labels.
    fn default() -> Self {
        Self { uuid: [0; 16], hash_seed: [0; 16], label: [0; 16], last_mounted: [0; 64] }
    }
}

/// The size of the internal journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalParameters {
    /// Blocks of the journal, with its superblock and the area of fast commits.
    pub blocks: u32,
    /// Blocks at its end that are kept for fast commits; 0 without that feature.
    pub fast_commit_blocks: u32,
}

/// Everything that decides how an empty filesystem looks.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Parameters {
    /// Size of the filesystem in blocks. The last group is dropped if it is too small to be of use.
    pub blocks_count: u64,
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Size of a cluster in bytes; the block size without bigalloc.
    pub cluster_size: u32,
    /// Blocks of a group (clusters, with bigalloc); `None` for as many as a bitmap of one block has bits.
    pub per_group: Option<u32>,
    /// Which features to have.
    pub features: Features,
    /// `s_rev_level`: 0 or 1.
    pub revision: u32,
    /// Size of an inode in bytes.
    pub inode_size: u32,
    /// How many inodes.
    pub inodes: InodeCount,
    /// Groups whose bitmaps and tables lie together: a power of two, used with flex_bg.
    pub flex_groups: u32,
    /// Share of the blocks that is kept for the super-user, in percent, 0 to 50.
    pub reserved_percent: f64,
    /// To how many blocks the filesystem may grow by the resize inode; `None` for 1024 times its size.
    pub resize_blocks: Option<u64>,
    /// The internal journal, with the feature has_journal.
    pub journal: Option<JournalParameters>,
    /// Blocks of the orphan file, with the feature orphan_file.
    pub orphan_file_blocks: u32,
    /// UUID, hash seed, labels.
    pub identity: Identity,
    /// Time of creation, in seconds since 1970.
    pub time: i64,
    /// `s_errors`: 1 continue, 2 remount read-only, 3 panic.
    pub errors: u16,
    /// `s_creator_os`.
    pub creator_os: u32,
    /// `s_default_mount_opts`.
    pub mount_options: u32,
    /// `s_def_hash_version`: 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: u8,
    /// Whether directory hashes treat characters as unsigned.
    pub unsigned_hash: bool,
    /// `s_raid_stride` and `s_raid_stripe_width`, in blocks.
    pub raid: (u16, u32),
    /// `s_encoding` and `s_encoding_flags`, with casefold.
    pub encoding: (u16, u16),
    /// Copies of the superblock under sparse_super2: 0, 1 or 2.
    pub backups: u32,
    /// Seconds between two updates of multi-mount protection, at most 300, with the feature mmp.
    pub mmp_interval: u16,
    /// Whether the filesystem says that it is for testing development code.
    pub test_filesystem: bool,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Permissions of the root directory.
    pub root_mode: u16,
    /// Whether every block of the target is known to read as zero, so that nothing has to be zeroed.
    pub target_is_zero: bool,
    /// Whether inode tables may be left unwritten for the kernel to zero later.
    pub lazy_tables: bool,
}

impl Parameters {
    /// What mke2fs chooses for a filesystem of this size with these features, of normal usage; the rest is left to
    /// change: no UUID or labels, the time 0, and nothing known of the target.
    pub fn new(blocks_count: u64, block_size: u32, features: Features) -> Self {
        let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
        let journal = default_journal_blocks(blocks_count).filter(|_| has_journal);
        let mut features = features;
        features.compat.set(Compat::HAS_JOURNAL, journal.is_some());
        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let blocks_per_cluster = if bigalloc { 16 } else { 1 };
        Self {
            blocks_count,
            block_size,
            cluster_size: block_size.saturating_mul(blocks_per_cluster),
            per_group: None,
            features,
            revision: REVISION_DYNAMIC,
            inode_size: 256,
            inodes: InodeCount::BytesPerInode(16_384),
            flex_groups: 16,
            reserved_percent: 5.0,
            resize_blocks: None,
            journal: journal.map(|blocks| JournalParameters { blocks, fast_commit_blocks: 0 }),
            orphan_file_blocks: default_orphan_file_blocks(blocks_count, blocks_per_cluster),
            identity: Identity::default(),
            time: 0,
            errors: 1,
            creator_os: 0,
            mount_options: mount_options::USER_XATTR | mount_options::ACL,
            hash_version: 1,
            unsigned_hash: false,
            raid: (0, 0),
            encoding: (0, 0),
            backups: 2,
            mmp_interval: DEFAULT_INTERVAL,
            test_filesystem: false,
            root_owner: (0, 0),
            root_mode: 0o755,
            target_is_zero: false,
            lazy_tables: true,
        }
    }
}

/// How many blocks of journal a filesystem of so many blocks gets, as mke2fs has it; `None` if it is too small.
pub fn default_journal_blocks(blocks_count: u64) -> Option<u32> {
    const STEPS: [(u64, u32); 8] = [
        (32 << 10, 1 << 10),
        (256 << 10, 4 << 10),
        (512 << 10, 8 << 10),
        (4 << 20, 16 << 10),
        (8 << 20, 32 << 10),
        (16 << 20, 64 << 10),
        (32 << 20, 128 << 10),
        (u64::MAX, 256 << 10),
    ];
    let step = STEPS.iter().find(|(limit, _)| blocks_count < *limit);
    step.map(|(_, blocks)| *blocks).filter(|_| blocks_count >= 2048)
}

/// How many blocks of orphan file a filesystem of so many blocks gets, rounded up to whole clusters.
pub fn default_orphan_file_blocks(blocks_count: u64, blocks_per_cluster: u32) -> u32 {
    const LEAST: u64 = 32;
    const MOST: u64 = 512;
    let blocks = if blocks_count < 128 << 10 { LEAST } else { (blocks_count >> 12).clamp(LEAST, MOST) };
    crate::num::low32(blocks).next_multiple_of(blocks_per_cluster.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_sizes_step_with_the_filesystem() {
        assert_eq!(default_journal_blocks(2047), None);
        assert_eq!(default_journal_blocks(2048), Some(1024));
        assert_eq!(default_journal_blocks(32 << 10), Some(4096));
        assert_eq!(default_journal_blocks(262_144), Some(8192));
        assert_eq!(default_journal_blocks(1 << 40), Some(262_144));
    }

    #[test]
    fn orphan_files_stay_within_what_kernels_take() {
        assert_eq!(default_orphan_file_blocks(1000, 1), 32);
        assert_eq!(default_orphan_file_blocks(1 << 20, 1), 256);
        assert_eq!(default_orphan_file_blocks(1 << 30, 16), 512);
    }
}
