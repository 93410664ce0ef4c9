//! Problems of how directories hang together.

use ext4kit_format::InodeNumber;

use crate::repair::Repair;

problems! {
    /// A problem of connectivity.
    ConnectProblem {
        /// There is no root.
        RootMissing {} = 701 DataLoss [0x0003_0001, 0x0003_0015] "there is no root directory" => Repair::CreateRoot;
        /// No path leads to a directory.
        Unconnected { inode: InodeNumber, parent: u32 } = 702 Repairable [0x0003_0003] "no directory names it (`..` is {parent})" => Repair::Reconnect(*inode);
        /// A directory lies in itself.
        Loop { inode: InodeNumber } = 703 Repairable [0x0003_001d] "it lies in itself" => Repair::Reconnect(*inode);
        /// `..` is not the directory that names it.
        ParentWrong { stored: u32, wanted: InodeNumber } = 704 Repairable [0x0003_0005] "`..` is {stored}, should be {wanted}" => Repair::SetEntryTarget { offset: 12, inode: *wanted };
        /// There is no lost+found.
        LostAndFoundMissing {} = 705 Note [0x0003_0004] "there is no /lost+found" => Repair::CreateLostAndFound;
        /// lost+found is no directory.
        LostAndFoundWrong { why: &'static str } = 706 Repairable [0x0003_0017, 0x0003_0018, 0x0003_001b] "/lost+found {why}" => Repair::CreateLostAndFound;
    }
}
