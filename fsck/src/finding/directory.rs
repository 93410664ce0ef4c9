//! Problems of directories.

use ext4kit_format::{Defect, InodeNumber};

use crate::repair::Repair;

problems! {
    /// A problem of a directory.
    DirectoryProblem {
        /// A record contradicts the format.
        RecordDamaged { offset: u32, defect: Defect } = 601 DataLoss [0x0002_0013, 0x0002_0014, 0x0002_001d, 0x0002_0029] "entry at byte {offset}: {defect}" => Repair::SalvageBlock;
        /// The block cannot be read.
        Unreadable { why: String } = 602 DataLoss [0x0002_0020] "{why}" => Repair::SalvageBlock;
        /// A block of the directory is missing.
        Hole { logical: u32 } = 603 Repairable [0x0002_0015] "block {logical} is a hole" => Repair::AllocateBlock { logical: *logical };
        /// The first entry is not `.`.
        DotMissing {} = 604 Repairable [0x0002_0009, 0x0002_000b, 0x0002_0016] "the first entry is not `.`" => Repair::SalvageBlock;
        /// The second entry is not `..`.
        DotDotMissing {} = 605 Repairable [0x0002_000a, 0x0002_000c, 0x0002_0017] "the second entry is not `..`" => Repair::SalvageBlock;
        /// `.` names another inode.
        DotWrong { found: u32, wanted: InodeNumber } = 606 Repairable [0x0002_0001] "`.` names inode {found}" => Repair::SetEntryTarget { offset: 0, inode: *wanted };
        /// `.` or `..` is there again.
        DotsAgain { offset: u32 } = 607 Repairable [0x0002_001a, 0x0002_001b] "`.` or `..` is there again at byte {offset}" => Repair::ClearEntry { offset: *offset };
        /// An entry names an inode number that there is not.
        InodeInvalid { offset: u32, inode: InodeNumber, name: String } = 608 Repairable [0x0002_0002, 0x0002_0005] "entry `{name}` names inode {inode}, which cannot be" => Repair::ClearEntry { offset: *offset };
        /// An entry names an inode that is free.
        InodeFree { offset: u32, inode: InodeNumber, name: String } = 609 Preen [0x0002_0003] "entry `{name}` names inode {inode}, which is free" => Repair::ClearEntry { offset: *offset };
        /// An entry names its own directory.
        LinkToSelf { offset: u32, name: String } = 610 Repairable [0x0002_0004] "entry `{name}` names its own directory" => Repair::ClearEntry { offset: *offset };
        /// An entry names the root.
        LinkToRoot { offset: u32, name: String } = 611 Repairable [0x0002_0007] "entry `{name}` names the root" => Repair::ClearEntry { offset: *offset };
        /// A directory has two names.
        SecondName { offset: u32, inode: InodeNumber, name: String } = 612 Repairable [0x0002_0006] "entry `{name}` is another name of directory {inode}" => Repair::ClearEntry { offset: *offset };
        /// A name holds bytes that no name may have.
        NameInvalid { offset: u32, name: String } = 613 Repairable [0x0002_0008, 0x0002_0030] "name `{name}` holds illegal characters" => Repair::RenameEntry { offset: *offset };
        /// The file type is not the inode's.
        TypeWrong { offset: u32, name: String, stored: u8, wanted: u8 } = 614 Repairable [0x0002_0028] "entry `{name}` has type {stored}, should be {wanted}" => Repair::SetEntryType { offset: *offset, kind: *wanted };
        /// The file type is not recorded.
        TypeUnset { offset: u32, name: String, wanted: u8 } = 615 Note [0x0002_0027] "entry `{name}` has no type, should be {wanted}" => Repair::SetEntryType { offset: *offset, kind: *wanted };
        /// A name is there twice.
        NameTwice { offset: u32, name: String } = 617 Repairable [0x0002_0041, 0x0002_0042, 0x0002_0043, 0x0002_0054] "name `{name}` is there twice" => Repair::RenameEntry { offset: *offset };
        /// The checksum of a leaf is wrong.
        LeafChecksumWrong { defect: Defect } = 618 Preen [0x0002_004d] "{defect}" => Repair::RefreshChecksum;
        /// A leaf has no room for its checksum.
        TailMissing {} = 619 Preen [0x0002_004c] "there is no checksum" => Repair::SalvageBlock;
        /// The checksum of an index block is wrong.
        IndexChecksumWrong { defect: Defect } = 620 Preen [0x0002_0049, 0x0002_004a] "{defect}" => Repair::RebuildIndex;
        /// The root of the index is damaged.
        IndexRootDamaged { why: String } = 621 Preen [0x0001_0049, 0x0001_004a, 0x0001_004b, 0x0001_004c, 0x0001_008d, 0x0001_008e, 0x0002_003c] "index root: {why}" => Repair::RebuildIndex;
        /// A node of the index is damaged.
        IndexNodeDamaged { why: String } = 622 Preen [0x0002_003a, 0x0002_003d, 0x0002_003e, 0x0002_003f, 0x0002_0040, 0x0002_0045] "index node: {why}" => Repair::RebuildIndex;
        /// A block of the directory is in no index.
        LeafNotReferenced { logical: u32 } = 623 Repairable [0x0002_0034, 0x0002_0038] "block {logical} is not in the index" => Repair::RebuildIndex;
        /// A block of the directory is in the index twice.
        LeafReferencedTwice { logical: u32 } = 624 Repairable [0x0002_0035] "block {logical} is in the index twice" => Repair::RebuildIndex;
        /// A name's hash is outside what the index gives to its block.
        HashOutOfRange { logical: u32 } = 625 Repairable [0x0002_0036, 0x0002_0037] "block {logical} holds names that the index puts elsewhere" => Repair::RebuildIndex;
        /// The inode lies in a group or part of a table that is marked as never used.
        InodeInUnusedPart { inode: InodeNumber } = 626 Preen [0x0002_0046, 0x0002_0047] "inode {inode} lies in a part of its table that is marked as unused" => Repair::ReadWholeTable(*inode);
        /// A file in an encrypted directory is not encrypted, or its name cannot be.
        EncryptionWrong { offset: u32, why: &'static str } = 627 DataLoss [0x0002_0050, 0x0002_0051, 0x0002_0052] "entry at byte {offset}: {why}" => Repair::ClearEntry { offset: *offset };
        /// A directory names the inode of a value.
        LinkToValueInode { offset: u32, inode: InodeNumber } = 628 Repairable [0x0002_0055] "entry names inode {inode}, which holds an attribute's value" => Repair::ClearEntry { offset: *offset };
        /// The record of `.` is too long.
        DotTooLong {} = 629 Note [0x0002_0024] "the record of `.` is longer than it need be" => Repair::SalvageBlock;
        /// Inline entries do not fill their room.
        InlineDamaged { why: String } = 630 DataLoss [0x0002_004e, 0x0002_004f] "inline directory: {why}" => Repair::SalvageBlock;
        /// One bit is wrong, and the checksum proves which.
        OneBitWrong { byte: u32, bit: u8 } = 631 Repairable [] "bit {bit} of byte {byte} is wrong, as the checksum proves" => Repair::FlipBit { byte: *byte, bit: *bit };
    }
}
