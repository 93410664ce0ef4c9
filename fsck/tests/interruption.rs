//! A repair that is stopped at any write or flush, and run again, ends where the undisturbed one ends: byte for byte.
//!
//! Two kinds of crash at each place. The soft one keeps every write that returned, and the first bytes of the one that was
//! under way. The hard one also loses a part of what no flush covers, and tears one of the writes that it keeps. A redo
//! log lies in a real file, which is as the interrupted repair left it.
//!
//! One thing may differ, and is masked: a journal that lost the power in the middle of a commit may hold other leftovers
//! in the part that its superblock calls empty, another number for the next transaction, and not yet the features that a
//! journal is given when it is first written to: where the primary superblock was torn by the crash, a redo log takes the
//! second repair. All of it is without meaning to whoever reads an empty log.

mod common;

use std::path::Path;
use std::sync::Arc;

use ext4kit_format::image::Image;
use ext4kit_format::journal::open_internal;
use ext4kit_format::num::index64;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{GroupNumber, InodeNumber};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{
    Counts, Effect, Fault, FaultyOperation, Record, Recorder, Rule, When, filesystem, fixture, oracle, seed,
};

use common::mend;

/// An undisturbed repair: what it leaves, and how many operations it took.
struct Undisturbed {
    after: MemoryStore,
    counts: Counts,
}

/// Repairs a copy of an image. `None` if the image cannot be repaired, which interruptions do not change.
fn undisturbed(image: &MemoryStore, redo_log: &Path) -> Option<Undisturbed> {
    let store = Arc::new(Fault::new(image.clone(), []));
    let run = mend(&(Arc::clone(&store) as Arc<dyn Store>), redo_log);
    let run = run.inspect_err(|error| eprintln!("not repaired: {error}")).ok()?;
    if run.outcome.stopped {
        eprintln!("not repaired: {:#?}", run.found);
        return None;
    }
    let counts = store.counts();
    let after = Arc::into_inner(store).expect("the repair is over").into_inner();
    Some(Undisturbed { after, counts })
}

/// What a crash left.
struct Crash {
    soft: MemoryStore,
    record: Record,
}

/// Repairs until the power goes at an operation.
fn crash(image: &MemoryStore, redo_log: &Path, rule: Rule) -> Crash {
    let recorder = Recorder::new(image.clone());
    let record = recorder.record();
    let store = Arc::new(Fault::new(recorder, [rule]));
    let run = mend(&(Arc::clone(&store) as Arc<dyn Store>), redo_log);
    assert!(store.is_dead(), "{rule:?} did not strike");
    assert!(run.is_err(), "{rule:?}: the repair noticed nothing");
    let soft = image.clone();
    record.replay_prefix(usize::MAX, &soft).unwrap();
    Crash { soft, record }
}

/// What is left if a part of the writes that no flush covers is lost, and one of the others torn.
fn hard(image: &MemoryStore, record: &Record, random: &mut fastrand::Rng) -> MemoryStore {
    let operations = record.operations();
    let volatile = record.volatile_after(operations.len());
    let torn = (!volatile.is_empty()).then(|| volatile[random.usize(..volatile.len())]);
    let left = image.clone();
    for (index, operation) in operations.iter().enumerate() {
        match operation {
            ext4kit_testkit::Operation::Write { offset, bytes } if torn == Some(index) => {
                let kept = random.usize(..=bytes.len() / 512) * 512;
                left.write_at(*offset, &bytes[..kept]).unwrap();
            }
            _ if volatile.contains(&index) && random.bool() => {}
            operation => operation.apply(&left).unwrap(),
        }
    }
    left
}

/// The bytes that count: those of an empty internal log and the number of its next transaction do not.
fn masked(bytes: &[u8]) -> Vec<u8> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::from_bytes(bytes));
    let mut masked = bytes.to_vec();
    let Ok(image) = Image::open(Arc::clone(&store)) else { return masked };
    let Ok(found) = open_internal(&image) else { return masked };
    let journal = found.journal;
    let superblock = journal.superblock();
    if superblock.s_start.get() != 0 || image.needs_recovery() {
        return masked;
    }
    let size = journal.blocks().block_size() as usize;
    let mut blank = |log_block: u32, from: usize, length: usize| {
        let Some(block) = journal.blocks().locate(log_block) else { return };
        let start = index64(block.0) * size + from;
        masked[start..start + length].fill(0);
    };
    let extent = journal.extent();
    for block in extent.first..extent.last {
        blank(block, 0, size);
    }
    // The sequence, the features and the type of checksum, the head, and the checksum over all.
    for (at, length) in [(0x18, 4), (0x24, 8), (0x50, 1), (0x58, 4), (0xfc, 4)] {
        blank(journal.blocks().superblock_block(), at, length);
    }
    masked
}

/// Leaves out what a run changes besides that had to mend a torn superblock: the check bears a time, the filesystem counts
/// as checked, and the copies are brought up to date.
fn without_times(bytes: &mut [u8]) {
    let Ok(image) = Image::open(Arc::new(MemoryStore::from_bytes(bytes))) else { return };
    let geometry = &image.layout().geometry;
    let size = geometry.block_length();
    // s_mtime to s_checkinterval, s_kbytes_written, s_lastcheck_hi, s_checksum.
    for (at, length) in [(0x2c, 0x1c), (0x178, 8), (0x277, 1), (0x3fc, 4)] {
        bytes[1024 + at..1024 + at + length].fill(0);
    }
    let tables = (0..geometry.descriptor_blocks()).flat_map(|block| geometry.descriptor_table_copies(block));
    let copies = geometry.backup_groups().into_iter().filter_map(|group| geometry.superblock_copy(group));
    for block in tables.chain(copies) {
        let start = index64(block.0) * size;
        bytes[start..start + size].fill(0);
    }
}

/// Whether two stores of one size hold the same; holes are not read.
fn are_equal(left: &MemoryStore, right: &MemoryStore) -> bool {
    let mut offset = 0;
    loop {
        let data = [left, right].into_iter().filter_map(|store| store.next_data(offset).unwrap());
        let Some(start) = data.map(|range| range.start.max(offset)).min() else { return true };
        let length = (left.size() - start).min(1 << 16) as usize;
        let (mut one, mut other) = (vec![0; length], vec![0; length]);
        left.read_at(start, &mut one).unwrap();
        right.read_at(start, &mut other).unwrap();
        if one != other {
            return false;
        }
        offset = start + length as u64;
        if offset >= left.size() {
            return true;
        }
    }
}

/// A difference as a person wants it: the first few places.
fn difference(left: &[u8], right: &[u8]) -> String {
    let places = left.iter().zip(right).enumerate().filter(|(_, (left, right))| left != right);
    let places: Vec<String> =
        places.map(|(at, (left, right))| format!("{at:#x}: {left:#x} for {right:#x}")).take(12).collect();
    places.join(", ")
}

/// What is tried.
struct Trial<'a> {
    name: &'a str,
    image: &'a MemoryStore,
    redo_log: &'a Path,
    end: Undisturbed,
}

impl Trial<'_> {
    fn finish(&self, rule: Rule, how: &str, left: &MemoryStore) {
        let store = Arc::new(left.clone());
        let run = mend(&(Arc::clone(&store) as Arc<dyn Store>), self.redo_log);
        let found = match run {
            Ok(run) => run.found,
            Err(error) => panic!("{}: {rule:?}, {how}: the second run failed: {error}", self.name),
        };
        assert!(!self.redo_log.exists(), "{}: {rule:?}, {how}: the log is still there", self.name);
        if !are_equal(&store, &self.end.after) {
            let (mut after, mut wanted) = (masked(&store.to_vec()), masked(&self.end.after.to_vec()));
            if found.iter().any(|found| found.starts_with("superblock: ")) {
                without_times(&mut after);
                without_times(&mut wanted);
            }
            let difference = difference(&after, &wanted);
            assert!(after == wanted, "{}: {rule:?}, {how}: {difference}\nafter {found:#?}", self.name);
        }
    }

    /// Stops the repair at one operation, in every way.
    fn stop_at(&self, rule: Rule, random: &mut fastrand::Rng) -> bool {
        let crash = crash(self.image, self.redo_log, rule);
        let log = std::fs::read(self.redo_log).ok();
        let restore = || match &log {
            Some(bytes) => std::fs::write(self.redo_log, bytes).unwrap(),
            None => assert!(!self.redo_log.exists()),
        };
        self.finish(rule, "soft", &crash.soft);
        for _ in 0..2 {
            restore();
            self.finish(rule, "hard", &hard(self.image, &crash.record, random));
        }
        // Another program must be able to finish what only the journal holds.
        if log.is_none() && random.u8(..4) == 0 && waits(&crash.soft) {
            e2fsck_finishes(self.name, rule, &crash.soft);
        }
        log.is_some()
    }
}

/// Whether the journal holds a commit that is to be replayed.
fn waits(left: &MemoryStore) -> bool {
    let Ok(image) = Image::open(Arc::new(left.clone())) else { return false };
    let log = open_internal(&image).map(|found| found.journal.superblock().s_start.get());
    image.needs_recovery() && log.is_ok_and(|start| start != 0)
}

fn e2fsck_finishes(name: &str, rule: Rule, left: &MemoryStore) {
    let image = TempImage::of(left).unwrap();
    let Some(run) = oracle::run_on("e2fsck", &["-fy"], &image.path()) else { return };
    assert!(run.code < 4, "{name}: {rule:?}: e2fsck -fy ends with {}:\n{}", run.code, run.stdout);
    let second = oracle::run_on("e2fsck", &["-fn"], &image.path()).expect("it was there a moment ago");
    assert_eq!(second.code, 0, "{name}: {rule:?}: {}", second.stdout);
}

/// The places to stop at: all, or a sample where there are many.
fn sample(count: u64, most: u64, random: &mut fastrand::Rng) -> Vec<u64> {
    if count <= most {
        return (0..count).collect();
    }
    let mut places: Vec<u64> =
        (0..most).map(|_| random.u64(..count)).chain([0, 1, count - 2, count - 1]).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// How many places a repair was stopped at, and at how many of them a redo log waited.
#[derive(Clone, Copy, Default, Debug)]
struct Stopped {
    places: u64,
    with_log: u64,
}

/// Stops a repair everywhere. `None` if there is nothing to repair, or no way to.
fn interrupt(name: &str, image: &MemoryStore, most: u64, random: &mut fastrand::Rng) -> Option<Stopped> {
    let folder = tempfile::tempdir().unwrap();
    let redo_log = folder.path().join("redo");
    let end = undisturbed(image, &redo_log)?;
    let Counts { writes, flushes, .. } = end.counts;
    if writes == 0 {
        return None;
    }
    let trial = Trial { name, image, redo_log: &redo_log, end };
    let mut stopped = Stopped::default();
    let mut stop = |operation, nth, keep| {
        let rule = Rule { operation, when: When::Nth(nth), effect: Effect::PowerCut { keep } };
        stopped.places += 1;
        stopped.with_log += u64::from(trial.stop_at(rule, random));
    };
    let mut places = fastrand::Rng::with_seed(most);
    for nth in sample(writes, most, &mut places) {
        stop(FaultyOperation::Write, nth, 0);
        stop(FaultyOperation::Write, nth, places.u64(1..5) * 512);
    }
    for nth in sample(flushes, most, &mut places) {
        stop(FaultyOperation::Flush, nth, 0);
    }
    Some(stopped)
}

fn small() -> MemoryStore {
    fixture::load("images/small-ext4.img.zst")
}

/// Damage that touches several kinds of block.
fn damaged(image: &MemoryStore) -> MemoryStore {
    Damage::to(image)
        .inode(InodeNumber::ROOT, |inode| inode.set_links(77))
        .descriptor(GroupNumber(0), |group| group.free_clusters += 1)
        .superblock(|superblock| superblock.set_free_blocks_count(1))
        .finish()
}

fn expect(name: &'static str, image: &MemoryStore, through_log: bool) {
    let mut random = seed::Random::of(name);
    let stopped = interrupt(name, image, 60, &mut random).expect("there is something to repair");
    assert!(stopped.places > 5, "{name}: {stopped:?}");
    assert_eq!(stopped.with_log > 0, through_log, "{name}: {stopped:?}");
}

#[test]
fn through_the_journal() {
    expect("through the journal", &damaged(&filesystem::ext4(8192, 1024)), false);
}

#[test]
fn without_a_journal() {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(4096, 1024, "^has_journal"));
    filesystem::commit_clean(&store, &mut overlay);
    expect("without a journal", &damaged(&store), true);
}

/// The change is more than the journal holds.
#[test]
fn a_journal_that_is_too_small() {
    let image = filesystem::ext4(65_536, 1024);
    let mut damage = Damage::to(&image);
    let groups = damage.transaction().layout().geometry.group_count();
    for group in 0..groups {
        damage = damage.descriptor(GroupNumber(group), |group| group.free_inodes = 1);
    }
    let image = shrink_journal(&damage.finish());
    expect("a journal that is too small", &image, true);
}

/// Makes the log end early, as that of a journal with few blocks would.
fn shrink_journal(image: &MemoryStore) -> MemoryStore {
    let opened = Image::open(Arc::new(image.clone())).unwrap();
    let journal = open_internal(&opened).unwrap().journal;
    let mut superblock = journal.superblock().clone();
    superblock.s_first.set(superblock.s_maxlen.get() - 4);
    superblock.seal();
    let at = journal.blocks().locate(journal.blocks().superblock_block()).unwrap();
    let image = image.clone();
    image.write_at(at.0 * 1024, zerocopy::IntoBytes::as_bytes(&superblock)).unwrap();
    image
}

/// The primary superblock is no superblock any more; a copy takes its place.
#[test]
fn a_superblock_that_is_lost() {
    let image = damaged(&filesystem::ext4(16_384, 1024));
    image.write_at(1024 + 0x38, &[0; 2]).unwrap();
    expect("a superblock that is lost", &image, true);
}

/// The repair gives the filesystem its identity back, so that a log is met by a filesystem of either name.
#[test]
fn a_superblock_with_another_identity() {
    let image = damaged(&filesystem::ext4(16_384, 1024));
    image.write_at(1024 + 0x68, &[0x99; 16]).unwrap();
    expect("a superblock with another identity", &image, true);
}

/// The journal waits: it is recovered in place before the check.
#[test]
fn a_recovery_before_the_check() {
    let image = fixture::load("images/dirty-churn-4k.img.zst");
    let mut random = seed::Random::of("a recovery before the check");
    let stopped = interrupt("a recovery before the check", &image, 30, &mut random).unwrap();
    assert!(stopped.places > 30, "{stopped:?}");
    // And with a repair to make afterwards.
    let image = Damage::to(&image).inode(InodeNumber::new(11).unwrap(), |inode| inode.set_links(77)).finish();
    interrupt("a recovery before a repair", &image, 30, &mut random).unwrap();
}

/// What is left of a repair through the journal that was cut just after it became valid.
fn with_waiting_journal(image: &MemoryStore) -> MemoryStore {
    let folder = tempfile::tempdir().unwrap();
    let redo_log = folder.path().join("redo");
    let cut = |nth| {
        let effect = Effect::PowerCut { keep: 0 };
        let rule = Rule { operation: FaultyOperation::Write, when: When::Nth(nth), effect };
        crash(image, &redo_log, rule).soft
    };
    (0..100).map(cut).find(waits).expect("the repair goes through the journal")
}

/// The primary superblock is lost and the journal waits: it is replayed in memory, and emptied with the commit.
#[test]
fn a_replay_in_memory() {
    let image = with_waiting_journal(&damaged(&filesystem::ext4(16_384, 1024)));
    image.write_at(1024 + 0x38, &[0; 2]).unwrap();
    let mut random = seed::Random::of("a replay in memory");
    let stopped = interrupt("a replay in memory", &image, 30, &mut random).unwrap();
    assert!(stopped.with_log > 0, "{stopped:?}");
}

/// A repair whose redo log waits: whoever only looks sees the filesystem as it will be, and whoever writes finishes it.
#[test]
fn a_waiting_log_is_looked_through_and_finished() {
    let image = damaged(&filesystem::ext4(16_384, 1024));
    image.write_at(1024 + 0x38, &[0; 2]).unwrap();
    let target = TempImage::of(&image).unwrap();
    let path = target.path();
    let mut log = path.file_name().unwrap().to_owned();
    log.push(".ext4kit-redo");
    let log = path.with_file_name(log);
    // The second write in place is cut.
    let effect = Effect::PowerCut { keep: 0 };
    let left = crash(&image, &log, Rule { operation: FaultyOperation::Write, when: When::Nth(1), effect });
    std::fs::write(&path, left.soft.to_vec()).unwrap();
    let (before, waiting) = (std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap());
    let fsck = |option: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ext4kit-fsck"));
        let output = command.arg(option).arg(&path).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = fsck("-fn");
    assert_eq!(code, Some(0), "{text}");
    assert!(before == std::fs::read(&path).unwrap() && waiting == std::fs::read(&log).unwrap());
    // A torn log is no log, but whoever only looks does not remove it.
    std::fs::write(&log, &waiting[..waiting.len() - 1]).unwrap();
    assert_eq!(fsck("-fn").0, Some(4));
    assert!(log.exists());
    std::fs::write(&log, &waiting).unwrap();
    let (code, text) = fsck("-fy");
    assert!(code == Some(0) && text.contains("an interrupted repair was finished"), "{code:?}: {text}");
    assert!(!log.exists());
    oracle::assert_clean(&target.load().unwrap());
    // The log of another filesystem is in nobody's way for long: it is named, and nothing is written.
    let other = filesystem::ext4(20_000, 1024).to_vec();
    std::fs::write(&path, &other).unwrap();
    std::fs::write(&log, &waiting).unwrap();
    assert_eq!(fsck("-fy").0, Some(8));
    assert!(other == std::fs::read(&path).unwrap() && log.exists());
    std::fs::remove_file(&log).unwrap();
}

fn mutate(image: &MemoryStore, blocks: &[u64], random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..6) {
        let at = blocks[random.usize(..blocks.len())] + random.u64(..1024);
        match random.u8(..3) {
            0 => {
                let mut byte = [0];
                image.read_at(at, &mut byte).unwrap();
                image.write_at(at, &[byte[0] ^ (1 << random.u8(..8))]).unwrap();
            }
            1 => image.write_at(at, &[random.u8(..)]).unwrap(),
            _ => {
                let at = (at & !3).min(image.size() - 4);
                image
                    .write_at(at, &[0, 1, u32::MAX, random.u32(..)][random.usize(..4)].to_le_bytes())
                    .unwrap();
            }
        }
    }
}

fn mutants(name: &'static str, base: &MemoryStore, rounds: u32) {
    let bytes = base.to_vec();
    let blocks: Vec<u64> = bytes
        .chunks(1024)
        .enumerate()
        .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        .map(|(at, _)| at as u64 * 1024)
        .collect();
    let mut random = seed::Random::of(name);
    let (mut tried, mut all) = (0, Stopped::default());
    for round in 0..rounds {
        let image = base.clone();
        mutate(&image, &blocks, &mut random);
        if let Some(stopped) = interrupt(&format!("{name}, round {round}"), &image, 12, &mut random) {
            tried += 1;
            all.places += stopped.places;
            all.with_log += stopped.with_log;
        }
    }
    eprintln!("{name}: {tried} of {rounds} repaired, {all:?}");
    assert!(tried > rounds / 3, "{tried} of {rounds}");
}

#[test]
fn interrupted_mutants() {
    mutants("interrupted mutants", &small(), seed::mutants(60));
}

#[test]
fn interrupted_mutants_without_a_journal() {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(2048, 1024, "^has_journal"));
    filesystem::commit_clean(&store, &mut overlay);
    mutants("interrupted mutants without a journal", &store, seed::mutants(40));
}

/// The folder of the corpus, for [`every_repair_of_the_corpus`].
const CORPUS: &str = "EXT4KIT_CORPUS";

/// An image of the corpus, unpacked by `xz`.
fn unpack(path: &Path) -> MemoryStore {
    let output = std::process::Command::new("xz").arg("-dc").arg(path).output().expect("xz is installed");
    assert!(output.status.success(), "{}", path.display());
    MemoryStore::from_bytes(&output.stdout)
}

/// Images whose log overwrites the inode of the journal, or its superblock: once a part of it is replayed, nobody finds the
/// rest any more. No order of writes helps, as the log is where that inode says.
const OVERWRITE_THEIR_JOURNAL: [&str; 2] = ["f_journal", "j_long_trans_mcsum_64bit"];

/// `cargo xtask interrupt`: every write of every repair of the corpus.
#[test]
#[ignore = "takes long, and needs the corpus beside the repository"]
fn every_repair_of_the_corpus() {
    let Some(folder) = std::env::var_os(CORPUS).map(std::path::PathBuf::from) else {
        ext4kit_testkit::skip::missing(&format!("{CORPUS} does not name the folder of the corpus"));
        return;
    };
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&read("manifest.json")).unwrap();
    let split: serde_json::Value = serde_json::from_slice(&read("split.json")).unwrap();
    let open = split["open"].as_array().unwrap();
    let cases: Vec<&serde_json::Value> = manifest["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| open.contains(&case["name"]) && case["image"].is_string())
        .filter(|case| !OVERWRITE_THEIR_JOURNAL.contains(&case["name"].as_str().unwrap()))
        .collect();
    assert!(!cases.is_empty());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    let most = seed::mutants(u32::MAX).into();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) {
                    let name = case["name"].as_str().unwrap();
                    let image = unpack(&folder.join(case["image"].as_str().unwrap()));
                    let mut random = fastrand::Rng::with_seed(1);
                    let run = || interrupt(name, &image, most, &mut random);
                    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                        Ok(Some(stopped)) => eprintln!("{name}: {stopped:?}"),
                        Ok(None) => eprintln!("{name}: nothing is written"),
                        Err(_) => failed.lock().unwrap().push(name.to_owned()),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    eprintln!("{} cases, {} failed", cases.len(), failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}
