//! The group descriptors, group by group: the primary one where it can be, else a copy's, else what the geometry says.
//!
//! Bitmaps and tables hardly ever move, so that any copy tells where they lie; counts and flags are only current in the
//! primary table. A descriptor that cannot be is therefore replaced without its flags, and its counts are left to the
//! last pass. Where an inode table lies is confirmed by looking at it.

use std::collections::BTreeMap;

use ext4kit_format::create::{GroupTables, place_tables};
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::group_desc::{DescriptorChecksum, GroupDescriptor, GroupFlags};
use ext4kit_format::disk::inode::InodeView;
use ext4kit_format::geometry::Geometry;
use ext4kit_format::layout::Layout;
use ext4kit_format::num::index;
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, Place, bytes};

use crate::finding::{Finding, GroupProblem as Problem};
use crate::source::Source;

/// Descriptors to work with, and what was wrong with the primary ones.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// One for each group.
    pub groups: Vec<GroupDescriptor>,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Whether metadata of a group may lie in a run of blocks: anywhere with flex_bg, else in the group.
pub fn allowed(geometry: &Geometry, group: GroupNumber, run: BlockRun) -> bool {
    let own = geometry.group_blocks(group);
    let inside = || {
        own.contains(run.start)
            && run.end().is_some_and(|end| end.0 <= own.start.0.saturating_add(own.length))
    };
    geometry.contains_run(run) && (geometry.features().incompat.contains(Incompat::FLEX_BG) || inside())
}

/// Reads the descriptors of every group.
pub fn read(source: &Source) -> Descriptors {
    let geometry = source.layout().geometry.clone();
    let mut reader =
        Reader { source, geometry: &geometry, found: Descriptors::default(), computed: None, occupied: None };
    let mut doubtful = Vec::new();
    for table_block in 0..geometry.descriptor_blocks() {
        let table = source.block(geometry.descriptor_table_block(table_block));
        let first = table_block.saturating_mul(geometry.descriptors_per_block());
        let left = geometry.group_count().saturating_sub(first).min(geometry.descriptors_per_block());
        for within in 0..left {
            let group = GroupNumber(first.saturating_add(within));
            let record = table.as_ref().ok().and_then(|table| record(&geometry, table, within));
            let parsed = record.and_then(|record| GroupDescriptor::parse(record).ok());
            let sound = record
                .is_some_and(|record| source.layout().descriptor_checksum.verify(group, record).is_ok());
            let descriptor = parsed.unwrap_or_default();
            if !sound || !possible(&geometry, group, &descriptor) {
                doubtful.push((group, sound));
            }
            reader.found.groups.push(descriptor);
        }
    }
    if source.layout().descriptor_checksum == DescriptorChecksum::None {
        // Nothing vouches for the primary ones but that the copies say the same.
        let known: Vec<GroupNumber> = doubtful.iter().map(|(group, _)| *group).collect();
        let others = reader.contradicted().into_iter().filter(|group| known.binary_search(group).is_err());
        doubtful.extend(others.map(|group| (group, true)));
    }
    for (group, sound) in doubtful {
        reader.recover(group, sound);
    }
    for (group, part) in reader.overlapping() {
        reader.part_from_copy(group, part);
    }
    reader.found
}

/// The bytes of a descriptor in a block of the table.
fn record<'a>(geometry: &Geometry, table: &'a [u8], within: u32) -> Option<&'a [u8]> {
    let size = index(geometry.descriptor_size());
    bytes::span(table, index(within).saturating_mul(size), size)
}

/// Whether the bitmaps and the table of a descriptor lie where such can.
fn possible(geometry: &Geometry, group: GroupNumber, descriptor: &GroupDescriptor) -> bool {
    wrong_parts(geometry, group, descriptor).iter().all(|wrong| !wrong)
}

/// Which of block bitmap, inode bitmap and inode table lie where none can.
fn wrong_parts(geometry: &Geometry, group: GroupNumber, descriptor: &GroupDescriptor) -> [bool; 3] {
    places(descriptor).runs(geometry).map(|run| !allowed(geometry, group, run))
}

fn places(descriptor: &GroupDescriptor) -> GroupTables {
    GroupTables {
        block_bitmap: descriptor.block_bitmap,
        inode_bitmap: descriptor.inode_bitmap,
        inode_table: descriptor.inode_table,
    }
}

/// What a look at an inode table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// Something else lies there.
    Other,
    /// Nothing speaks against it; it may be empty.
    Possible,
    /// Inodes of just this group lie there.
    Proven,
}

struct Reader<'a> {
    source: &'a Source,
    geometry: &'a Geometry,
    found: Descriptors,
    /// Where mke2fs would have put everything; computed when it is asked for.
    computed: Option<Vec<GroupTables>>,
    /// First block and end of every known piece of metadata; gathered when it is asked for.
    occupied: Option<BTreeMap<u64, u64>>,
}

impl Reader<'_> {
    fn tell(&mut self, group: GroupNumber, problem: Problem) {
        self.found.findings.push(Finding::new(Place::GroupDescriptor(group), problem));
    }

    /// Replaces a descriptor, or the part of it, that cannot be.
    fn recover(&mut self, group: GroupNumber, sound: bool) {
        let Some(stored) = self.found.groups.get(index(group.0)).cloned() else { return };
        let wrong = wrong_parts(self.geometry, group, &stored);
        let copies = self.copies(group);
        match wrong.iter().filter(|wrong| **wrong).count() {
            // Only the checksum is wrong. Where a copy that is right has other places, they are right.
            0 => {
                let other =
                    copies.iter().find(|copy| copy.sound && places(&copy.descriptor) != places(&stored));
                let agrees =
                    copies.iter().any(|copy| copy.sound && places(&copy.descriptor) == places(&stored));
                if let (Some(copy), false) = (other, agrees)
                    && self.look(group, copy.descriptor.inode_table) >= self.look(group, stored.inode_table)
                {
                    self.replace(group, copy.descriptor.clone(), Problem::CopyUsed { block: copy.block });
                }
            }
            1 => self.recover_part(group, &stored, wrong, &copies),
            _ => self.recover_whole(group, &copies, sound),
        }
    }

    /// One place of an otherwise possible descriptor.
    fn recover_part(
        &mut self,
        group: GroupNumber,
        stored: &GroupDescriptor,
        wrong: [bool; 3],
        copies: &[DescriptorCopy],
    ) {
        let others = copies.iter().map(|copy| places(&copy.descriptor)).chain(self.computed_places(group));
        let mut others: Vec<GroupTables> = others.collect();
        let part = wrong.iter().position(|wrong| *wrong).unwrap_or(0);
        others.retain(|tables| {
            tables.runs(self.geometry).get(part).is_some_and(|run| self.is_free(group, *run, None))
        });
        let mut mended = stored.clone();
        let problem = match part {
            0 => {
                mended.block_bitmap =
                    others.first().map_or(stored.block_bitmap, |tables| tables.block_bitmap);
                Problem::BlockBitmapMisplaced { group, block: stored.block_bitmap }
            }
            1 => {
                mended.inode_bitmap =
                    others.first().map_or(stored.inode_bitmap, |tables| tables.inode_bitmap);
                Problem::InodeBitmapMisplaced { group, block: stored.inode_bitmap }
            }
            _ => {
                let looks =
                    others.iter().map(|tables| (self.look(group, tables.inode_table), tables.inode_table));
                mended.inode_table = best(looks).map_or(stored.inode_table, |at| at);
                Problem::InodeTableMisplaced { group, block: stored.inode_table }
            }
        };
        // Where no place is known, the check tells.
        if mended != *stored {
            self.tell(group, problem);
            self.put(group, mended);
        }
    }

    /// Groups whose first copy leads elsewhere.
    fn contradicted(&self) -> Vec<GroupNumber> {
        let per_block = self.geometry.descriptors_per_block();
        let mut found = Vec::new();
        for table_block in 0..self.geometry.descriptor_blocks() {
            let copies = self.geometry.descriptor_table_copies(table_block);
            let Some(table) = copies.first().and_then(|block| self.source.block(*block).ok()) else {
                continue;
            };
            let first = table_block.saturating_mul(per_block);
            for within in 0..self.geometry.group_count().saturating_sub(first).min(per_block) {
                let group = GroupNumber(first.saturating_add(within));
                let copy = record(self.geometry, &table, within);
                let copy = copy.and_then(|record| GroupDescriptor::parse(record).ok());
                let stored = self.found.groups.get(index(group.0));
                if copy.as_ref().map(places) != stored.map(places) {
                    found.push(group);
                }
            }
        }
        found
    }

    /// Every part of a group that lies over other metadata, or under it.
    fn overlapping(&self) -> Vec<(GroupNumber, usize)> {
        let geometry = self.geometry;
        let mut runs: Vec<(BlockRun, Option<(GroupNumber, usize)>)> = Vec::new();
        for (group, descriptor) in geometry.groups().zip(&self.found.groups) {
            runs.extend(geometry.base_metadata(group).runs().map(|run| (run, None)));
            let parts = places(descriptor).runs(geometry).into_iter().zip(0..);
            let parts = parts.filter(|(run, _)| allowed(geometry, group, *run));
            runs.extend(parts.map(|(run, part)| (run, Some((group, part)))));
        }
        runs.sort_by_key(|(run, owner)| (run.start, *owner));
        let (mut end, mut last) = (0, None);
        let mut found = Vec::new();
        for (run, owner) in runs {
            if run.start.0 < end {
                found.extend(last);
                found.extend(owner);
            }
            let run_end = run.start.0.saturating_add(run.length);
            if run_end > end {
                (end, last) = (run_end, owner);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// A part that lies over other metadata: where a copy knows another place, which is free, that is the right one.
    fn part_from_copy(&mut self, group: GroupNumber, part: usize) {
        let Some(stored) = self.found.groups.get(index(group.0)).cloned() else { return };
        let run_of = |descriptor: &GroupDescriptor, geometry: &Geometry| {
            let [first, second, third] = places(descriptor).runs(geometry);
            [first, second].get(part).copied().unwrap_or(third)
        };
        let old = run_of(&stored, self.geometry);
        let copies = self.copies(group);
        let others =
            copies.iter().filter(|copy| copy.sound).map(|copy| run_of(&copy.descriptor, self.geometry));
        let others: Vec<BlockRun> = others.filter(|run| run.start != old.start).collect();
        let Some(place) =
            others.into_iter().find(|run| self.is_free(group, *run, Some(old))).map(|run| run.start)
        else {
            return;
        };
        if part == 2 && self.look(group, place) < self.look(group, old.start) {
            return;
        }
        let mut mended = stored;
        let block = old.start;
        let problem = match part {
            0 => {
                mended.block_bitmap = place;
                Problem::BlockBitmapMisplaced { group, block }
            }
            1 => {
                mended.inode_bitmap = place;
                Problem::InodeBitmapMisplaced { group, block }
            }
            _ => {
                mended.inode_table = place;
                Problem::InodeTableMisplaced { group, block }
            }
        };
        self.tell(group, problem);
        self.put(group, mended);
    }

    /// A descriptor of which nothing is left.
    fn recover_whole(&mut self, group: GroupNumber, copies: &[DescriptorCopy], sound: bool) {
        let mut choices: Vec<(Look, GroupDescriptor, Option<BlockNumber>)> = Vec::new();
        for copy in copies {
            let look = self.look(group, copy.descriptor.inode_table);
            // A right checksum counts as much as what lies there; either is enough, and both are best.
            let look = if copy.sound && look == Look::Possible { Look::Proven } else { look };
            choices.push((look, copy.descriptor.clone(), Some(copy.block)));
        }
        if let Some(tables) = self.computed_places(group) {
            let descriptor = GroupDescriptor {
                block_bitmap: tables.block_bitmap,
                inode_bitmap: tables.inode_bitmap,
                inode_table: tables.inode_table,
                ..GroupDescriptor::default()
            };
            choices.push((self.look(group, tables.inode_table), descriptor, None));
        }
        choices.retain(|(_, descriptor, _)| {
            places(descriptor).runs(self.geometry).into_iter().all(|run| self.is_free(group, run, None))
        });
        let choices = choices.into_iter().map(|(look, descriptor, block)| (look, (descriptor, block)));
        match best(choices) {
            Some((descriptor, Some(block))) => {
                self.replace(group, descriptor, Problem::CopyUsed { block });
            }
            Some((descriptor, None)) => self.replace(group, descriptor, Problem::Rebuilt { sound }),
            // The check tells which parts lie where they cannot.
            None => {}
        }
    }

    fn replace(&mut self, group: GroupNumber, mut descriptor: GroupDescriptor, problem: Problem) {
        descriptor.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
        descriptor.unused_inodes = 0;
        self.tell(group, problem);
        self.put(group, descriptor);
    }

    /// Whether a run is allowed for a group and lies over no metadata that is known, except for one piece.
    fn is_free(&mut self, group: GroupNumber, run: BlockRun, except: Option<BlockRun>) -> bool {
        if self.occupied.is_none() {
            let mut occupied = BTreeMap::new();
            for (group, descriptor) in self.geometry.groups().zip(&self.found.groups) {
                let parts = places(descriptor).runs(self.geometry).into_iter();
                let parts = parts.filter(|run| allowed(self.geometry, group, *run));
                for run in self.geometry.base_metadata(group).runs().chain(parts) {
                    occupy(&mut occupied, run);
                }
            }
            self.occupied = Some(occupied);
        }
        let Some(occupied) = &self.occupied else { return false };
        let end = run.start.0.saturating_add(run.length);
        let except = except.map(|run| (run.start.0, run.start.0.saturating_add(run.length)));
        let before = occupied.range(..end).rev().map(|(start, end)| (*start, *end));
        // Pieces may overlap each other, but not many.
        let mut near = before.filter(|known| Some(*known) != except).take(4);
        allowed(self.geometry, group, run) && near.all(|(_, known_end)| known_end <= run.start.0)
    }

    fn put(&mut self, group: GroupNumber, descriptor: GroupDescriptor) {
        if let Some(occupied) = &mut self.occupied {
            let runs = places(&descriptor).runs(self.geometry);
            for run in runs {
                occupy(occupied, run);
            }
        }
        if let Some(slot) = self.found.groups.get_mut(index(group.0)) {
            *slot = descriptor;
        }
    }

    /// The possible copies of a group's descriptor, those with right checksums first.
    fn copies(&self, group: GroupNumber) -> Vec<DescriptorCopy> {
        let per_block = self.geometry.descriptors_per_block();
        let table_block = group.0.checked_div(per_block).unwrap_or(0);
        let within = group.0.checked_rem(per_block).unwrap_or(0);
        let places = self.geometry.descriptor_table_copies(table_block);
        let mut found: Vec<DescriptorCopy> = places
            .into_iter()
            .take(MOST_COPIES)
            .filter_map(|block| self.copy(group, block, within))
            .collect();
        found.sort_by_key(|copy| !copy.sound);
        found
    }

    fn copy(&self, group: GroupNumber, block: BlockNumber, within: u32) -> Option<DescriptorCopy> {
        let table = self.source.block(block).ok()?;
        let record = record(self.geometry, &table, within)?;
        let descriptor = GroupDescriptor::parse(record).ok()?;
        let sound = self.source.layout().descriptor_checksum.verify(group, record).is_ok();
        possible(self.geometry, group, &descriptor).then_some(DescriptorCopy { block, descriptor, sound })
    }

    fn computed_places(&mut self, group: GroupNumber) -> Option<GroupTables> {
        let geometry = self.geometry;
        let computed = self.computed.get_or_insert_with(|| place_tables(geometry).unwrap_or_default());
        let tables = computed.get(index(group.0)).copied()?;
        tables.runs(geometry).into_iter().all(|run| allowed(geometry, group, run)).then_some(tables)
    }

    fn look(&self, group: GroupNumber, table: BlockNumber) -> Look {
        look_at_table(self.source.layout(), |at| self.source.block(at).ok(), group, table)
    }
}

/// A copy of a descriptor whose places are possible.
struct DescriptorCopy {
    /// The block of the table.
    block: BlockNumber,
    descriptor: GroupDescriptor,
    /// Whether its checksum is right, or it has none.
    sound: bool,
}

/// Copies of the table that are asked. More of them say the same.
const MOST_COPIES: usize = 8;
/// Blocks of a table that are looked at.
const MOST_BLOCKS: u32 = 16;

/// Looks whether a group's inode table lies at a block, given how to read blocks.
pub fn look_at_table<B: std::ops::Deref<Target = [u8]>>(
    layout: &Layout,
    read: impl Fn(BlockNumber) -> Option<B>,
    group: GroupNumber,
    table: BlockNumber,
) -> Look {
    let geometry = &layout.geometry;
    let size = index(geometry.inode_size());
    let (mut good, mut bad) = (0u32, 0u32);
    for block in 0..geometry.inode_table_blocks().min(MOST_BLOCKS) {
        let at = table.checked_add(block.into()).filter(|at| geometry.contains(*at));
        let Some(bytes) = at.and_then(&read) else { return Look::Other };
        for (within, slot) in (0u32..).zip(bytes.chunks_exact(size)) {
            if bytes::all_zero(slot) {
                continue;
            }
            let place = block.saturating_mul(geometry.inodes_per_block()).saturating_add(within);
            let count = if is_inode(layout, group, place, slot) { &mut good } else { &mut bad };
            *count = count.saturating_add(1);
        }
    }
    match (good, bad) {
        // The first table has the root.
        (0, 0) if group.0 == 0 => Look::Other,
        (0, 0) => Look::Possible,
        // A checksum covers the number of the inode; one is proof.
        (1.., _) if layout.checksum_seed.is_some() => Look::Proven,
        (good, bad) if good > bad.saturating_mul(4) => Look::Proven,
        (good, bad) if good > bad => Look::Possible,
        _ => Look::Other,
    }
}

/// Notes a piece of metadata.
fn occupy(occupied: &mut BTreeMap<u64, u64>, run: BlockRun) {
    let known_end = occupied.entry(run.start.0).or_default();
    *known_end = (*known_end).max(run.start.0.saturating_add(run.length));
}

/// The first of those that look best, so that copies come before what is only computed.
fn best<T>(choices: impl Iterator<Item = (Look, T)>) -> Option<T> {
    let possible = choices.filter(|(look, _)| *look > Look::Other);
    let best = possible
        .fold(None, |best: Option<(Look, T)>, next| best.filter(|best| best.0 >= next.0).or(Some(next)));
    best.map(|(_, choice)| choice)
}

/// Whether a slot holds what an inode of this place can be.
fn is_inode(layout: &Layout, group: GroupNumber, place: u32, slot: &[u8]) -> bool {
    let Ok(view) = InodeView::new(slot) else { return false };
    let Some(number) = layout.geometry.inode_at(group, place) else { return false };
    if let Some(seed) = layout.checksum_seed {
        return view.verify_checksum(seed, number).is_ok();
    }
    let known = view.kind().is_some() || view.mode() == 0;
    let root = number.get() != 2 || view.is_directory();
    known && root && view.size() < 1 << 46 && view.blocks_raw() < 1 << 48
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ext4kit_format::image::Image;
    use ext4kit_format::store::{MemoryStore, Store};
    use ext4kit_testkit::damage::Damage;
    use ext4kit_testkit::filesystem;

    use super::*;

    fn source(store: &MemoryStore) -> Source {
        let image = Image::open(Arc::new(store.clone()) as Arc<dyn Store>).unwrap();
        Source::new(Arc::clone(image.store()), image.layout().clone())
    }

    fn of(store: &MemoryStore) -> (Vec<GroupDescriptor>, Vec<u16>) {
        let found = read(&source(store));
        (found.groups, found.findings.iter().map(Finding::code).collect())
    }

    fn made(blocks: u64, changes: &str) -> MemoryStore {
        let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(blocks, 1024, changes));
        filesystem::commit_clean(&store, &mut overlay);
        MemoryStore::clone(&store)
    }

    fn same_places(one: &[GroupDescriptor], other: &[GroupDescriptor]) -> bool {
        one.iter().map(places).eq(other.iter().map(places))
    }

    #[test]
    fn a_sound_table_is_taken_as_it_is() {
        for changes in ["", "^flex_bg", "^metadata_csum", "meta_bg ^resize_inode"] {
            assert_eq!(of(&made(81920, changes)).1, [0u16; 0], "{changes}");
        }
    }

    #[test]
    fn a_table_of_zeroes_comes_from_the_copies() {
        for changes in ["", "^flex_bg", "^metadata_csum", "meta_bg ^resize_inode"] {
            let store = made(81920, changes);
            let sound = of(&store).0;
            let table = source(&store).layout().geometry.descriptor_table_block(0);
            store.write_at(table.0 * 1024, &[0; 1024]).unwrap();
            let (groups, codes) = of(&store);
            assert!(same_places(&groups, &sound), "{changes}");
            assert!(!codes.is_empty() && codes.iter().all(|code| *code == 210), "{changes}: {codes:?}");
        }
    }

    #[test]
    fn without_copies_the_geometry_says_where_everything_lies() {
        for changes in ["", "^flex_bg", "^metadata_csum", "^metadata_csum ^flex_bg"] {
            let store = made(8000, changes);
            let sound = of(&store).0;
            store.write_at(2048, &[0xff; 64]).unwrap();
            let (groups, codes) = of(&store);
            assert!(same_places(&groups, &sound), "{changes}");
            assert_eq!(codes, [211], "{changes}");
        }
    }

    #[test]
    fn one_wrong_place_is_put_right_alone() {
        type Change = fn(&mut GroupDescriptor);
        let changes: [(u16, Change); 3] = [
            (201, |group| group.block_bitmap = BlockNumber(0)),
            (202, |group| group.inode_bitmap = BlockNumber(1 << 30)),
            (203, |group| group.inode_table = BlockNumber(81919)),
        ];
        let store = made(81920, "");
        let sound = of(&store).0;
        for (code, change) in changes {
            for group in [0, 3] {
                let damaged = Damage::to(&store).descriptor(GroupNumber(group), change).finish();
                let (groups, codes) = of(&damaged);
                assert_eq!(codes, [code]);
                assert!(same_places(&groups, &sound));
                assert_eq!(groups[group as usize].flags, sound[group as usize].flags);
            }
        }
    }

    /// In range, and yet not where the table lies: only a copy with a right checksum knows.
    #[test]
    fn a_wrong_checksum_lets_the_copies_speak() {
        let store = made(81920, "");
        let sound = of(&store).0;
        let at = 2048 + 64 + 8;
        store.write_at(at, &50_000u32.to_le_bytes()).unwrap();
        let (groups, codes) = of(&store);
        assert_eq!(codes, [210]);
        assert!(same_places(&groups, &sound));
    }
}
