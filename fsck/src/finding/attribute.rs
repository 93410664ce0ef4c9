//! Problems of extended attributes.

use ext4kit_format::{BlockNumber, Defect, InodeNumber};

use crate::repair::Repair;

problems! {
    /// A problem of extended attributes.
    AttributeProblem {
        /// The block of attributes lies outside.
        BlockInvalid { block: BlockNumber } = 501 DataLoss [0x0002_0032] "the attribute block {block} lies outside the filesystem" => Repair::ClearAttributes;
        /// The block of attributes is damaged.
        BlockDamaged { defect: Defect } = 502 DataLoss [0x0001_0039, 0x0001_003a, 0x0001_003e] "{defect}" => Repair::ClearAttributes;
        /// An entry is damaged.
        EntryDamaged { defect: Defect } = 503 DataLoss [0x0001_0041, 0x0001_0042, 0x0001_0050, 0x0001_0051, 0x0001_0052, 0x0001_0053] "{defect}" => Repair::ClearAttributes;
        /// Two values lie over each other.
        Overlap { defect: Defect } = 504 DataLoss [0x0001_0040, 0x0001_0069] "{defect}" => Repair::ClearAttributes;
        /// An entry's hash is wrong.
        HashWrong { name: String, stored: u32 } = 505 Preen [0x0001_0054] "hash {stored:#010x} of attribute `{name}` is wrong" => Repair::ClearAttributes;
        /// The block's checksum is wrong.
        ChecksumWrong { defect: Defect } = 506 Repairable [0x0001_006c] "{defect}" => Repair::RefreshChecksum;
        /// The count of inodes that share the block is wrong.
        ReferencesWrong { stored: u32, counted: u32 } = 507 Repairable [0x0001_003c] "reference count is {stored}, should be {counted}" => Repair::SetField { field: "h_refcount", value: (*counted).into() };
        /// The inode of a value is none.
        ValueInodeInvalid { inode: InodeNumber } = 508 Preen [0x0001_0083, 0x0001_0085] "value inode {inode} cannot be used" => Repair::ClearAttributes;
        /// The inode of a value lacks its flag.
        ValueInodeFlagMissing { inode: InodeNumber } = 509 Preen [0x0001_0086] "value inode {inode} lacks its flag" => Repair::SetInodeFlags(0x20_0000);
        /// The block holds metadata.
        OverMetadata { block: BlockNumber } = 511 DataLoss [0x0001_000f] "the attribute block {block} holds metadata" => Repair::ClearAttributes;
        /// One bit is wrong, and the checksum proves which.
        OneBitWrong { byte: u32, bit: u8 } = 512 Repairable [] "bit {bit} of byte {byte} is wrong, as the checksum proves" => Repair::FlipBit { byte: *byte, bit: *bit };
    }
}
