//! Problems of bitmaps and summary counts.

use ext4kit_format::BlockNumber;

use crate::repair::Repair;

problems! {
    /// A problem of a bitmap or summary.
    BitmapProblem {
        /// Blocks are marked that nothing uses.
        BlocksMarked { start: BlockNumber, length: u64 } = 901 Preen [0x0005_0003, 0x0005_0004, 0x0005_0006, 0x0005_0014] "{length} blocks from {start} are marked, but not in use" => Repair::RewriteBitmap;
        /// Blocks in use are not marked.
        BlocksUnmarked { start: BlockNumber, length: u64 } = 902 Preen [0x0005_0005, 0x0005_0015] "{length} blocks from {start} are in use, but not marked" => Repair::RewriteBitmap;
        /// Inodes are marked that are free.
        InodesMarked { start: u32, length: u32 } = 903 Preen [0x0005_0007, 0x0005_0008, 0x0005_000a, 0x0005_0016] "{length} inodes from {start} are marked, but not in use" => Repair::RewriteBitmap;
        /// Inodes in use are not marked.
        InodesUnmarked { start: u32, length: u32 } = 904 Preen [0x0005_0009, 0x0005_0017] "{length} inodes from {start} are in use, but not marked" => Repair::RewriteBitmap;
        /// Bits behind the end of the block bitmap are not set.
        BlockPaddingUnset {} = 905 Preen [0x0005_0002] "padding is not set" => Repair::RewriteBitmap;
        /// Bits behind the end of the inode bitmap are not set.
        InodePaddingUnset {} = 906 Preen [0x0005_0001] "padding is not set" => Repair::RewriteBitmap;
        /// The checksum of the block bitmap is wrong.
        BlockChecksumWrong { stored: u32, computed: u32 } = 907 Preen [0x0005_001b] "checksum is {stored:#010x}, contents give {computed:#010x}" => Repair::RefreshChecksum;
        /// The checksum of the inode bitmap is wrong.
        InodeChecksumWrong { stored: u32, computed: u32 } = 908 Preen [0x0005_001a] "checksum is {stored:#010x}, contents give {computed:#010x}" => Repair::RefreshChecksum;
        /// The group's count of free blocks is wrong.
        FreeClustersWrong { stored: u32, counted: u32 } = 909 Preen [0x0005_000e] "free block count is {stored}, should be {counted}" => Repair::SetField { field: "bg_free_blocks_count", value: (*counted).into() };
        /// The group's count of free inodes is wrong.
        FreeInodesWrong { stored: u32, counted: u32 } = 910 Preen [0x0005_000b] "free inode count is {stored}, should be {counted}" => Repair::SetField { field: "bg_free_inodes_count", value: (*counted).into() };
        /// The group's count of directories is wrong.
        DirectoriesWrong { stored: u32, counted: u32 } = 911 Preen [0x0005_000c] "directory count is {stored}, should be {counted}" => Repair::SetField { field: "bg_used_dirs_count", value: (*counted).into() };
        /// The filesystem's count of free blocks is wrong.
        TotalFreeBlocksWrong { stored: u64, counted: u64 } = 912 Note [0x0005_000f, 0x0000_0040] "free block count is {stored}, should be {counted}" => Repair::SetField { field: "s_free_blocks_count", value: *counted };
        /// The filesystem's count of free inodes is wrong.
        TotalFreeInodesWrong { stored: u32, counted: u32 } = 913 Note [0x0005_000d, 0x0000_003f] "free inode count is {stored}, should be {counted}" => Repair::SetField { field: "s_free_inodes_count", value: (*counted).into() };
        /// Blocks are in use in a group whose bitmap is marked as never written.
        BlocksInUninitGroup {} = 914 Preen [0x0005_0018] "blocks are in use, but the bitmap is marked as never written" => Repair::RewriteBitmap;
        /// Inodes are in use in a group whose bitmap is marked as never written.
        InodesInUninitGroup {} = 915 Preen [0x0005_0019] "inodes are in use, but the bitmap is marked as never written" => Repair::RewriteBitmap;
        /// A bitmap cannot be read.
        Unreadable { why: String } = 916 Preen [] "{why}" => Repair::RewriteBitmap;
    }
}
