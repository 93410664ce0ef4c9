//! Problems of link and reference counts.

use ext4kit_format::InodeNumber;

use crate::repair::Repair;

problems! {
    /// A problem of a count.
    CountProblem {
        /// No directory names an inode in use.
        Unattached { inode: InodeNumber } = 801 Repairable [0x0004_0002, 0x0004_0001] "no directory names it" => Repair::Reconnect(*inode);
        /// The link count is wrong.
        LinksWrong { stored: u16, counted: u32 } = 802 Preen [0x0004_0003, 0x0004_0004] "link count is {stored}, should be {counted}" => Repair::SetField { field: "i_links_count", value: (*counted).into() };
        /// The reference count of a value's inode is wrong.
        ValueReferencesWrong { stored: u64, counted: u64 } = 803 Preen [0x0004_0005] "reference count is {stored}, should be {counted}" => Repair::SetField { field: "i_version", value: *counted };
        /// A directory with many subdirectories without the feature.
        ManyLinksUnset {} = 804 Repairable [0x0004_0006, 0x0004_0007] "a directory has more than 64998 subdirectories, but dir_nlink is not set" => Repair::SetFeature("dir_nlink");
        /// The flag of a value's inode on a file.
        ValueFlagSpurious {} = 805 Preen [0x0004_0008] "flag of a value's inode on a file with names" => Repair::ClearInodeFlags(0x20_0000);
    }
}
