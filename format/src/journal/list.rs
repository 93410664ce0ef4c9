//! Looking into a log: single copies, all versions of a block, copies that do not match their checksums.

use super::Journal;
use super::scan::{LoggedBlock, Scan};
use crate::disk::jbd2::tags::TagFlags;
use crate::disk::jbd2::unescape;
use crate::error::Result;
use crate::ids::{BlockNumber, TransactionId};

/// A copy whose checksum is not the one in its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCopy {
    /// The transaction that wrote it.
    pub transaction: TransactionId,
    /// The copy and its stored checksum.
    pub copy: LoggedBlock,
    /// The checksum that its contents give.
    pub computed: u32,
}

/// One version of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The transaction that wrote it.
    pub transaction: TransactionId,
    /// Where it lies.
    pub copy: LoggedBlock,
    /// The last transaction whose revoke cancels this version, if one does.
    pub revoked_by: Option<TransactionId>,
}

impl Scan {
    /// Every version of a block that the log still holds, oldest first, those that are revoked included.
    pub fn versions_of(&self, block: BlockNumber) -> Vec<Version> {
        let mut versions: Vec<Version> = Vec::new();
        for transaction in self.transactions() {
            let copies = self.blocks_of(transaction).iter().filter(|copy| copy.target == block);
            versions.extend(copies.map(|copy| Version {
                transaction: transaction.id,
                copy: *copy,
                revoked_by: None,
            }));
            if self.revokes_of(transaction).contains(&block.0) {
                for version in &mut versions {
                    version.revoked_by = Some(transaction.id);
                }
            }
        }
        versions
    }
}

impl Journal {
    /// A copy's bytes as a replay would write them.
    pub fn read_copy(&self, copy: &LoggedBlock) -> Result<Vec<u8>> {
        let mut bytes = self.blocks().read(copy.log_block, &mut Vec::new())?.to_vec();
        if copy.flags.contains(TagFlags::ESCAPE) {
            unescape(&mut bytes);
        }
        Ok(bytes)
    }

    /// Reads every copy of every whole transaction and returns those that do not match their checksums.
    pub fn check_copies(&self, scan: &Scan) -> Result<Vec<BadCopy>> {
        let mut bad = Vec::new();
        let mut buffer = Vec::new();
        for transaction in scan.transactions() {
            for copy in scan.blocks_of(transaction) {
                let bytes = self.blocks().read(copy.log_block, &mut buffer)?;
                bad.extend(self.check_copy(transaction.id, copy, bytes).err());
            }
        }
        Ok(bad)
    }
}
