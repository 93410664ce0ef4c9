//! Pass 2: the blocks of directories and their entries.

use std::sync::{Mutex, OnceLock};

use rustc_hash::FxHashSet;

use ext4kit_format::disk::dirent::{self, Entry, EntryFormat, INLINE_ENTRIES};
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::inode::{InodeFlags, InodeView};
use ext4kit_format::disk::xattr::{Area, NameIndex, Value};
use ext4kit_format::num::index;
use ext4kit_format::txn::Owner;
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, LogicalBlock, Place};

use super::bits::{BitSet, Budget, NameCounts};
use super::context::{Context, Directory, Known, known};
use super::index::{self, Blocks, DirectoryBlock, Role};
use super::maps::{self, Piece, View, Visitor};
use super::names::{HashRange, Hashing, Look, Named, Names};
use super::part::{Part, Run, share};
use super::proof;
use crate::finding::{DirectoryProblem as Problem, MapProblem};

/// The directory whose blocks are looked at.
pub struct Current<'v> {
    /// Its inode.
    pub number: InodeNumber,
    /// The same as a view.
    pub view: InodeView<'v>,
    /// Seed of its checksums.
    pub seed: Option<u32>,
    format: EntryFormat,
    /// Its place in the list of directories.
    at: usize,
}

/// What bounds the work on directories that share their blocks with others.
struct Bounds {
    budget: Budget,
    /// Blocks that were looked at; one that comes again was told as shared.
    seen: BitSet,
}

impl Bounds {
    /// Takes from the budget. Where it runs out depends on who came first.
    fn take(&self, known: &Known<'_>, cost: u64) -> bool {
        let enough = self.budget.take(cost);
        if !enough {
            known.note_meeting();
        }
        enough
    }
}

struct Pieces<'b, 'a> {
    pieces: Vec<Piece>,
    entered: FxHashSet<BlockNumber>,
    known: &'b Known<'a>,
    bounds: &'b Bounds,
}

impl Visitor for Pieces<'_, '_> {
    fn data(&mut self, piece: Piece) {
        self.pieces.push(piece);
    }

    fn node(&mut self, block: BlockNumber) -> bool {
        self.entered.insert(block) && self.bounds.take(self.known, 64)
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {}
}

/// Directories that are done together.
const TOGETHER: usize = 128;
/// Blocks of a large directory that are done together.
const BLOCKS_TOGETHER: usize = 64;

/// Checks all directories.
pub fn check(context: &mut Context<'_>) {
    context.run(all, |known| {
        known.names = NameCounts::new(known.geometry().inodes_count());
        known.directories.restart();
    });
}

/// The directories of usual size, some together; then the large ones, each in parts.
fn all(run: &mut Run<'_, '_>) {
    let geometry = run.known.geometry();
    let bounds = Bounds { budget: Budget::new(geometry), seen: BitSet::new(geometry.blocks_count()) };
    let list = &run.known.directories;
    let parts = run.parts_of(list.len(), TOGETHER);
    run.expect(parts.saturating_add(list.large().len()));
    run.parts(parts, |part, at| {
        for at in share(list.len(), parts, at).filter(|at| !list.is_large(*at)) {
            with_directory(part, at, |part, current| check_directory(part, current, &bounds));
        }
    });
    for at in list.large() {
        check_large(run, *at, &bounds);
    }
}

/// Looks up the inode of a directory.
fn with_directory(part: &mut Part<'_, '_>, at: usize, work: impl FnOnce(&mut Part<'_, '_>, &Current<'_>)) {
    let Some(Directory { inode: number, .. }) = part.directories.get(at) else { return };
    part.with_inode(number, |part, view| {
        let seed = part.layout.inode_seed(Owner { inode: number, generation: view.generation() });
        let format = EntryFormat {
            block_size: part.geometry().block_size(),
            file_type: part.features().incompat.contains(Incompat::FILETYPE),
            hashed: view.flags().contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD),
        };
        work(part, &Current { number, view, seed, format, at });
    });
}

fn check_directory(part: &mut Part<'_, '_>, current: &Current<'_>, bounds: &Bounds) {
    if current.view.flags().contains(InodeFlags::INLINE_DATA) {
        return check_inline(part, current);
    }
    let plan = plan(part, current, bounds);
    let mut names = Names::default();
    for (at, block) in plan.blocks.range(0..plan.blocks.len()) {
        check_block(part, current, (&plan, at, block), &mut names);
    }
    check_names(part, current, &plan, names);
}

/// A large directory: first its map and tree, then its blocks in parts, then the names that may be in several of these.
fn check_large(run: &mut Run<'_, '_>, at: usize, bounds: &Bounds) {
    let planned = OnceLock::new();
    run.parts(1, |part, _| {
        with_directory(part, at, |part, current| {
            if current.view.flags().contains(InodeFlags::INLINE_DATA) {
                check_inline(part, current);
            } else {
                let _ = planned.set(plan(part, current, bounds));
            }
        });
    });
    let Some(plan) = planned.into_inner() else { return };
    let parts = run.parts_of(plan.blocks.len(), BLOCKS_TOGETHER);
    run.parts(parts, |part, number| {
        let mut names = Names::default();
        with_directory(part, at, |part, current| {
            for (at, block) in plan.blocks.range(share(plan.blocks.len(), parts, number)) {
                check_block(part, current, (&plan, at, block), &mut names);
            }
        });
        part.found.names = names;
    });
    let names = Mutex::new(std::mem::take(&mut run.found().names));
    run.parts(1, |part, _| {
        let names = names.lock().map(|mut names| std::mem::take(&mut *names)).unwrap_or_default();
        with_directory(part, at, |part, current| check_names(part, current, &plan, names));
    });
}

/// What is known of a directory before its entries are looked at.
struct Plan {
    blocks: Blocks,
    /// Whether there is a hash tree that can be used.
    tree: bool,
    hashing: Hashing,
}

/// Walks the map and the hash tree of a directory.
fn plan(part: &mut Part<'_, '_>, current: &Current<'_>, bounds: &Bounds) -> Plan {
    let mut blocks = Blocks::new(mapped_blocks(part, current, bounds));
    let indexed = current.view.flags().contains(InodeFlags::INDEX) && part.layout.has_directory_index();
    let tree = if indexed { index::read(part, current, &mut blocks) } else { None };
    let seed = part.layout.directory_hash.seed;
    let hashing = Hashing { version: tree.and_then(|tree| tree.version), seed };
    Plan { blocks, tree: tree.is_some(), hashing }
}

/// The blocks of a directory that nobody looked at before.
fn mapped_blocks(part: &mut Part<'_, '_>, current: &Current<'_>, bounds: &Bounds) -> Vec<DirectoryBlock> {
    let view = View { source: part.source, layout: part.layout };
    let mut pieces = Pieces { pieces: Vec::new(), entered: FxHashSet::default(), known: part, bounds };
    maps::walk(view, current.number, current.view, &mut pieces);
    let mut pieces = pieces.pieces;
    if pieces.is_empty() {
        part.find(Place::Inode(current.number), Problem::Hole { logical: 0 });
    }
    pieces.sort_by_key(|piece| piece.logical);
    let limit = part.geometry().blocks_count();
    let mut blocks = Vec::new();
    let mut next = 0u64;
    for piece in pieces {
        if piece.logical > next {
            let logical = u32::try_from(next).unwrap_or(u32::MAX);
            part.find(Place::Inode(current.number), Problem::Hole { logical });
        }
        next = next.max(piece.logical.saturating_add(piece.length));
        if piece.physical.saturating_add(piece.length) > limit || !bounds.take(part, piece.length) {
            continue;
        }
        for distance in 0..piece.length {
            let logical = u32::try_from(piece.logical.saturating_add(distance)).unwrap_or(u32::MAX);
            let physical = BlockNumber(piece.physical.saturating_add(distance));
            if bounds.seen.insert(physical.0) {
                part.note_meeting();
            } else if part.in_metadata(BlockRun::single(physical)).is_none() {
                blocks.push(DirectoryBlock { logical, physical, role: Role::Unknown });
            }
        }
    }
    blocks
}

/// Tells of names that are there twice.
fn check_names(part: &mut Part<'_, '_>, current: &Current<'_>, plan: &Plan, mut names: Names) {
    if names.stray {
        names = all_names(part, current, plan);
    }
    let look = |named: Named| {
        let bytes = part.source.block(plan.blocks.get(named.at)?.physical).ok()?;
        look_at(part, current, bytes.get(index(named.offset)..)?)
    };
    for (named, name) in names.repeated(look) {
        let Some(DirectoryBlock { logical, physical, .. }) = plan.blocks.get(named.at) else { continue };
        let place = block_place(current, logical, physical);
        part.find(place, Problem::NameTwice { offset: named.offset, name: text(&name) });
    }
}

/// The entry that an area begins with.
fn look_at(known: &Known<'_>, current: &Current<'_>, area: &[u8]) -> Option<Look> {
    let entry = current.format.entries(area).next()?.ok()?;
    let inode = entry.inode?;
    let is_directory = known.state(inode) & known::KIND == 2;
    Some(Look { name: entry.name.to_vec(), inode, is_directory })
}

/// All names of a directory that count, collected again where its tree cannot be trusted to bring equal names together.
fn all_names(known: &Known<'_>, current: &Current<'_>, plan: &Plan) -> Names {
    let mut names = Names::default();
    for (at, block) in plan.blocks.range(0..plan.blocks.len()) {
        if block.role == Role::Node {
            continue;
        }
        let Ok(bytes) = known.source.block(block.physical) else { continue };
        let tail = current.seed.and_then(|_| dirent::tail_offset(&bytes));
        let area = dirent::leaf_area(&bytes, tail.is_some());
        let dots = if block.logical == 0 { 2 } else { 0 };
        for entry in current.format.entries(area).skip(dots).filter_map(Result::ok) {
            if let Some(inode) = entry.inode
                && counts(known, current, inode)
                && !dirent::is_dot(entry.name)
            {
                names.add(plan.hashing.hash(entry.name), at, offset32(entry.offset));
            }
        }
    }
    names
}

/// Whether an entry names a file that it may name.
fn counts(known: &Known<'_>, current: &Current<'_>, inode: InodeNumber) -> bool {
    let state = known.state(inode);
    let named_elsewhere = || {
        let directory = known.directories.find(inode).and_then(|at| known.directories.get(at));
        directory.is_some_and(|directory| directory.parent != current.number.get())
    };
    inode.get() >= known.geometry().first_inode()
        && inode != current.number
        && state & known::USED != 0
        && !(state & known::KIND == 2 && named_elsewhere())
}

fn block_place(current: &Current<'_>, logical: u32, block: BlockNumber) -> Place {
    Place::DirectoryBlock { inode: current.number, logical: Some(LogicalBlock(logical)), block }
}

fn offset32(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

fn check_block(
    part: &mut Part<'_, '_>,
    current: &Current<'_>,
    (plan, at, block): (&Plan, u32, DirectoryBlock),
    names: &mut Names,
) {
    let logical = block.logical;
    let place = || block_place(current, logical, block.physical);
    let bytes = match part.source.block(block.physical) {
        Ok(bytes) => bytes,
        Err(error) => return part.find(place(), Problem::Unreadable { why: error.to_string() }),
    };
    let mut area = EntryArea { bytes: &bytes, place: &place, at, first: logical == 0, range: None };
    if block.role == Role::Node {
        if area.first {
            // The root's entries are dots; the rest of the block is under the second one's record.
            check_entries(part, current, (&area, plan.hashing), names);
        }
        return;
    }
    if let Some(seed) = current.seed {
        // The sum first: it goes through the block from end to end, which brings it near for the walks over its entries.
        let sum = dirent::checksum(&bytes, seed);
        match dirent::tail_offset(&bytes) {
            Some(tail) => {
                area.bytes = bytes.get(..tail).unwrap_or_default();
                if let Err(defect) = dirent::compare_checksum(&bytes, tail, sum) {
                    let problem = match proof::leaf(&bytes, seed) {
                        Some(wrong) => {
                            let byte = u32::try_from(wrong.byte).unwrap_or(u32::MAX);
                            Problem::OneBitWrong { byte, bit: wrong.bit }
                        }
                        None => Problem::LeafChecksumWrong { defect },
                    };
                    let proven = matches!(problem, Problem::OneBitWrong { .. });
                    part.find(place(), problem);
                    if proven {
                        // Its entries are looked at when the bit is right again.
                        return;
                    }
                }
            }
            None => part.find(place(), Problem::TailMissing {}),
        }
    }
    if plan.tree && block.role == Role::Unknown {
        part.find(place(), Problem::LeafNotReferenced { logical });
        names.stray = true;
    }
    if let (Role::Leaf(range), Some(_)) = (block.role, plan.hashing.version) {
        area.range = Some(range);
    }
    let before = names.len();
    check_entries(part, current, (&area, plan.hashing), names);
    if let Some(range) = area.range {
        names.close_leaf(before, range);
    }
}

/// Where entries lie, and what is known of them together.
struct EntryArea<'b> {
    bytes: &'b [u8],
    place: &'b dyn Fn() -> Place,
    /// The block's place in the list of the directory's blocks.
    at: u32,
    /// Whether it begins with the dots.
    first: bool,
    /// The hashes that belong here.
    range: Option<HashRange>,
}

/// Checks the entries of an area.
fn check_entries(
    part: &mut Part<'_, '_>,
    current: &Current<'_>,
    (area, hashing): (&EntryArea<'_>, Hashing),
    names: &mut Names,
) {
    let place = area.place;
    let mut misplaced = false;
    let mut dots = if area.first { 0 } else { 2 };
    for record in current.format.entries(area.bytes) {
        let entry = match record {
            Ok(entry) => entry,
            Err(bad) => {
                let offset = offset32(bad.offset);
                part.find(place(), Problem::RecordDamaged { offset, defect: bad.defect });
                dots = 2;
                continue;
            }
        };
        if dots < 2 {
            check_dot(part, current, &entry, (place, dots));
            dots = dots.saturating_add(1);
            continue;
        }
        let Some(inode) = entry.inode else { continue };
        let hash = hashing.hash(entry.name);
        misplaced |= area.range.is_some_and(|range| !range.contains(hash));
        if check_entry(part, current, (&entry, inode), place) {
            names.add(hash, area.at, offset32(entry.offset));
        }
    }
    if dots == 1 {
        part.find(place(), Problem::DotDotMissing {});
    }
    if misplaced {
        let logical = match place() {
            Place::DirectoryBlock { logical: Some(logical), .. } => logical.0,
            _ => 0,
        };
        part.find(place(), Problem::HashOutOfRange { logical });
        names.stray = true;
    }
}

fn check_dot(
    part: &mut Part<'_, '_>,
    current: &Current<'_>,
    entry: &Entry<'_>,
    (place, which): (&dyn Fn() -> Place, usize),
) {
    if which == 0 {
        if entry.name != b"." || entry.inode.is_none() {
            return part.find(place(), Problem::DotMissing {});
        }
        let Some(inode) = entry.inode else { return };
        if inode != current.number {
            let problem = Problem::DotWrong { found: inode.get(), wanted: current.number };
            part.find(place(), problem);
        } else if entry.rec_len > dirent::MIN_RECORD {
            part.find(place(), Problem::DotTooLong {});
        }
        part.names.add(current.number);
        return check_dot_type(part, current, entry, place);
    }
    match entry.inode {
        Some(inode) if entry.name == b".." => {
            note_dotdot(part, current, inode);
            // A removed directory that waits for its end counts no more for its parent.
            if part.state(current.number) & known::HIDDEN == 0 {
                part.names.add(inode);
            }
        }
        _ => part.find(place(), Problem::DotDotMissing {}),
    }
    check_dot_type(part, current, entry, place);
}

/// The dots are directories.
fn check_dot_type(
    part: &mut Part<'_, '_>,
    current: &Current<'_>,
    entry: &Entry<'_>,
    place: &dyn Fn() -> Place,
) {
    let (stored, wanted) = (entry.file_type.0, 2);
    if !current.format.file_type || entry.inode.is_none() || stored == wanted || !dirent::is_dot(entry.name) {
        return;
    }
    let offset = offset32(entry.offset);
    let name = text(entry.name);
    let problem = if stored == 0 {
        Problem::TypeUnset { offset, name, wanted }
    } else {
        Problem::TypeWrong { offset, name, stored, wanted }
    };
    part.find(place(), problem);
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Checks an entry that is not a dot; whether it counts as a name.
fn check_entry(
    part: &mut Part<'_, '_>,
    current: &Current<'_>,
    (entry, inode): (&Entry<'_>, InodeNumber),
    place: &dyn Fn() -> Place,
) -> bool {
    let offset = offset32(entry.offset);
    let refuse = |part: &mut Part<'_, '_>, problem: Problem| {
        part.find(place(), problem);
        false
    };
    if dirent::is_dot(entry.name) {
        return refuse(part, Problem::DotsAgain { offset });
    }
    let name = || text(entry.name);
    let first = part.geometry().first_inode();
    let root = InodeNumber::ROOT;
    if (inode != root && inode.get() < first) || part.geometry().inode_place(inode).is_none() {
        return refuse(part, Problem::InodeInvalid { offset, inode, name: name() });
    }
    let encrypted = current.view.flags().contains(InodeFlags::ENCRYPTED);
    if encrypted {
        if entry.name.len() < 16 {
            part.find(
                place(),
                Problem::EncryptionWrong { offset, why: "the name is too short to be encrypted" },
            );
        }
    } else if entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        part.find(place(), Problem::NameInvalid { offset, name: name() });
    }
    if inode == current.number {
        return refuse(part, Problem::LinkToSelf { offset, name: name() });
    }
    if inode == root {
        return refuse(part, Problem::LinkToRoot { offset, name: name() });
    }
    let state = part.state(inode);
    if state & known::USED == 0 {
        unused(part, (inode, offset), name(), place);
        return false;
    }
    let kind = state & known::KIND;
    if state & known::VALUE != 0 && (kind == 2 || part.is_value(inode)) {
        part.find(place(), Problem::LinkToValueInode { offset, inode });
    }
    if encrypted && state & known::ENCRYPTED == 0 && matches!(kind, 1 | 2 | 7) {
        part.find(place(), Problem::EncryptionWrong { offset, why: "the file is not encrypted" });
    }
    if current.format.file_type && kind != 0 && entry.file_type.0 != kind {
        let (stored, wanted, name) = (entry.file_type.0, kind, name());
        let unset = stored == 0;
        let unset_problem = |name| Problem::TypeUnset { offset, name, wanted };
        let problem =
            if unset { unset_problem(name) } else { Problem::TypeWrong { offset, name, stored, wanted } };
        part.find(place(), problem);
    }
    if kind == 2 && !name_directory(part, inode, current.number) {
        return refuse(part, Problem::SecondName { offset, inode, name: name() });
    }
    if current.number == root && entry.name == b"lost+found" {
        part.found.lost_and_found = Some(inode);
    }
    part.names.add(inode);
    true
}

/// An entry that names an inode which pass 1 did not find in use.
fn unused(
    part: &mut Part<'_, '_>,
    (inode, offset): (InodeNumber, u32),
    name: String,
    place: &dyn Fn() -> Place,
) {
    let hidden = part.geometry().inode_place(inode).is_some_and(|(group, at)| at >= part.used_part(group));
    let alive = hidden
        && part.inode_block(inode).is_some_and(|(bytes, range)| {
            bytes.get(range).and_then(|slot| InodeView::new(slot).ok()).is_some_and(|view| view.links() > 0)
        });
    let problem =
        if alive { Problem::InodeInUnusedPart { inode } } else { Problem::InodeFree { offset, inode, name } };
    part.find(place(), problem);
}

/// Notes which directory names a directory; whether it is the first to do so.
fn name_directory(known: &Known<'_>, inode: InodeNumber, parent: InodeNumber) -> bool {
    let first = known.directories.find(inode).is_none_or(|at| known.directories.set_parent(at, parent));
    if !first {
        known.note_meeting();
    }
    first
}

/// Notes what `..` says.
fn note_dotdot(known: &Known<'_>, current: &Current<'_>, parent: InodeNumber) {
    if !known.directories.set_dotdot(current.at, parent) {
        known.note_meeting();
    }
}

/// An inline directory: the parent's number, then entries in the map, and more in an attribute.
fn check_inline(part: &mut Part<'_, '_>, current: &Current<'_>) {
    let place = || Place::InlineData(current.number);
    let map = current.view.map();
    match dirent::inline_parent(map) {
        Some(parent) => {
            note_dotdot(part, current, parent);
            part.names.add(parent);
        }
        None => part.find(place(), Problem::DotDotMissing {}),
    }
    part.names.add(current.number);
    let rest = Area::of_inode(current.view.attribute_area())
        .and_then(|area| area.find(NameIndex::SYSTEM, b"data").ok().flatten());
    let value = match rest.map(|entry| entry.value) {
        Some(Value::Here(value)) => value,
        _ => &[],
    };
    let areas = [map.get(INLINE_ENTRIES).unwrap_or_default(), value];
    let rest_place = || Place::InlineRest(current.number);
    let places: [&dyn Fn() -> Place; 2] = [&place, &rest_place];
    let hashing = Hashing { version: None, seed: [0; 4] };
    let mut names = Names::default();
    for ((at, bytes), own_place) in (0u32..).zip(areas).zip(places) {
        if !bytes.len().is_multiple_of(4) {
            let why = format!("{} bytes of entries", bytes.len());
            part.find(place(), Problem::InlineDamaged { why });
        }
        let area = EntryArea { bytes, place: own_place, at, first: false, range: None };
        check_entries(part, current, (&area, hashing), &mut names);
    }
    let look = |named: Named| {
        let area = areas.get(index(named.at))?.get(index(named.offset)..)?;
        look_at(part, current, area)
    };
    for (named, name) in names.repeated(look) {
        let place = if named.at == 0 { place() } else { rest_place() };
        part.find(place, Problem::NameTwice { offset: named.offset, name: text(&name) });
    }
}
