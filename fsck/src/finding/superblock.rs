//! Problems of the superblock and of the geometry it describes.

use ext4kit_format::{BlockNumber, Defect};

use crate::repair::Repair;

problems! {
    /// A problem of the superblock.
    SuperblockProblem {
        /// The primary superblock cannot be used; a copy was taken.
        CopyUsed { block: BlockNumber, why: String } = 101 Repairable [0x0000_0004, 0x0000_0044] "unusable ({why}); the copy in block {block} was taken" => Repair::RestoreSuperblock;
        /// The filesystem is larger than what holds it.
        LargerThanDevice { blocks: u64, held: u64 } = 102 Fatal [0x0000_0005] "the filesystem has {blocks} blocks, the device holds {held}";
        /// `s_inodes_count` is not what the groups have.
        InodeCountWrong { stored: u32, counted: u32 } = 103 Repairable [0x0000_000d] "s_inodes_count is {stored}, the groups have {counted} inodes" => Repair::SetField { field: "s_inodes_count", value: (*counted).into() };
        /// A field is out of its range.
        FieldOutOfRange { defect: Defect, field: &'static str, value: u64 } = 104 Repairable [0x0000_000b, 0x0000_0007, 0x0000_0008, 0x0000_0006] "{defect}" => Repair::SetField { field, value: *value };
        /// Blocks are reserved for descriptors without a resize inode.
        ReservedDescriptorsUnused { blocks: u32 } = 105 Repairable [0x0000_002e] "{blocks} blocks are reserved for descriptors although resize_inode is off" => Repair::SetField { field: "s_reserved_gdt_blocks", value: 0 };
        /// `resize_inode` and `meta_bg` exclude each other.
        ResizeInodeWithMetaGroups {} = 106 Repairable [0x0000_0051] "resize_inode and meta_bg exclude each other" => Repair::ClearFeature("resize_inode");
        /// The resize inode is wrong.
        ResizeInodeWrong { why: String } = 107 Repairable [0x0000_0030, 0x0000_002f, 0x0001_004e] "resize inode: {why}" => Repair::RecreateResizeInode;
        /// Both kinds of checksums are on.
        BothChecksumFeatures {} = 108 Preen [0x0000_0046] "metadata_csum and uninit_bg are both set" => Repair::ClearFeature("uninit_bg");
        /// 64-bit block numbers without extents.
        WideWithoutExtents {} = 109 Preen [0x0000_0048] "64bit is set without extent" => Repair::SetFeature("extent");
        /// A checksum seed without checksums.
        SeedWithoutChecksums {} = 110 Preen [0x0000_004b] "metadata_csum_seed is set without metadata_csum" => Repair::ClearFeature("metadata_csum_seed");
        /// The least extra inode size cannot be.
        MinExtraSizeWrong { stored: u16 } = 111 Repairable [0x0000_004d] "s_min_extra_isize is {stored}" => Repair::SetField { field: "s_min_extra_isize", value: 0 };
        /// The wanted extra inode size cannot be.
        WantExtraSizeWrong { stored: u16 } = 112 Repairable [0x0000_004e] "s_want_extra_isize is {stored}" => Repair::SetField { field: "s_want_extra_isize", value: 32 };
        /// Features in a superblock of the original revision.
        FeaturesInOriginalRevision {} = 113 Preen [0x0000_001a, 0x0001_0033] "features are set, but the revision is 0" => Repair::SetField { field: "s_rev_level", value: 1 };
        /// A quota inode's number cannot be one.
        QuotaInodeInvalid { field: &'static str, stored: u32 } = 115 Repairable [0x0000_004f] "{field} is {stored}" => Repair::SetField { field, value: 0 };
        /// The protection block lies outside.
        MmpBlockInvalid { block: u64 } = 116 Preen [0x0000_0042] "s_mmp_block is {block}" => Repair::ClearFeature("mmp");
        /// The protection block is damaged.
        MmpDamaged { defect: Defect } = 117 Preen [0x0000_0043, 0x0000_0047] "multi-mount protection block: {defect}" => Repair::ResetMmp;
        /// A large file without the feature.
        LargeFileUnset {} = 118 Preen [0x0002_0033] "files of 2 GiB or more exist, but large_file is not set" => Repair::SetFeature("large_file");
        /// There is no UUID.
        NoUuid {} = 120 Note [0x0000_0009] "there is no UUID";
        /// A file type field on a filesystem of the Hurd.
        FileTypeOnHurd {} = 122 Repairable [0x0000_000e] "filetype is set on a filesystem of the Hurd" => Repair::ClearFeature("filetype");
        /// The descriptors lie in no meta groups.
        FirstMetaGroupTooBig { stored: u32, most: u64 } = 124 Repairable [0x0000_0049] "s_first_meta_bg is {stored}, of {most} blocks of descriptors" => Repair::ClearFeature("meta_bg");
        /// The checksum is wrong; everything that the copies know as well agrees with them.
        ChecksumWrong { defect: Defect } = 125 Repairable [] "{defect}" => Repair::RefreshChecksum;
        /// One bit is wrong; the checksum shows which.
        OneBitWrong {} = 126 Preen [] "one bit is wrong, the checksum shows which" => Repair::RestoreSuperblock;
        /// The journal lies in the filesystem, but another one is named as well.
        JournalNamedTwice { field: &'static str } = 127 Preen [] "{field} names another journal, although there is one inside" => Repair::SetField { field, value: 0 };
        /// More blocks count as overhead than there are.
        OverheadTooLarge { stored: u32, most: u64 } = 128 Preen [] "s_overhead_clusters is {stored} of {most}" => Repair::SetField { field: "s_overhead_clusters", value: 0 };
        /// A copy of the superblock, or of descriptors, is of no use.
        BackupDamaged { block: BlockNumber, why: String } = 129 Note [] "the copy in block {block} is of no use: {why}" => Repair::RewriteBackups;
    }
}
