//! Problems of what maps a file to blocks.

use ext4kit_format::{BlockNumber, Defect, InodeNumber};

use crate::repair::Repair;

problems! {
    /// A problem of a block map or extent tree.
    MapProblem {
        /// A block number outside the filesystem.
        BlockInvalid { logical: u64, block: BlockNumber } = 401 DataLoss [0x01000e, 0x010012, 0x010013, 0x010010] "block {logical} is mapped to {block}, outside the filesystem" => Repair::Unmap { logical: *logical, length: 1 };
        /// A block that holds metadata.
        OverMetadata { logical: u64, block: BlockNumber } = 402 DataLoss [0x01000f, 0x01004d, 0x010015] "block {logical} is mapped to {block}, which holds metadata" => Repair::Unmap { logical: *logical, length: 1 };
        /// A node of the tree that cannot be read as one.
        NodeDamaged { defect: Defect } = 403 DataLoss [0x010056, 0x010057, 0x01005f, 0x010081] "{defect}" => Repair::RebuildMap;
        /// Slots out of order or over each other.
        OrderWrong { defect: Defect } = 404 DataLoss [0x01005e, 0x01007d, 0x010066, 0x01006e, 0x010058, 0x010059] "{defect}" => Repair::RebuildMap;
        /// The checksum of a node is wrong.
        ChecksumWrong { defect: Defect } = 405 Repairable [0x01006a] "{defect}" => Repair::RefreshChecksum;
        /// An index says another first block than its child.
        IndexStartWrong { stored: u64, wanted: u64 } = 406 Repairable [0x01006d] "index says {stored}, its node begins at {wanted}" => Repair::RebuildMap;
        /// Blocks lie behind the size.
        TooManyBlocks { inode: InodeNumber } = 407 DataLoss [0x010043] "more blocks than a file can have" => Repair::Truncate { size: 0 };
        /// A block map where only extents may be.
        BlockMapWithClusters {} = 408 Repairable [0x010080] "block map on a filesystem with clusters" => Repair::RebuildMap;
        /// A cluster that is used at another offset than its own.
        ClusterMisaligned { logical: u64, block: BlockNumber } = 409 Repairable [0x010074] "block {logical} lies at {block}: other place in its cluster" => Repair::CloneBlocks;
        /// An unwritten extent in a directory.
        UnwrittenInDirectory { logical: u64 } = 410 Preen [0x010073, 0x010087] "block {logical} of a directory is unwritten" => Repair::RebuildMap;
        /// A hole of a directory that is stored as one.
        DirectoryHole { logical: u64 } = 411 Repairable [0x010072] "hole before block {logical} of a directory";
        /// A block is claimed more than once.
        Shared { block: BlockNumber, length: u64 } = 412 DataLoss [0x010014, 0x011000, 0x011001, 0x011002, 0x011008, 0x012000, 0x013000, 0x013001, 0x013002, 0x013003, 0x013004, 0x013006, 0x013007] "{length} blocks from {block} belong to others as well" => Repair::CloneBlocks;
        /// A block of pointers cannot be read.
        Unreadable { why: String } = 413 DataLoss [0x010029] "{why}" => Repair::RebuildMap;
        /// The tree is deeper than it needs to be.
        DepthExcessive { depth: u16 } = 414 Note [0x01007f, 0x014006, 0x014007] "the tree is {depth} levels deep";
        /// The depth of a child is not one less than its parent's.
        DepthWrong { stored: u16, wanted: u16 } = 415 DataLoss [0x01005f] "depth is {stored}, should be {wanted}" => Repair::RebuildMap;
    }
}
