//! Problems of the journal and of orphans.

use ext4kit_format::InodeNumber;

use crate::repair::Repair;

problems! {
    /// A problem of the journal or of orphans.
    JournalProblem {
        /// The journal's inode is not one.
        InodeInvalid { why: String } = 1001 Preen [0x0000_000f, 0x0000_0011] "journal inode: {why}" => Repair::RecreateJournal;
        /// The journal's superblock is damaged.
        SuperblockDamaged { why: String } = 1002 Preen [0x0000_0015, 0x0000_0012, 0x0000_004a, 0x0000_0019] "journal superblock: {why}" => Repair::RecreateJournal;
        /// The journal has features that are not known.
        Unsupported { why: String } = 1003 Fatal [0x0000_0014, 0x0000_0025, 0x0000_0026, 0x0000_0027, 0x0000_0010] "journal: {why}";
        /// There is no journal, but its inode is named.
        FeatureUnset {} = 1004 Preen [0x0000_0016] "a journal is named, but has_journal is not set" => Repair::SetField { field: "s_journal_inum", value: 0 };
        /// Recovery is asked for without a journal.
        RecoveryWithoutJournal {} = 1005 Preen [0x0000_0017, 0x0000_0018] "needs_recovery is set without a journal to replay" => Repair::ClearFeature("needs_recovery");
        /// The log is damaged.
        LogDamaged { why: String } = 1006 Repairable [0x0000_003a] "the log is damaged: {why}" => Repair::RecreateJournal;
        /// The journal has to be replayed.
        ReplayDue { blocks: u64 } = 1007 Note [0x0000_002b, 0x0000_002c] "the journal was replayed in memory ({blocks} blocks)";
        /// The orphan list is damaged.
        OrphanListDamaged { inode: u32, why: &'static str } = 1008 Repairable [0x0000_0023, 0x0000_0024, 0x0000_0021, 0x0000_0022] "orphan list: inode {inode} {why}" => Repair::ClearOrphans;
        /// Orphans wait for being deleted or cut.
        OrphansWaiting { count: u64 } = 1009 Note [0x0000_0020] "{count} orphans wait for their end" => Repair::ClearOrphans;
        /// The orphan file is damaged.
        OrphanFileDamaged { why: String } = 1010 Preen [0x0000_0052, 0x0000_0053, 0x0000_0054, 0x0000_0055, 0x0006_0009, 0x0006_000f, 0x0006_0010] "orphan file: {why}" => Repair::ClearOrphans;
        /// An orphan file without a journal.
        OrphanFileWithoutJournal {} = 1011 Preen [0x0006_0007] "orphan_file is set without has_journal" => Repair::ClearFeature("orphan_file");
        /// Orphans are said to be there without an orphan file.
        OrphansWithoutFile {} = 1012 Preen [0x0006_000e] "orphan_present is set without orphan_file" => Repair::ClearFeature("orphan_present");
        /// Orphans are said to be there, but there are none.
        OrphansAbsent {} = 1013 Note [0x0006_000d] "orphan_present is set, but there are no orphans" => Repair::ClearFeature("orphan_present");
        /// An orphan file entry although none should be there.
        OrphanFileDirty { inode: InodeNumber } = 1014 Preen [0x0006_000c] "orphan file names inode {inode}, although none should be there" => Repair::ClearOrphans;
        /// An external journal's hint is stale.
        ExternalUnavailable { why: String } = 1015 Fatal [0x0000_0011, 0x0000_0013, 0x0000_0033] "{why}";
        /// The backup of the journal's map is stale.
        BackupStale {} = 1016 Note [0x0000_002d] "s_jnl_blocks is not the journal's map";
        /// Fast commits wait that were not replayed here.
        FastCommitsWaiting {} = 1017 Note [] "fast commits are left; they are not replayed here yet";
        /// The log holds transactions although no recovery is asked for.
        DataWithoutRecovery {} = 1018 Repairable [0x0000_0018] "the log holds transactions, but needs_recovery is not set" => Repair::RecreateJournal;
        /// Orphans are left on a filesystem whose journal is empty.
        OrphansLeft { count: u64 } = 1019 Preen [0x0000_0020] "{count} orphans are left" => Repair::ClearOrphans;
    }
}
