//! Problems of group descriptors.

use ext4kit_format::{BlockNumber, Defect, GroupNumber};

use crate::repair::Repair;

problems! {
    /// A problem of a group's descriptor.
    GroupProblem {
        /// The block bitmap lies where none can.
        BlockBitmapMisplaced { group: GroupNumber, block: BlockNumber } = 201 Repairable [0x0000_0001] "the block bitmap lies at {block}" => Repair::Relocate(*group);
        /// The inode bitmap lies where none can.
        InodeBitmapMisplaced { group: GroupNumber, block: BlockNumber } = 202 Repairable [0x0000_0002] "the inode bitmap lies at {block}" => Repair::Relocate(*group);
        /// The inode table lies where none can.
        InodeTableMisplaced { group: GroupNumber, block: BlockNumber } = 203 Repairable [0x0000_0003] "the inode table lies at {block}" => Repair::Relocate(*group);
        /// The descriptor's checksum is wrong.
        ChecksumWrong { defect: Defect } = 204 Preen [0x0000_0035, 0x0000_003e] "{defect}" => Repair::RefreshChecksum;
        /// Lazy flags without checksums that vouch for them.
        LazyFlagsUnsupported { flags: u16, unused: u32 } = 205 Preen [0x0000_0036] "flags {flags:#x} and {unused} unused inodes need descriptor checksums" => Repair::SetField { field: "bg_flags", value: 0 };
        /// More unused inodes than the table has.
        UnusedInodesTooMany { stored: u32, most: u32 } = 206 Preen [0x0000_0038] "bg_itable_unused is {stored} of {most}" => Repair::SetField { field: "bg_itable_unused", value: 0 };
        /// The last group says its block bitmap was never written.
        LastGroupUninit {} = 207 Preen [0x0000_0039] "the last group's block bitmap is marked as never written" => Repair::RewriteBitmap;
        /// Metadata of the group lies over other metadata.
        MetadataOverlap { group: GroupNumber, what: &'static str, block: BlockNumber } = 208 Repairable [0x0001_0007, 0x0001_0008, 0x0001_0009, 0x0001_0071] "the {what} lies over other metadata at block {block}" => Repair::Relocate(*group);
        /// The descriptor cannot be read.
        Unreadable { why: String } = 209 Repairable [0x0000_0045] "{why}" => Repair::RestoreDescriptor;
        /// The descriptor makes no sense, a copy was taken.
        CopyUsed { block: BlockNumber } = 210 Repairable [0x0000_0045] "it makes no sense; the copy in block {block} was taken" => Repair::RestoreDescriptor;
        /// The descriptor is of no use, and there is no copy; the geometry says where everything lies.
        Rebuilt { sound: bool } = 211 Repairable [] "its places cannot be; those that the geometry calls for were taken" => Repair::RestoreDescriptor;
        /// The inode table lies where none can, and is found nowhere.
        InodeTableLost { group: GroupNumber, block: BlockNumber } = 212 DataLoss [] "the inode table lies at {block}, and no copy and no place that the geometry calls for has it" => Repair::Relocate(*group);
    }
}
