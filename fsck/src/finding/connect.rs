//! Problems of how directories hang together.

use ext4kit_format::InodeNumber;

use crate::repair::Repair;

problems! {
    /// A problem of connectivity.
    ConnectProblem {
        /// There is no root.
        RootMissing {} = 701 DataLoss [0x030001, 0x030015] "there is no root directory" => Repair::CreateRoot;
        /// No path leads to a directory.
        Unconnected { inode: InodeNumber, parent: u32 } = 702 Repairable [0x030003] "no directory names it (`..` is {parent})" => Repair::Reconnect(*inode);
        /// A directory lies in itself.
        Loop { inode: InodeNumber } = 703 Repairable [0x03001d] "it lies in itself" => Repair::Reconnect(*inode);
        /// `..` is not the directory that names it.
        ParentWrong { stored: u32, wanted: InodeNumber } = 704 Repairable [0x030005] "`..` is {stored}, should be {wanted}" => Repair::SetEntryTarget { offset: 12, inode: *wanted };
        /// There is no lost+found.
        LostAndFoundMissing {} = 705 Note [0x030004] "there is no /lost+found" => Repair::CreateLostAndFound;
        /// lost+found is no directory.
        LostAndFoundWrong { why: &'static str } = 706 Repairable [0x030017, 0x030018, 0x03001b] "/lost+found {why}" => Repair::CreateLostAndFound;
    }
}
