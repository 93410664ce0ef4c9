//! Problems of inodes.

use ext4kit_format::{Defect, InodeNumber};

use crate::repair::Repair;

problems! {
    /// A problem of an inode.
    InodeProblem {
        /// The checksum is wrong.
        ChecksumWrong { defect: Defect } = 301 Preen [0x0001_0068, 0x0001_0067] "{defect}" => Repair::RefreshChecksum;
        /// The root is no directory.
        RootNotDirectory { mode: u16 } = 302 DataLoss [0x0001_0001, 0x0003_0001, 0x0003_0014, 0x0003_0015] "the root is no directory (mode {mode:#o})" => Repair::CreateRoot;
        /// An inode in use has a deletion time.
        DeletionTimeSet { time: u32 } = 303 Preen [0x0001_0002, 0x0001_0005] "in use, but its deletion time is {time}" => Repair::SetField { field: "i_dtime", value: 0 };
        /// A deleted inode has no deletion time.
        DeletionTimeMissing {} = 304 Preen [0x0001_0004] "deleted, but without a time of deletion" => Repair::SetField { field: "i_dtime", value: 1 };
        /// A reserved inode has a mode that it cannot have.
        ReservedModeWrong { mode: u16, wanted: u16 } = 305 Preen [0x0001_0003, 0x0001_0035, 0x0001_0062, 0x0001_008f] "reserved inode has mode {mode:#o}, should have {wanted:#o}" => Repair::SetField { field: "i_mode", value: (*wanted).into() };
        /// A reserved inode that should be empty is not.
        ReservedNotClear { inode: InodeNumber } = 306 Preen [0x0001_0034, 0x0001_0063, 0x0001_0064, 0x0001_0090] "reserved and unused, but not empty" => Repair::ClearInode(*inode);
        /// A directory of no length.
        DirectoryEmpty { inode: InodeNumber } = 307 DataLoss [0x0001_0006] "directory without a block" => Repair::ClearInode(*inode);
        /// The size is not what the blocks call for.
        SizeWrong { stored: u64, wanted: u64 } = 308 Preen [0x0001_000c, 0x0001_0045, 0x0001_0044] "size is {stored}, should be {wanted}" => Repair::SetField { field: "i_size", value: *wanted };
        /// The count of blocks is not what is mapped.
        BlocksWrong { stored: u64, counted: u64 } = 309 Preen [0x0001_000d] "i_blocks is {stored}, should be {counted}" => Repair::SetField { field: "i_blocks", value: *counted };
        /// A special file has a size.
        SpecialSize { stored: u64 } = 310 Preen [0x0001_0032] "special file has size {stored}" => Repair::SetField { field: "i_size", value: 0 };
        /// The extra size cannot be.
        ExtraSizeWrong { stored: u16 } = 311 Preen [0x0001_004f] "i_extra_isize is {stored}" => Repair::SetField { field: "i_extra_isize", value: 32 };
        /// The mode names no kind of file.
        ModeWrong { inode: InodeNumber, mode: u16 } = 312 DataLoss [0x0002_0012] "mode {mode:#o} is none" => Repair::ClearInode(*inode);
        /// A device, pipe or socket that cannot be one.
        SpecialFileWrong { inode: InodeNumber } = 313 DataLoss [0x0002_0018, 0x0002_0019, 0x0002_0025, 0x0002_0026] "special file with a map" => Repair::ClearInode(*inode);
        /// A symbolic link that cannot be one.
        SymlinkWrong { inode: InodeNumber } = 314 DataLoss [0x0002_0031, 0x0001_0046] "symbolic link is invalid" => Repair::ClearInode(*inode);
        /// A field is not zero that has to be.
        FieldNotZero { field: &'static str, value: u64 } = 315 Repairable [0x0002_000d, 0x0002_000f, 0x0002_0010, 0x0002_0011, 0x0002_0044, 0x0002_0048, 0x0002_000e] "{field} is {value:#x}, should be 0" => Repair::SetField { field, value: 0 };
        /// A flag needs a feature that is off.
        FlagWithoutFeature { flag: &'static str, bits: u32 } = 316 Repairable [0x0001_005b, 0x0001_006f, 0x0001_0070, 0x0001_0089, 0x0001_005a] "flag {flag} is set, but the feature is not" => Repair::ClearInodeFlags(*bits);
        /// Flags that exclude each other or do not belong on this kind of file.
        FlagWrong { flag: &'static str, bits: u32 } = 317 Repairable [0x0001_005d, 0x0001_0077, 0x0001_0078, 0x0001_0079, 0x0001_007a, 0x0001_0088, 0x0001_0091, 0x0001_0048, 0x0001_0047] "flag {flag} does not belong here" => Repair::ClearInodeFlags(*bits);
        /// Extents are used although the flag is not set.
        ExtentsFlagMissing {} = 318 Preen [0x0001_005c] "has an extent tree, but the flag is not set" => Repair::SetInodeFlags(0x8_0000);
        /// Inline data without its attribute or of another size.
        InlineDataWrong { why: &'static str } = 319 DataLoss [0x0001_0075, 0x0002_004e, 0x0002_004f] "inline data: {why}" => Repair::Truncate { size: 0 };
        /// Something looks like a deletion time but is an inode number.
        OrphanChainRemains { next: u32 } = 320 Repairable [0x0001_0036, 0x0001_0037] "deletion time {next} looks like a link of the orphan list" => Repair::SetField { field: "i_dtime", value: 0 };
        /// An encrypted inode without a usable context.
        EncryptionContextWrong { inode: InodeNumber, missing: bool } = 321 DataLoss [0x0001_008a, 0x0001_008b] "encrypted, but its context is missing or damaged (missing: {missing})" => Repair::ClearInode(*inode);
        /// Data is encrypted by flag although the feature is off.
        MagicFlag {} = 322 Repairable [0x0001_002f] "flag of AFS is set, but the feature is not" => Repair::ClearInodeFlags(0x2000);
        /// The inode's slot cannot be read.
        Unreadable { why: String } = 323 DataLoss [0x0001_002c, 0x0001_0028] "{why}";
        /// The bad block inode is not what it has to be.
        BadBlocksInodeWrong { inode: InodeNumber } = 325 Repairable [0x0001_0065, 0x0001_007b, 0x0001_0011] "the bad block inode is not valid" => Repair::ClearInode(*inode);
        /// Flags on a special file that do nothing there.
        FlagsOddOnSpecial { bits: u32 } = 327 Note [0x0001_0030, 0x0001_0076] "special file with flags {bits:#x}" => Repair::ClearInodeFlags(*bits);
        /// Another kind of file by its mode, a directory by its contents.
        ReallyDirectory { found: u16, mode: u16 } = 328 Repairable [0x0001_0055] "mode is {found:#o}, but its contents are a directory's" => Repair::SetField { field: "i_mode", value: (*mode).into() };
        /// The inode holds an attribute's value although the feature is off.
        ValueFeatureUnset {} = 329 Repairable [0x0001_0092] "holds an attribute's value, but the feature ea_inode is not set" => Repair::SetFeature("ea_inode");
        /// One bit is wrong, and the checksum proves which.
        OneBitWrong { byte: u32, bit: u8 } = 330 Repairable [] "bit {bit} of byte {byte} is wrong, as the checksum proves" => Repair::FlipBit { byte: *byte, bit: *bit };
    }
}
