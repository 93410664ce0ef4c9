//! Problems of what maps a file to blocks.

use ext4kit_format::{BlockNumber, Defect};

use crate::repair::Repair;

problems! {
    /// A problem of a block map or extent tree.
    MapProblem {
        /// A block number outside the filesystem.
        BlockInvalid { logical: u64, block: BlockNumber } = 401 DataLoss [0x0001_000e, 0x0001_0012, 0x0001_0013, 0x0001_0010] "block {logical} is mapped to {block}, outside the filesystem" => Repair::Unmap { logical: *logical, length: 1 };
        /// A block that holds metadata.
        OverMetadata { logical: u64, block: BlockNumber } = 402 DataLoss [0x0001_000f, 0x0001_004d, 0x0001_0015] "block {logical} is mapped to {block}, which holds metadata" => Repair::Unmap { logical: *logical, length: 1 };
        /// A node of the tree that cannot be read as one.
        NodeDamaged { defect: Defect } = 403 DataLoss [0x0001_0056, 0x0001_0057, 0x0001_005f, 0x0001_0081] "{defect}" => Repair::RebuildMap;
        /// Slots out of order or over each other.
        OrderWrong { defect: Defect } = 404 DataLoss [0x0001_005e, 0x0001_007d, 0x0001_0066, 0x0001_006e, 0x0001_0058, 0x0001_0059] "{defect}" => Repair::RebuildMap;
        /// The checksum of a node is wrong.
        ChecksumWrong { defect: Defect } = 405 Repairable [0x0001_006a] "{defect}" => Repair::RefreshChecksum;
        /// An index says another first block than its child.
        IndexStartWrong { stored: u64, wanted: u64 } = 406 Repairable [0x0001_006d] "index says {stored}, its node begins at {wanted}" => Repair::RebuildMap;
        /// A block map where only extents may be.
        BlockMapWithClusters {} = 408 Repairable [0x0001_0080] "block map on a filesystem with clusters" => Repair::RebuildMap;
        /// A cluster that is used at another offset than its own.
        ClusterMisaligned { logical: u64, block: BlockNumber } = 409 Repairable [0x0001_0074] "block {logical} lies at {block}: other place in its cluster" => Repair::CloneBlocks;
        /// An unwritten extent in a directory.
        UnwrittenInDirectory { logical: u64 } = 410 Preen [0x0001_0073, 0x0001_0087] "block {logical} of a directory is unwritten" => Repair::RebuildMap;
        /// A block is claimed more than once.
        Shared { block: BlockNumber, length: u64 } = 412 DataLoss [0x0001_0014, 0x0001_1000, 0x0001_1001, 0x0001_1002, 0x0001_1008, 0x0001_2000, 0x0001_3000, 0x0001_3001, 0x0001_3002, 0x0001_3003, 0x0001_3004, 0x0001_3006, 0x0001_3007] "{length} blocks from {block} belong to others as well" => Repair::CloneBlocks;
        /// A block of pointers cannot be read.
        Unreadable { why: String } = 413 DataLoss [0x0001_0029] "{why}" => Repair::RebuildMap;
        /// The depth of a child is not one less than its parent's.
        DepthWrong { stored: u16, wanted: u16 } = 415 DataLoss [0x0001_005f] "depth is {stored}, should be {wanted}" => Repair::RebuildMap;
        /// A block behind what such a file may have.
        TooBig { logical: u64, block: BlockNumber } = 416 Preen [0x0001_0026, 0x0001_0025] "block {logical} (at {block}) is behind what such a file may have" => Repair::Unmap { logical: *logical, length: 1 };
        /// The list of bad blocks names a block that the filesystem itself lies in.
        ListedMetadata { block: BlockNumber } = 417 Repairable [] "the list of bad blocks names {block}, where the filesystem itself lies" => Repair::Unmap { logical: 0, length: 1 };
        /// A node of the tree says that it holds fewer slots than it has.
        CapacityWrong { stored: u16, wanted: u16 } = 418 Repairable [] "eh_max is {stored}, should be {wanted}" => Repair::RebuildMap;
        /// A node is damaged, and its checksum proves what it was.
        NodeProven {} = 419 Repairable [] "damaged, but its checksum proves what it held" => Repair::RebuildMap;
    }
}
