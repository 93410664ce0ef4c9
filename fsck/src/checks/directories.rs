//! Pass 2: the blocks of directories and their entries.

use std::hash::{DefaultHasher, Hasher};

use rustc_hash::FxHashSet;

use ext4kit_format::disk::dirent::{self, Entry, EntryFormat, INLINE_ENTRIES};
use ext4kit_format::disk::dirhash;
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::inode::{InodeFlags, InodeView};
use ext4kit_format::disk::xattr::{Area, NameIndex, Value};
use ext4kit_format::num::wide;
use ext4kit_format::txn::Owner;
use ext4kit_format::{BlockNumber, InodeNumber, LogicalBlock, Place};

use super::claims::{BitSet, Budget};
use super::context::{Context, known};
use super::index::{self, Tree};
use super::maps::{self, Piece, View, Visitor};
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

/// What is remembered from entry to entry of one directory.
#[derive(Default)]
struct Names {
    /// Hashes of the names met so far, 64 bits each.
    met: FxHashSet<u64>,
}

/// What bounds the work on directories that share their blocks with others.
struct Bounds {
    budget: Budget,
    /// Blocks that were looked at; one that comes again was told as shared.
    seen: BitSet,
}

struct Pieces<'b> {
    pieces: Vec<Piece>,
    entered: FxHashSet<BlockNumber>,
    budget: &'b mut Budget,
}

impl Visitor for Pieces<'_> {
    fn data(&mut self, piece: Piece) {
        self.pieces.push(piece);
    }

    fn node(&mut self, block: BlockNumber) -> bool {
        self.entered.insert(block) && self.budget.take(64)
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {}
}

/// Checks all directories.
pub fn check(context: &mut Context<'_>) {
    let count = context.directories.len();
    let geometry = context.geometry();
    let mut bounds = Bounds { budget: Budget::new(geometry), seen: BitSet::new(geometry.blocks_count()) };
    for at in 0..count {
        let Some(directory) = context.directories.get(at).copied() else { break };
        if let Some((bytes, range)) = context.inode_block(directory.inode)
            && let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok())
        {
            check_directory(context, at, (directory.inode, view), &mut bounds);
        }
        context.progress(wide(at).saturating_add(1), wide(count));
    }
}

fn check_directory(
    context: &mut Context<'_>,
    at: usize,
    (number, view): (InodeNumber, InodeView<'_>),
    bounds: &mut Bounds,
) {
    let flags = view.flags();
    let seed = context.layout.inode_seed(Owner { inode: number, generation: view.generation() });
    let format = EntryFormat {
        block_size: context.geometry().block_size(),
        file_type: context.features().incompat.contains(Incompat::FILETYPE),
        hashed: flags.contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD),
    };
    let current = Current { number, view, seed, format, at };
    if flags.contains(InodeFlags::INLINE_DATA) {
        return check_inline(context, &current);
    }
    let mut pieces = Pieces { pieces: Vec::new(), entered: FxHashSet::default(), budget: &mut bounds.budget };
    maps::walk(View { source: context.source, layout: context.layout }, number, view, &mut pieces);
    let mut pieces = pieces.pieces;
    if pieces.is_empty() {
        context.find(Place::Inode(number), Problem::Hole { logical: 0 });
    }
    pieces.sort_by_key(|piece| piece.logical);
    let limit = context.geometry().blocks_count();
    let mut blocks = Vec::new();
    let mut next = 0u64;
    for piece in pieces {
        if piece.logical > next {
            let logical = u32::try_from(next).unwrap_or(u32::MAX);
            context.find(Place::Inode(number), Problem::Hole { logical });
        }
        next = next.max(piece.logical.saturating_add(piece.length));
        if piece.physical.saturating_add(piece.length) > limit || !bounds.budget.take(piece.length) {
            continue;
        }
        for distance in 0..piece.length {
            let logical = u32::try_from(piece.logical.saturating_add(distance)).unwrap_or(u32::MAX);
            let block = BlockNumber(piece.physical.saturating_add(distance));
            if bounds.seen.insert(block.0) {
                continue;
            }
            if context.claims.in_metadata(ext4kit_format::BlockRun::single(block)).is_none() {
                blocks.push((logical, block));
            }
        }
    }
    let tree = if flags.contains(InodeFlags::INDEX) && context.layout.has_directory_index() {
        let map: index::Blocks = blocks.iter().copied().collect();
        index::read(context, &current, &map)
    } else {
        None
    };
    let mut names = Names::default();
    for (logical, block) in blocks {
        check_block(context, &current, (logical, block), (tree.as_ref(), &mut names));
    }
}

fn check_block(
    context: &mut Context<'_>,
    current: &Current<'_>,
    (logical, block): (u32, BlockNumber),
    (tree, names): (Option<&Tree>, &mut Names),
) {
    let place = Place::DirectoryBlock { inode: current.number, logical: Some(LogicalBlock(logical)), block };
    let bytes = match context.source.block(block) {
        Ok(bytes) => bytes,
        Err(error) => return context.find(place, Problem::Unreadable { why: error.to_string() }),
    };
    let node = tree.is_some_and(|tree| tree.nodes.contains(&logical));
    if node {
        if logical == 0 {
            // The root's entries are dots; the rest of the block is under the second one's record.
            check_entries(context, current, (&bytes, place, true), (None, names));
        }
        return;
    }
    let mut area: &[u8] = &bytes;
    if let Some(seed) = current.seed {
        match dirent::tail_offset(&bytes) {
            Some(_) => {
                area = dirent::leaf_area(&bytes, true);
                if let Err(defect) = dirent::verify_checksum(&bytes, seed) {
                    context.find(place.clone(), Problem::LeafChecksumWrong { defect });
                }
            }
            None => context.find(place.clone(), Problem::TailMissing {}),
        }
    }
    let range = tree.map(|tree| (tree.leaves.get(&logical).copied(), tree.version));
    if let Some((None, _)) = range {
        context.find(place.clone(), Problem::LeafNotReferenced { logical });
    }
    let hashed = match range {
        Some((Some((least, most)), Some(version))) => Some((logical, least, most, version)),
        _ => None,
    };
    check_entries(context, current, (area, place, logical == 0), (hashed, names));
}

type Hashed = (u32, u32, u32, dirhash::HashVersion);

/// Checks the entries of an area. With `first`, it begins with the dots.
fn check_entries(
    context: &mut Context<'_>,
    current: &Current<'_>,
    (area, place, first): (&[u8], Place, bool),
    (hashed, names): (Option<Hashed>, &mut Names),
) {
    let seed = context.layout.directory_hash.seed;
    let mut misplaced = false;
    let mut dots = usize::from(!first).saturating_mul(2);
    for record in current.format.entries(area) {
        let entry = match record {
            Ok(entry) => entry,
            Err(bad) => {
                let offset = u32::try_from(bad.offset).unwrap_or(u32::MAX);
                context.find(place.clone(), Problem::RecordDamaged { offset, defect: bad.defect });
                if dots < 2 {
                    dots = 2;
                }
                continue;
            }
        };
        if dots < 2 {
            check_dot(context, current, &entry, (&place, dots));
            dots = dots.saturating_add(1);
            continue;
        }
        if let (Some(inode), Some((_, least, most, version))) = (entry.inode, hashed)
            && let Some(hash) = dirhash::hash(version, seed, entry.name)
            && (hash.major < least || hash.major > most)
            && inode.get() != 0
        {
            misplaced = true;
        }
        check_entry(context, current, &entry, (&place, names));
    }
    if dots == 1 {
        context.find(place.clone(), Problem::DotDotMissing {});
    }
    if let (true, Some((logical, ..))) = (misplaced, hashed) {
        context.find(place, Problem::HashOutOfRange { logical });
    }
}

fn check_dot(
    context: &mut Context<'_>,
    current: &Current<'_>,
    entry: &Entry<'_>,
    (place, which): (&Place, usize),
) {
    if which == 0 {
        if entry.name != b"." || entry.inode.is_none() {
            return context.find(place.clone(), Problem::DotMissing {});
        }
        let Some(inode) = entry.inode else { return };
        if inode != current.number {
            let problem = Problem::DotWrong { found: inode.get(), wanted: current.number };
            context.find(place.clone(), problem);
        } else if entry.rec_len > dirent::MIN_RECORD {
            context.find(place.clone(), Problem::DotTooLong {});
        }
        context.count_name(current.number);
        return check_dot_type(context, current, entry, place);
    }
    match entry.inode {
        Some(inode) if entry.name == b".." => {
            if let Some(directory) = context.directories.get_mut(current.at) {
                directory.dotdot = inode.get();
            }
            // A removed directory that waits for its end counts no more for its parent.
            if context.state(current.number) & known::HIDDEN == 0 {
                context.count_name(inode);
            }
        }
        _ => context.find(place.clone(), Problem::DotDotMissing {}),
    }
    check_dot_type(context, current, entry, place);
}

/// The dots are directories.
fn check_dot_type(context: &mut Context<'_>, current: &Current<'_>, entry: &Entry<'_>, place: &Place) {
    let (stored, wanted) = (entry.file_type.0, 2);
    if !current.format.file_type || entry.inode.is_none() || stored == wanted || !dirent::is_dot(entry.name) {
        return;
    }
    let offset = u32::try_from(entry.offset).unwrap_or(u32::MAX);
    let name = text(entry.name);
    let problem = if stored == 0 {
        Problem::TypeUnset { offset, name, wanted }
    } else {
        Problem::TypeWrong { offset, name, stored, wanted }
    };
    context.find(place.clone(), problem);
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Checks an entry that is not a dot.
fn check_entry(
    context: &mut Context<'_>,
    current: &Current<'_>,
    entry: &Entry<'_>,
    (place, names): (&Place, &mut Names),
) {
    let Some(inode) = entry.inode else { return };
    let offset = u32::try_from(entry.offset).unwrap_or(u32::MAX);
    let find = |context: &mut Context<'_>, problem: Problem| context.find(place.clone(), problem);
    if dirent::is_dot(entry.name) {
        return find(context, Problem::DotsAgain { offset });
    }
    let name = || text(entry.name);
    let first = context.geometry().first_inode();
    let root = InodeNumber::ROOT;
    if (inode != root && inode.get() < first) || context.geometry().inode_place(inode).is_none() {
        return find(context, Problem::InodeInvalid { offset, inode, name: name() });
    }
    let encrypted = current.view.flags().contains(InodeFlags::ENCRYPTED);
    if encrypted {
        if entry.name.len() < 16 {
            find(context, Problem::EncryptionWrong { offset, why: "the name is too short to be encrypted" });
        }
    } else if entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        find(context, Problem::NameInvalid { offset, name: name() });
    }
    if inode == current.number {
        return find(context, Problem::LinkToSelf { offset, name: name() });
    }
    if inode == root {
        return find(context, Problem::LinkToRoot { offset, name: name() });
    }
    let state = context.state(inode);
    if state & known::USED == 0 {
        return unused(context, (inode, offset), name(), place);
    }
    let kind = state & known::KIND;
    if state & known::VALUE != 0 && (kind == 2 || context.is_value(inode)) {
        find(context, Problem::LinkToValueInode { offset, inode });
    }
    if encrypted && state & known::ENCRYPTED == 0 && matches!(kind, 1 | 2 | 7) {
        find(context, Problem::EncryptionWrong { offset, why: "the file is not encrypted" });
    }
    if current.format.file_type && kind != 0 && entry.file_type.0 != kind {
        let (stored, wanted, name) = (entry.file_type.0, kind, name());
        let unset = stored == 0;
        let unset_problem = |name| Problem::TypeUnset { offset, name, wanted };
        let problem =
            if unset { unset_problem(name) } else { Problem::TypeWrong { offset, name, stored, wanted } };
        find(context, problem);
    }
    if kind == 2 && !name_directory(context, inode, current.number) {
        return find(context, Problem::SecondName { offset, inode, name: name() });
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(entry.name);
    if !names.met.insert(hasher.finish()) {
        find(context, Problem::NameTwice { offset, name: name() });
    }
    if current.number == root && entry.name == b"lost+found" {
        context.lost_and_found = Some(inode);
    }
    context.count_name(inode);
}

/// An entry that names an inode which pass 1 did not find in use.
fn unused(context: &mut Context<'_>, (inode, offset): (InodeNumber, u32), name: String, place: &Place) {
    let hidden =
        context.geometry().inode_place(inode).is_some_and(|(group, at)| at >= context.used_part(group));
    let alive = hidden
        && context.inode_block(inode).is_some_and(|(bytes, range)| {
            bytes.get(range).and_then(|slot| InodeView::new(slot).ok()).is_some_and(|view| view.links() > 0)
        });
    let problem =
        if alive { Problem::InodeInUnusedPart { inode } } else { Problem::InodeFree { offset, inode, name } };
    context.find(place.clone(), problem);
}

/// Notes which directory names a directory; whether it is the first to do so.
fn name_directory(context: &mut Context<'_>, inode: InodeNumber, parent: InodeNumber) -> bool {
    let Ok(at) = context.directories.binary_search_by_key(&inode, |directory| directory.inode) else {
        return true;
    };
    match context.directories.get_mut(at) {
        Some(directory) if directory.parent == 0 => {
            directory.parent = parent.get();
            true
        }
        Some(_) => false,
        None => true,
    }
}

/// An inline directory: the parent's number, then entries in the map, and more in an attribute.
fn check_inline(context: &mut Context<'_>, current: &Current<'_>) {
    let place = Place::InlineData(current.number);
    let map = current.view.map();
    let parent = dirent::inline_parent(map);
    match parent {
        Some(parent) => {
            if let Some(directory) = context.directories.get_mut(current.at) {
                directory.dotdot = parent.get();
            }
            context.count_name(parent);
        }
        None => context.find(place.clone(), Problem::DotDotMissing {}),
    }
    context.count_name(current.number);
    let mut names = Names::default();
    let entries = map.get(INLINE_ENTRIES).unwrap_or_default();
    check_entries(context, current, (entries, place.clone(), false), (None, &mut names));
    let rest = Area::of_inode(current.view.attribute_area())
        .and_then(|area| area.find(NameIndex::SYSTEM, b"data").ok().flatten());
    if let Some(Value::Here(value)) = rest.map(|entry| entry.value)
        && !value.is_empty()
    {
        if !value.len().is_multiple_of(4) {
            let why = format!("{} bytes of entries", value.len());
            context.find(place.clone(), Problem::InlineDamaged { why });
        }
        check_entries(
            context,
            current,
            (value, Place::InlineRest(current.number), false),
            (None, &mut names),
        );
    }
}
