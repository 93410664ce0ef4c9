//! What a healthy filesystem does not need to be told: only `--lint` looks for these.

use ext4kit_format::GroupNumber;

problems! {
    /// An oddity that every implementation tolerates.
    LintProblem {
        /// A copy of the superblock differs in a field that only tools change.
        BackupOutdated { group: GroupNumber, field: &'static str } = 1101 Note [] "the copy of the superblock in group {group} has another {field}";
        /// A copy of the superblock that says it is another group's.
        BackupMisnumbered { group: GroupNumber, stored: u16 } = 1102 Note [] "the copy of the superblock in group {group} says that it is that of group {stored}";
        /// The count of overhead is wrong.
        OverheadWrong { stored: u32, counted: u64 } = 1103 Note [] "s_overhead_clusters is {stored}, the metadata takes {counted}";
        /// Reserved fields are not zero.
        ReservedSet { offset: usize } = 1104 Note [] "a reserved field is not zero (byte {offset:#x})";
        /// The journal is of the first version.
        JournalOld {} = 1105 Note [] "the journal's superblock is of version 1";
        /// The journal recorded an error.
        JournalError { stored: u32 } = 1106 Note [] "the journal recorded the error {stored}";
        /// The journal uses less than its file.
        JournalShort { stored: u32, blocks: u64 } = 1107 Note [] "the journal uses {stored} of the {blocks} blocks of its file";
        /// A descriptor has fields set that nothing uses.
        DescriptorReservedSet {} = 1111 Note [] "a reserved field is not zero";
        /// A group without inodes does not count all of them as unused.
        UnusedInodesWrong { stored: u32, most: u32 } = 1112 Note [] "the inode table was never written, but bg_itable_unused is {stored} of {most}";
        /// A part of an inode table that was never used is not zero.
        TableNotZeroed { inode: u32 } = 1113 Note [] "the table is marked as zeroed, but unused inode {inode} is not zero";
        /// An inode is free, but its contents are those of one in use.
        FreeInodeAlive {} = 1121 Note [] "free, but it has links or no time of deletion";
        /// An inode is free, but has blocks.
        FreeInodeBlocks {} = 1122 Note [] "free, but it counts or maps blocks";
        /// Reserved fields of an inode are not zero.
        InodeReservedSet {} = 1123 Note [] "a reserved field is not zero";
        /// Extents that follow each other could be one.
        ExtentsMergeable { count: u64 } = 1124 Note [] "{count} extents could be joined to those before them";
        /// A leaf of a hash tree without a name.
        LeafEmpty { logical: u32 } = 1131 Note [] "leaf {logical} of the hash tree holds no name";
        /// A hash tree with more levels than it needs.
        LevelsTooMany { levels: u8 } = 1132 Note [] "the hash tree has {levels} inner levels, though its root has room for what lies below";
        /// A directory of one block with a hash tree, or flags in a root that nothing uses.
        RootFlagsSet { flags: u8 } = 1133 Note [] "the hash tree's root has flags {flags:#x}";
        /// The checksum's place at the end of a leaf is not laid out as one.
        NodeTailWrong { logical: u32 } = 1134 Note [] "node {logical} of the hash tree has a tail whose reserved part is not zero";
    }
}
