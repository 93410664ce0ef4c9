//! Journals in memory, for tests: built block by block, so that damage can be put anywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use super::*;
use crate::disk::fast_commit::{AreaWriter, Record};
use crate::disk::jbd2::superblock::CHECKSUM_CRC32C;
use crate::disk::jbd2::{ChecksumVersion, CompatFeatures, IncompatFeatures};
use crate::ids::{BlockNumber, BlockRun, TransactionId};
use crate::store::{MemoryStore, Store};

/// Bytes of a block in test journals.
pub const BLOCK: usize = 1024;

/// Blocks of a test image. The journal's are 700 to 1199 and then 100 to 655. Only 1024 of them are in use unless
/// there is a fast-commit area.
pub const DEVICE: u64 = 1300;
const RUNS: [BlockRun; 2] =
    [BlockRun { start: BlockNumber(700), length: 500 }, BlockRun { start: BlockNumber(100), length: 556 }];

/// An image whose journal is being written, and what a replay of it should leave.
#[derive(Clone)]
pub struct LogBuilder {
    pub superblock: JournalSuperblock,
    pub image: Vec<u8>,
    /// Where the next transaction begins.
    pub cursor: u32,
    pub sequence: TransactionId,
    pub seconds: u64,
    extent: LogExtent,
    external: bool,
}

impl LogBuilder {
    pub fn new(checksums: ChecksumVersion, wide: bool) -> Self {
        let mut incompat = IncompatFeatures::empty();
        incompat.set(IncompatFeatures::WIDE, wide);
        incompat.set(IncompatFeatures::CHECKSUM_V2, checksums == ChecksumVersion::V2);
        incompat.set(IncompatFeatures::CHECKSUM_V3, checksums == ChecksumVersion::V3);
        let mut superblock = JournalSuperblock::new(1024, 1024, 1);
        if checksums == ChecksumVersion::V1 {
            superblock.s_feature_compat = U32::new(CompatFeatures::CHECKSUM.bits());
        }
        superblock.s_feature_incompat = U32::new(incompat.bits());
        superblock.s_checksum_type = CHECKSUM_CRC32C;
        superblock.s_uuid = *b"the journal uuid";
        let image = vec![0; usize::try_from(DEVICE).unwrap() * BLOCK];
        let extent = LogExtent { first: 1, last: 1024, fast_commit: 1024, end: 1024 };
        let (sequence, seconds) = (TransactionId(1), 1_700_000_000);
        Self { superblock, image, cursor: 0, sequence, seconds, extent, external: false }
            .beginning(1, TransactionId(1))
    }

    /// The empty log begins at this block, with this number.
    pub fn beginning(mut self, start: u32, sequence: TransactionId) -> Self {
        self.superblock.s_start = U32::new(start);
        self.superblock.s_sequence = U32::new(sequence.0);
        self.cursor = start;
        self.sequence = sequence;
        self.store_superblock();
        self
    }

    pub fn with_incompat(mut self, features: IncompatFeatures) -> Self {
        self.superblock.s_feature_incompat |= U32::new(features.bits());
        self.store_superblock();
        self
    }

    /// Adds a fast-commit area behind the log, in journal blocks 1025 to 1055, with these records.
    pub fn with_fast_commits(mut self, records: &[Record<'_>]) -> Self {
        self.superblock.s_maxlen = U32::new(1056);
        self.superblock.s_num_fc_blks = U32::new(32);
        let mut log = self.with_incompat(IncompatFeatures::FAST_COMMIT);
        let mut writer = AreaWriter::new(1024);
        assert!(records.iter().all(|record| writer.push(record)));
        for (block, bytes) in (1025..).zip(writer.finish().chunks(BLOCK)) {
            log.log_block(block).copy_from_slice(bytes);
        }
        log
    }

    pub fn store_superblock(&mut self) {
        self.superblock.seal();
        let bytes = self.superblock.as_bytes().to_vec();
        let at = if self.external { 2 } else { 0 };
        self.log_block(at).copy_from_slice(&bytes);
    }

    /// From here on the image is the journal's own device.
    pub fn on_a_device_of_its_own(mut self) -> Self {
        self.external = true;
        self.extent.first = self.superblock.s_first.get();
        self.image.fill(0);
        self.store_superblock();
        self
    }

    pub fn external_journal(&self) -> Result<Journal> {
        let store = Arc::new(MemoryStore::from_bytes(&self.image));
        Journal::open(LogBlocks::external(store, 1024).unwrap())
    }

    /// Appends a transaction: blocks filled with a byte, and revokes.
    pub fn transaction(&mut self, blocks: &[(u64, u8)], revokes: &[u64]) -> &mut Self {
        let contents: Vec<(u64, Vec<u8>)> =
            blocks.iter().map(|(at, fill)| (*at, vec![*fill; BLOCK])).collect();
        self.transaction_of(&contents, revokes)
    }

    pub fn transaction_of(&mut self, blocks: &[(u64, Vec<u8>)], revokes: &[u64]) -> &mut Self {
        let blocks: Vec<(BlockNumber, &[u8])> =
            blocks.iter().map(|(at, bytes)| (BlockNumber(*at), bytes.as_slice())).collect();
        let revokes: Vec<BlockNumber> = revokes.iter().map(|block| BlockNumber(*block)).collect();
        let (id, seconds) = (self.sequence, self.seconds);
        let contents = TransactionContents { id, seconds, blocks: &blocks, revokes: &revokes };
        let format = self.superblock.format();
        let encoded = encode_transaction(format, self.superblock.s_uuid, &contents).unwrap();
        for block in encoded.body.iter().chain([&encoded.commit]) {
            self.append(block);
        }
        self.sequence = self.sequence.next();
        self.seconds += 1;
        self
    }

    /// Puts a block at the cursor.
    pub fn append(&mut self, bytes: &[u8]) {
        let at = self.cursor;
        self.log_block(at).copy_from_slice(bytes);
        self.cursor = self.extent.after(at);
    }

    /// The bytes of a log block.
    pub fn log_block(&mut self, block: u32) -> &mut [u8] {
        if self.external {
            let at = usize::try_from(block).unwrap() * BLOCK;
            return &mut self.image[at..at + BLOCK];
        }
        let mut rest = u64::from(block);
        let run = RUNS.iter().find(|run| {
            let inside = rest < run.length;
            rest -= if inside { 0 } else { run.length };
            inside
        });
        let at = usize::try_from(run.unwrap().start.0 + rest).unwrap() * BLOCK;
        &mut self.image[at..at + BLOCK]
    }

    pub fn journal(&self) -> Result<Journal> {
        journal_on(Arc::new(MemoryStore::from_bytes(&self.image)))
    }

    pub fn scan(&self) -> (Journal, Scan) {
        let journal = self.journal().unwrap();
        let scan = journal.scan(DEVICE).unwrap();
        (journal, scan)
    }

    /// What a replay writes: see [`replay`].
    pub fn replayed(&self) -> BTreeMap<u64, u8> {
        let (journal, scan) = self.scan();
        replay(&journal, &scan, None)
    }
}

/// The journal of a test image on any store.
pub fn journal_on(store: Arc<dyn Store>) -> Result<Journal> {
    Journal::open(LogBlocks::internal(store, 1024, &RUNS).unwrap())
}

/// What a replay writes: for each block its last byte, which no escape touches.
pub fn replay(journal: &Journal, scan: &Scan, until: Option<TransactionId>) -> BTreeMap<u64, u8> {
    let mut written = BTreeMap::new();
    let plan = ReplayPlan::new(scan, until).unwrap();
    let done = plan.apply(journal, |block, bytes| {
        assert_eq!(bytes.len(), BLOCK);
        assert!(written.insert(block.0, bytes[BLOCK - 1]).is_none(), "block {block} was written twice");
        Ok(())
    });
    assert_eq!(done.unwrap().written, written.len() as u64);
    written
}

/// Every kind of log there is.
pub fn kinds() -> impl Iterator<Item = (ChecksumVersion, bool)> {
    use ChecksumVersion::{None, V1, V2, V3};
    [None, V1, V2, V3].into_iter().flat_map(|version| [(version, false), (version, true)])
}
