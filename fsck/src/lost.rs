//! Filesystems whose superblock is lost: every superblock on a device, which filesystem each is of, and a vote.
//!
//! Nothing needs to be known: not the block size, not where copies lie, not even where the filesystem begins, as after
//! a lost partition table. A copy names its group, and its geometry says how far into the filesystem that group's copy
//! lies; copies that agree on where the filesystem begins, on its UUID and on its shape are of one filesystem. What a
//! journal or a file holds of superblocks agrees with nothing, and loses.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use ext4kit_format::GroupNumber;
use ext4kit_format::create::write_backups;
use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::disk::superblock::{MAGIC, PRIMARY_OFFSET, SIZE, Superblock, field_text, state};
use ext4kit_format::error::{Error, Place, Result};
use ext4kit_format::image::check_readable;
use ext4kit_format::layout::Layout;
use ext4kit_format::num::wide;
use ext4kit_format::store::{Store, SubRange};
use ext4kit_format::txn::Overlay;
use ext4kit_format::{BlockNumber, Defect, bytes};
use serde::Serialize;

use crate::finding::{Finding, Problem, SuperblockProblem};
use crate::opening::Opened;
use crate::opening::copies::same_shape;
use crate::repairs::superblock::Ground;
use crate::repairs::{groups, superblock};
use crate::source::Source;

/// Superblocks lie at multiples of this, in bytes: devices have sectors of so much.
const STEP: usize = 512;
/// What is read at once, in bytes.
const CHUNK: usize = 1 << 20;
/// The most superblocks that are kept. A device that holds more is full of them on purpose.
const MOST: usize = 1 << 16;
/// Where `s_magic` lies in a superblock, in bytes.
const MAGIC_AT: usize = 0x38;

/// Every filesystem that superblocks were found of, the likeliest first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// How many bytes were looked at.
    pub scanned: u64,
    /// Whether there were more superblocks than were kept.
    pub truncated: bool,
    /// The filesystems.
    pub filesystems: Vec<Lost>,
}

/// One filesystem as its superblocks describe it.
#[derive(Clone, Debug, Serialize)]
pub struct Lost {
    /// Where it begins, in bytes from the start of the device.
    pub start: u64,
    /// Its UUID.
    pub uuid: String,
    /// Its label.
    pub label: String,
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Whether it fits the device.
    pub fits: bool,
    /// Whether the superblocks carry checksums, and all that count are right.
    pub has_checksums: bool,
    /// How many superblocks it has when it is whole, the primary one included.
    pub expected: u64,
    /// Those that were found, in order of place.
    pub found: Vec<FoundAt>,
    /// The superblock that was written last, to rebuild by.
    #[serde(skip)]
    pub superblock: Superblock,
}

/// Where a superblock of a filesystem was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FoundAt {
    /// Bytes from the start of the device.
    pub offset: u64,
    /// The group that it belongs to; 0 is the primary one.
    pub group: u32,
    /// Its block, counted in the filesystem, as `-b` takes it.
    pub block: u64,
    /// When it was written, in seconds.
    pub written: u64,
}

/// Scans a whole device for superblocks. `progress` is told how many bytes of how many are done.
pub fn find_superblocks(store: &dyn Store, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
    let mut report = Report::default();
    let mut found: Vec<Hit> = Vec::new();
    let mut at = 0u64;
    let mut buffer = vec![0; CHUNK.saturating_add(SIZE)];
    while at < store.size() {
        // Holes hold nothing.
        match store.next_data(at).map_err(Error::io(Place::Bytes { offset: at, length: 0 }))? {
            Some(data) => {
                let over = data.start.checked_rem(wide(STEP)).unwrap_or(0);
                let start = data.start.saturating_sub(over);
                at = at.max(start);
            }
            None => break,
        }
        let length = store.size().saturating_sub(at).min(wide(buffer.len()));
        let length = usize::try_from(length).unwrap_or(buffer.len());
        let Some(bytes) = buffer.get_mut(..length) else { break };
        // A device that is damaged so far that this is needed has bad sectors; what cannot be read holds nothing.
        let readable = store.read_at(at, bytes).is_ok();
        if readable {
            look(bytes, at, &mut found);
        } else {
            look_by_sector(store, at, length, &mut found);
        }
        report.scanned = report.scanned.saturating_add(wide(length.min(CHUNK)));
        at = at.saturating_add(wide(CHUNK));
        progress(at.min(store.size()), store.size());
    }
    report.truncated = found.len() >= MOST;
    report.filesystems = vote(found, store.size());
    Ok(report)
}

/// A superblock that makes sense by itself.
struct Hit {
    offset: u64,
    start: u64,
    group: u32,
    block: u64,
    superblock: Superblock,
    layout: Layout,
}

/// Looks at every place of a stretch where a superblock can begin.
fn look(stretch: &[u8], at: u64, found: &mut Vec<Hit>) {
    let starts = (0..stretch.len().min(CHUNK)).step_by(STEP);
    for start in starts {
        let magic = bytes::le16(stretch, start.saturating_add(MAGIC_AT));
        if magic != Some(MAGIC) || found.len() >= MOST {
            continue;
        }
        if let Some(bytes) = bytes::span(stretch, start, SIZE) {
            found.extend(hit(bytes, at.saturating_add(wide(start))));
        }
    }
}

fn look_by_sector(store: &dyn Store, at: u64, length: usize, found: &mut Vec<Hit>) {
    let mut bytes = [0; SIZE];
    for start in (0..length.min(CHUNK)).step_by(STEP) {
        let at = at.saturating_add(wide(start));
        if store.read_at(at, &mut bytes).is_ok() {
            look(&bytes, at, found);
        }
    }
}

/// A superblock with a right checksum or none, possible numbers, and a place that its geometry has a copy at.
fn hit(bytes: &[u8], offset: u64) -> Option<Hit> {
    let superblock = Superblock::parse(bytes).ok()?;
    superblock.verify_checksum().ok()?;
    check_readable(superblock.features()).ok()?;
    let layout = Layout::new(&superblock).ok()?;
    let geometry = &layout.geometry;
    let group = GroupNumber(superblock.s_block_group_nr.get().into());
    let block = geometry.check_group(group).and_then(|group| geometry.superblock_copy(group))?;
    let within = if group.0 == 0 { PRIMARY_OFFSET } else { geometry.byte_offset(block)? };
    let start = offset.checked_sub(within)?;
    Some(Hit { offset, start, group: group.0, block: block.0, superblock, layout })
}

/// Puts superblocks of one filesystem together, and the filesystems in order.
fn vote(found: Vec<Hit>, size: u64) -> Vec<Lost> {
    let mut parties: Vec<Vec<Hit>> = Vec::new();
    // Equal ones lie next to each other, so that each is compared with the last party of its start and UUID only.
    let mut found = found;
    found.sort_by_key(|hit| (hit.start, hit.superblock.s_uuid, hit.offset));
    for hit in found {
        let same = |other: &Hit| {
            other.start == hit.start
                && other.superblock.s_uuid == hit.superblock.s_uuid
                && same_shape(&other.superblock, &hit.superblock)
        };
        let mut near = parties.iter_mut().rev().take(8);
        match near.find(|party| party.first().is_some_and(same)) {
            Some(party) => party.push(hit),
            None => parties.push(vec![hit]),
        }
    }
    let mut filesystems: Vec<Lost> = parties.iter().filter_map(|party| describe(party, size)).collect();
    filesystems.sort_by_key(|lost| {
        let count = std::cmp::Reverse(lost.found.len());
        (!lost.fits, count, !lost.has_checksums, std::cmp::Reverse(lost.blocks), lost.start)
    });
    filesystems
}

fn written(superblock: &Superblock) -> u64 {
    u64::from(superblock.s_wtime.get()) | u64::from(superblock.s_wtime_hi) << 32
}

fn describe(party: &[Hit], size: u64) -> Option<Lost> {
    // The primary one is current; among copies, the one that was written last.
    let best = party.iter().max_by_key(|hit| (hit.group == 0, written(&hit.superblock)))?;
    let geometry = &best.layout.geometry;
    let length = geometry.blocks_count().checked_shl(geometry.block_bits())?;
    let found = party.iter().map(|hit| FoundAt {
        offset: hit.offset,
        group: hit.group,
        block: hit.block,
        written: written(&hit.superblock),
    });
    Some(Lost {
        start: best.start,
        uuid: uuid_text(&best.superblock.s_uuid),
        label: field_text(&best.superblock.s_volume_name),
        block_size: geometry.block_size(),
        blocks: geometry.blocks_count(),
        fits: best.start.checked_add(length).is_some_and(|end| end <= size),
        has_checksums: best.superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM),
        expected: wide(geometry.backup_groups().len()).saturating_add(1),
        found: found.collect(),
        superblock: best.superblock.clone(),
    })
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.filesystems.is_empty() {
            return writeln!(f, "no superblock of a filesystem was found in {} bytes", self.scanned);
        }
        for (number, lost) in (1..).zip(&self.filesystems) {
            let label = if lost.label.is_empty() { String::new() } else { format!(" {:?}", lost.label) };
            writeln!(
                f,
                "{number}: filesystem {}{label} at byte {}: {} blocks of {} bytes{}",
                lost.uuid,
                lost.start,
                lost.blocks,
                lost.block_size,
                if lost.fits { "" } else { ", more than the device holds" }
            )?;
            let checksums = if lost.has_checksums { "checksums right" } else { "without checksums" };
            writeln!(f, "   {} of {} superblocks found, {checksums}", lost.found.len(), lost.expected)?;
            for place in &lost.found {
                writeln!(f, "   block {} (group {}, byte {})", place.block, place.group, place.offset)?;
            }
        }
        Ok(())
    }
}

/// A filesystem that was found, as it will be once its superblock, descriptors and copies are written.
pub struct Rebuilt {
    /// The changes, and the filesystem under them: a part of the device where it does not begin at its start.
    pub source: Source,
    /// What was put right.
    pub findings: Vec<Finding>,
}

impl Rebuilt {
    /// The changes, to be committed or dropped.
    pub fn overlay(&mut self) -> &mut Overlay {
        &mut self.source.overlay
    }
}

/// Rebuilds primary superblock, descriptors and copies of a filesystem that was found, in an overlay.
pub fn rebuild(store: Arc<dyn Store>, lost: &Lost) -> Result<Rebuilt> {
    let layout = Layout::new(&lost.superblock)?;
    if !lost.fits {
        return Err(Defect::Contradiction("the filesystem is larger than the device".to_owned())
            .at(Place::SuperblockCopy(BlockNumber(0))));
    }
    let part: Arc<dyn Store> = if lost.start == 0 {
        store
    } else {
        let length = lost.blocks.saturating_mul(lost.block_size.into());
        Arc::new(
            SubRange::new(store, lost.start, length)
                .map_err(|_| Error::Invalid("the filesystem is larger than the device".to_owned()))?,
        )
    };
    let mut superblock = lost.superblock.clone();
    if lost.found.iter().all(|found| found.group != 0) {
        // A copy says of its filesystem that it is clean, as it was when it was made.
        superblock.s_state.set(superblock.s_state.get() & !state::VALID);
    }
    let mut opened = Opened::by(part, superblock, layout);
    let block = lost.found.first().map_or(0, |place| place.block);
    let mut findings = std::mem::take(&mut opened.findings);
    let why = "lost, and found by a search".to_owned();
    let problem = SuperblockProblem::CopyUsed { block: BlockNumber(block), why };
    findings.insert(0, Finding::new(Place::Superblock, problem));
    // Every place is known by now, so that nothing has to be moved.
    let mut free = |_| None;
    let mut ground = Ground { superblock: &opened.superblock, groups: &opened.groups, free: &mut free };
    let overlay = &mut opened.source.overlay;
    for finding in &findings {
        match finding.problem {
            Problem::Group(_) => groups::apply(finding, overlay, &mut ground)?,
            _ => superblock::apply(finding, overlay, &mut ground)?,
        }
    }
    write_backups(overlay)?;
    opened.source.refresh();
    Ok(Rebuilt { source: opened.source, findings })
}

#[cfg(test)]
mod tests {
    use ext4kit_format::image::Image;
    use ext4kit_format::store::MemoryStore;
    use ext4kit_format::txn::Transaction;
    use ext4kit_testkit::filesystem;

    use super::*;

    fn found(store: &MemoryStore) -> Report {
        let mut last = 0;
        let report = find_superblocks(store, &mut |done, all| {
            assert!(done >= last && done <= all);
            last = done;
        });
        report.unwrap()
    }

    /// Writes everything that a rebuilt filesystem changed.
    fn commit(rebuilt: &mut Rebuilt) {
        let overlay = rebuilt.overlay();
        for at in overlay.seal().unwrap() {
            let after = overlay.change(at).unwrap().unwrap().after;
            let offset = overlay.layout().geometry.byte_offset(at).unwrap();
            overlay.store().write_at(offset, &after).unwrap();
        }
    }

    #[test]
    fn a_device_without_any_says_so() {
        let report = found(&MemoryStore::new(5 << 20));
        assert!(report.filesystems.is_empty());
        assert!(report.to_string().contains("no superblock"));
    }

    #[test]
    fn a_lost_primary_is_rebuilt_with_its_descriptors() {
        for (blocks, size) in [(81920u64, 1024u32), (200_000, 4096)] {
            let store = filesystem::ext4(blocks, size);
            let wanted = Image::open(Arc::new(store.clone())).unwrap().superblock().clone();
            store.write_at(1024, &[0; 1024]).unwrap();
            let table = u64::from(size).max(2048);
            store.write_at(table, &[0; 1024]).unwrap();
            let report = found(&store);
            let lost = &report.filesystems[0];
            assert_eq!((lost.start, lost.blocks, lost.block_size), (0, blocks, size), "{report}");
            assert_eq!(wide(lost.found.len()), lost.expected - 1);
            assert!(lost.has_checksums && lost.fits);
            let store = Arc::new(store);
            let mut rebuilt = rebuild(Arc::clone(&store) as Arc<dyn Store>, lost).unwrap();
            commit(&mut rebuilt);
            let image = Image::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
            assert_eq!(image.superblock().s_uuid, wanted.s_uuid);
            let mut codes = Vec::new();
            let options = crate::Options::default();
            crate::check(store.clone() as Arc<dyn Store>, &options, &mut |found| codes.push(found.code()))
                .unwrap();
            // Flags of groups that were never used are lost with the descriptors; the last pass puts that right.
            assert!(codes.iter().all(|code| *code >= 900), "{size}: {codes:?}");
        }
    }

    #[test]
    fn a_filesystem_is_found_where_no_partition_table_says_it_begins() {
        let inner = filesystem::ext4(81920, 1024);
        let start = 1_048_576 + 512;
        let store = MemoryStore::new((90 << 20) + start);
        store.write_at(start, &inner.to_vec()).unwrap();
        // Its primary is lost as well, and the device begins with the rest of an older filesystem.
        store.write_at(start + 1024, &[0; 1024]).unwrap();
        store.write_at(0, &filesystem::ext4(1024, 1024).to_vec()[..4096]).unwrap();
        let report = found(&store);
        let lost = &report.filesystems[0];
        assert_eq!((lost.start, lost.blocks), (start, 81920), "{report}");
        assert!(report.to_string().contains("at byte 1049088: 81920 blocks of 1024 bytes"), "{report}");
        let mut rebuilt = rebuild(Arc::new(store) as Arc<dyn Store>, lost).unwrap();
        commit(&mut rebuilt);
        let image = Image::open(Arc::clone(rebuilt.overlay().store())).unwrap();
        assert_eq!(image.layout().geometry.blocks_count(), 81920);
    }

    #[test]
    fn superblocks_that_agree_with_nothing_lose() {
        let store = filesystem::ext4(81920, 1024);
        let mut bytes = [0; 1024];
        store.read_at(1024, &mut bytes).unwrap();
        // As a journal or an image in a file holds them.
        for at in [3_000_320u64, 30_000_128, 50_000_384] {
            store.write_at(at / 512 * 512, &bytes).unwrap();
        }
        let report = found(&store);
        assert_eq!(report.filesystems[0].start, 0, "{report}");
        assert_eq!(wide(report.filesystems[0].found.len()), report.filesystems[0].expected);
        assert_eq!(report.filesystems.len(), 4);
    }
}
