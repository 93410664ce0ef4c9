//! Directories: single entries in place; a block whose records cannot be followed is written anew from the entries that
//! can be proven to be there; a directory whose index is wrong is built anew from all its names.

use ext4kit_format::bytes::{le16, le32};
use ext4kit_format::disk::dirent::{
    self, Entry, EntryFormat, FileType, INLINE_ENTRIES, NewEntry, StoredHash,
};
use ext4kit_format::disk::htree;
use ext4kit_format::disk::inode::{Inode, InodeFlags};
use ext4kit_format::disk::one_bit::Bit;
use ext4kit_format::disk::xattr::NameIndex;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::{index, wide};
use ext4kit_format::tree::dir::blocks::{self, Shape};
use ext4kit_format::tree::dir::{self, Name};
use ext4kit_format::tree::{inode, map};
use ext4kit_format::txn::{BlockKind, BlockRequest, Transaction, create, modify};
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, LogicalBlock, Place};
use rustc_hash::FxHashSet;

use super::workshop::{Whole, Workshop};
use super::{attributes, connect, fields, maps};
use crate::checks::context::known;
use crate::finding::DirectoryProblem as Problem;
use crate::repair::Repair;

/// An entry that is kept, free of the block that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    inode: InodeNumber,
    file_type: FileType,
    name: Vec<u8>,
    hash: Option<StoredHash>,
}

impl Kept {
    fn new(entry: &Entry<'_>) -> Option<Self> {
        let new = entry.to_new()?;
        Some(Self { inode: new.inode, file_type: new.file_type, name: new.name.to_vec(), hash: new.hash })
    }

    fn entry(&self) -> NewEntry<'_> {
        NewEntry { inode: self.inode, file_type: self.file_type, name: &self.name, hash: self.hash }
    }
}

/// Puts a problem of a directory right.
pub fn apply(
    shop: &mut Workshop<'_>,
    place: &Place,
    (problem, repair): (&Problem, &Repair),
    gentle: bool,
) -> Result<()> {
    if let Repair::ReadWholeTable(inode) = repair {
        return connect::read_whole_table(shop, *inode);
    }
    let number = fields::inode_of(place)?;
    if shop.is_done(Whole::Cleared, number) || shop.is_done(Whole::Index, number) {
        return Ok(());
    }
    let dir = inode::read_unverified(shop, number)?;
    match (repair, place) {
        (Repair::RebuildIndex, _) => rebuild(shop, dir),
        _ if !gentle => rebuild(shop, dir),
        (Repair::SalvageBlock, Place::DirectoryBlock { logical: Some(logical), block, .. }) => {
            salvage_block(shop, dir, *logical, *block)
        }
        (Repair::SalvageBlock, Place::InlineData(_)) => salvage_inline(shop, dir),
        (Repair::RefreshChecksum, Place::DirectoryBlock { .. }) => {
            edit_area(shop, dir, place, &mut |_, _| Ok(()))
        }
        (Repair::FlipBit { byte, bit }, _) => {
            let wrong = Bit { byte: index(*byte), bit: *bit };
            edit_area(shop, dir, place, &mut |_, area| {
                wrong.flip(area);
                Ok(())
            })
        }
        (Repair::AllocateBlock { logical }, _) => fill_hole(shop, dir, LogicalBlock(*logical)),
        (Repair::ClearEntry { offset }, _) => {
            let at = index(*offset);
            edit_area(shop, dir, place, &mut |_, area| clear_entry(area, at))
        }
        (Repair::SetEntryType { offset, kind }, _) => {
            let (at, kind) = (index(*offset), *kind);
            edit_area(shop, dir, place, &mut |_, area| put(area, at.saturating_add(7), &[kind]))
        }
        (Repair::SetEntryTarget { offset, inode }, _) => {
            let (at, target) = (index(*offset), inode.get());
            edit_area(shop, dir, place, &mut |_, area| put(area, at, &target.to_le_bytes()))
        }
        (Repair::RenameEntry { offset }, _) if matches!(problem, Problem::NameTwice { .. }) => {
            let hashed = dir.view().flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPTED);
            let at = index(*offset);
            if hashed || dir.view().flags().contains(InodeFlags::INLINE_DATA) {
                edit_area(shop, dir, place, &mut |_, area| clear_entry(area, at))
            } else {
                rebuild(shop, dir)
            }
        }
        (Repair::RenameEntry { offset }, _) => rename(shop, dir, place, index(*offset)),
        _ => Err(Error::Invalid(format!("{place}: {repair} is no repair of a directory"))),
    }
}

fn put(area: &mut [u8], at: usize, bytes: &[u8]) -> std::result::Result<(), ext4kit_format::Defect> {
    let end = at.saturating_add(bytes.len());
    let to = area.get_mut(at..end).ok_or(ext4kit_format::Defect::Truncated { what: "directory entry" })?;
    to.copy_from_slice(bytes);
    Ok(())
}

fn clear_entry(area: &mut [u8], at: usize) -> std::result::Result<(), ext4kit_format::Defect> {
    put(area, at, &[0; 4])
}

type Edit<'e> = dyn FnMut(EntryFormat, &mut [u8]) -> std::result::Result<(), ext4kit_format::Defect> + 'e;

/// Edits the area that a finding's offsets count in: a block, or one of the two parts of an inline directory.
fn edit_area(shop: &mut Workshop<'_>, mut dir: Inode, place: &Place, edit: &mut Edit<'_>) -> Result<()> {
    let shape = blocks::shape(shop, &dir)?;
    let failed = |defect: ext4kit_format::Defect| defect.at(place.clone());
    match place {
        Place::DirectoryBlock { logical: Some(logical), block, .. } => {
            let kind = kind_of(shop, &dir, (*logical, *block))?;
            modify(shop, *block, kind, |bytes| edit(shape.format, bytes))?.map_err(failed)
        }
        Place::InlineData(_) => {
            edit(shape.format, dir.map_mut().get_mut(INLINE_ENTRIES).unwrap_or_default()).map_err(failed)?;
            inode::write_over(shop, &dir)
        }
        Place::InlineRest(_) => {
            let mut list = attributes::sound_in_inode(&dir);
            for attribute in &mut list {
                if let ext4kit_format::disk::xattr::NewValue::Here(value) = &mut attribute.value
                    && attribute.index == NameIndex::SYSTEM
                    && attribute.name == b"data"
                {
                    edit(shape.format, value).map_err(failed)?;
                }
            }
            ext4kit_format::disk::xattr::write_inode_area(dir.attribute_area_mut(), &list).map_err(failed)?;
            inode::write_over(shop, &dir)
        }
        _ => Err(Error::Invalid(format!("{place} holds no entries"))),
    }
}

/// What a block of a directory is: a leaf, or a node of its index.
fn kind_of(
    shop: &Workshop<'_>,
    dir: &Inode,
    (logical, block): (LogicalBlock, BlockNumber),
) -> Result<BlockKind> {
    let bytes = shop.read(block, BlockKind::Plain)?;
    Ok(if is_node(shop, dir, &bytes, logical) {
        BlockKind::DirectoryIndex(dir.owner(), logical)
    } else {
        BlockKind::DirectoryLeaf(dir.owner(), logical)
    })
}

/// Whether a block looks like the root or an inner node of an index.
fn is_node(shop: &Workshop<'_>, dir: &Inode, bytes: &[u8], logical: LogicalBlock) -> bool {
    let indexed = dir.view().flags().contains(InodeFlags::INDEX) && shop.layout().has_directory_index();
    indexed
        && (logical.0 == 0
            || (htree::entries_offset(bytes) == Some(htree::NODE_ENTRIES)
                && dirent::tail_offset(bytes).is_none()))
}

/// Writes a block anew from the entries that are there. What does not fit any more makes the whole directory anew.
fn salvage_block(
    shop: &mut Workshop<'_>,
    dir: Inode,
    logical: LogicalBlock,
    block: BlockNumber,
) -> Result<()> {
    let shape = blocks::shape(shop, &dir)?;
    let bytes = shop.read(block, BlockKind::Plain)?;
    if is_node(shop, &dir, &bytes, logical) {
        return rebuild(shop, dir);
    }
    let found = entries_of(shop, &shape, &bytes);
    let area = shop.layout().geometry.block_length().saturating_sub(if shape.checksummed {
        dirent::TAIL_SIZE
    } else {
        0
    });
    let needed = |kept: &Kept| shape.format.needed(&kept.name);
    let dots =
        if logical.0 == 0 { shape.format.needed(b".").saturating_add(shape.format.needed(b"..")) } else { 0 };
    let total = found.iter().fold(dots, |sum, kept| sum.saturating_add(needed(kept)));
    if total > area {
        return rebuild(shop, dir);
    }
    write_leaf(shop, &dir, (logical, block), &found)
}

/// Writes a leaf of these entries, with the dots before them in the first block.
fn write_leaf(
    shop: &mut Workshop<'_>,
    dir: &Inode,
    (logical, block): (LogicalBlock, BlockNumber),
    found: &[Kept],
) -> Result<()> {
    let shape = blocks::shape(shop, dir)?;
    let parent = if logical.0 == 0 { Some(parent_of(shop, dir)) } else { None };
    let dot = |inode, name| NewEntry { inode, file_type: FileType::DIRECTORY, name, hash: None };
    let mut all: Vec<NewEntry<'_>> = Vec::new();
    if let Some(parent) = parent {
        all.push(dot(dir.number(), b".".as_slice()));
        all.push(dot(parent, b"..".as_slice()));
    }
    all.extend(found.iter().map(Kept::entry));
    let kind = BlockKind::DirectoryLeaf(dir.owner(), logical);
    let place = kind.place(block);
    create(shop, block, kind, |bytes| {
        if shape.checksummed {
            dirent::write_tail(bytes)?;
        }
        let area = dirent::leaf_area_mut(bytes, shape.checksummed);
        if all.is_empty() { shape.format.clear(area) } else { shape.format.pack(area, all) }
    })?
    .map_err(|defect| defect.at(place))
}

/// The parent of a directory: what `..` says if that is a directory, else whoever names it, else the root.
fn parent_of(shop: &Workshop<'_>, dir: &Inode) -> InodeNumber {
    let number = dir.number();
    let directories = &shop.knowledge.directories;
    let known = directories.binary_search_by_key(&number, |directory| directory.inode).ok();
    let known = known.and_then(|at| directories.get(at));
    let candidates = known.map_or([0, 0], |directory| [directory.dotdot, directory.parent]);
    let is_directory = |inode: &InodeNumber| {
        let state = shop.state(*inode);
        state & known::USED != 0 && state & known::KIND == 2
    };
    let named = candidates.into_iter().filter_map(InodeNumber::new).find(is_directory);
    named.unwrap_or(InodeNumber::ROOT)
}

/// The entries of a leaf but the dots. Where records cannot be followed, the block is searched for what can only be an
/// entry in use.
fn entries_of(shop: &Workshop<'_>, shape: &Shape, bytes: &[u8]) -> Vec<Kept> {
    let has_tail = dirent::tail_offset(bytes).is_some();
    let area = dirent::leaf_area(bytes, shape.checksummed && has_tail);
    search(shop, shape.format, area)
}

fn search(shop: &Workshop<'_>, format: EntryFormat, area: &[u8]) -> Vec<Kept> {
    let mut found: Vec<Kept> = Vec::new();
    let mut start = 0usize;
    let mut lost = false;
    while let Some(rest) = area.get(start..).filter(|rest| !rest.is_empty()) {
        let mut next = area.len();
        for record in format.entries(rest) {
            match record {
                Ok(entry) => {
                    let keep = !dirent::is_dot(entry.name) && (!lost || is_missed(shop, &entry));
                    if keep && let Some(kept) = Kept::new(&entry) {
                        found.push(kept);
                    }
                    lost = false;
                }
                Err(bad) => {
                    let at = start.saturating_add(bad.offset);
                    if let Some(kept) = bad_record(shop, format, area.get(at..).unwrap_or_default()) {
                        found.push(kept);
                    }
                    if bad.rec_len.is_none() {
                        next = at.saturating_add(4);
                    }
                }
            }
        }
        start = resume(shop, format, area, next);
        lost = true;
    }
    found
}

/// The next place from `from` on where an entry lies that somebody misses.
fn resume(shop: &Workshop<'_>, format: EntryFormat, area: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < area.len() {
        let rest = area.get(at..).unwrap_or_default();
        let first = format.entries(rest).next();
        if let Some(Ok(entry)) = first
            && is_missed(shop, &entry)
        {
            return at;
        }
        at = at.saturating_add(4);
    }
    area.len()
}

/// The name of a record whose length cannot be followed, if the rest of it stands.
fn bad_record(shop: &Workshop<'_>, format: EntryFormat, rest: &[u8]) -> Option<Kept> {
    let name_length = usize::from(le16(rest, 6)?.to_le_bytes().first().copied()?);
    let end = format.needed(rest.get(8..8usize.saturating_add(name_length))?);
    let record = rest.get(..end.min(rest.len()))?;
    let mut copy = record.to_vec();
    let length = dirent::encode_rec_len(copy.len() & !3, format.block_size).ok()?;
    copy.get_mut(4..6)?.copy_from_slice(&length.to_le_bytes());
    let entry = format.entries(&copy).next()?.ok()?;
    if is_missed(shop, &entry) { Kept::new(&entry) } else { None }
}

/// Whether an entry names a file in use that has fewer names than it says: one that lay in what was damaged, and not
/// the remains of one that was removed.
fn is_missed(shop: &Workshop<'_>, entry: &Entry<'_>) -> bool {
    let Some(number) = entry.inode else { return false };
    let plain = !entry.name.is_empty() && !entry.name.iter().any(|byte| matches!(byte, 0 | b'/'));
    let state = shop.state(number);
    let kind = state & known::KIND;
    if !plain || dirent::is_dot(entry.name) || state & known::USED == 0 || state & known::HIDDEN != 0 {
        return false;
    }
    if entry.file_type != FileType::UNKNOWN && entry.file_type.0 != kind {
        return false;
    }
    let names = shop.knowledge.names.get(index(number.get().saturating_sub(1))).copied().unwrap_or(0);
    if kind == 2 {
        let directories = &shop.knowledge.directories;
        let at = directories.binary_search_by_key(&number, |directory| directory.inode);
        return at.ok().and_then(|at| directories.get(at)).is_some_and(|directory| directory.parent == 0);
    }
    inode::read_unverified(shop, number).is_ok_and(|inode| names < u32::from(inode.view().links()))
}

/// Builds a directory anew from all its names.
pub fn rebuild(shop: &mut Workshop<'_>, mut dir: Inode) -> Result<()> {
    let number = dir.number();
    if !shop.first_time(Whole::Index, number) {
        return Ok(());
    }
    if dir.view().flags().contains(InodeFlags::INLINE_DATA) {
        return salvage_inline(shop, dir);
    }
    let shape = blocks::shape(shop, &dir)?;
    if shape.format.hashed || dir.view().flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPTED) {
        return make_linear(shop, dir);
    }
    let mut names: Vec<Name> = Vec::new();
    for bytes in leaves(shop, &dir)? {
        for kept in entries_of(shop, &shape, &bytes) {
            names.push(Name { name: kept.name, inode: kept.inode, file_type: kept.file_type });
        }
    }
    make_unique(&mut names);
    let parent = parent_of(shop, &dir);
    let flags = dir.view().flags().difference(InodeFlags::INDEX);
    dir.set_flags(flags);
    let extents = map::uses_extents(&dir);
    map::initialise(&mut dir, extents)?;
    dir.set_size(0);
    maps::reset_block_count(shop, &mut dir)?;
    dir::build(shop, &mut dir, parent, (&mut names, false))?;
    inode::write_over(shop, &dir)
}

/// Drops names that are there twice for the same file, and gives another name to what would hide behind a name that is
/// taken.
fn make_unique(names: &mut Vec<Name>) {
    let mut taken: FxHashSet<Vec<u8>> = FxHashSet::default();
    names.sort_by(|one, other| (&one.name, one.inode).cmp(&(&other.name, other.inode)));
    names.dedup_by(|one, other| one.name == other.name && one.inode == other.inode);
    for name in &*names {
        taken.insert(name.name.clone());
    }
    let mut met: FxHashSet<Vec<u8>> = FxHashSet::default();
    // Equal names follow each other, and what was tried for one of them is taken for the next.
    let (mut before, mut tried) = (Vec::new(), 0);
    for name in names {
        if !met.insert(name.name.clone()) {
            if before != name.name {
                (before, tried) = (name.name.clone(), 0);
            }
            name.name = free_name(&name.name, &mut tried, &mut |wanted| taken.insert(wanted.to_vec()));
            met.insert(name.name.clone());
        }
    }
}

/// A name like another one that is not taken, ending in `~` and the first number that was not tried and is free. It is made to take no more room in its block
/// where that can be: records are multiples of four bytes.
fn free_name(name: &[u8], tried: &mut u32, take: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
    let length = name.len();
    let padded = length.next_multiple_of(4);
    let roomy = padded.saturating_sub(length) >= 2;
    let base = if roomy { length.saturating_add(2) } else { padded };
    for number in *tried..u32::MAX {
        *tried = number.saturating_add(1);
        let tail = format!("~{number}");
        let target = base.max(tail.len().saturating_add(1)).min(dirent::MAX_NAME);
        let kept = target.saturating_sub(tail.len()).min(length);
        let mut wanted = name.get(..kept).unwrap_or_default().to_vec();
        wanted.extend_from_slice(tail.as_bytes());
        if take(&wanted) {
            return wanted;
        }
    }
    name.to_vec()
}

/// Every block of entries of a directory, nodes of its index left out; the root's dots carry nothing else.
fn leaves(shop: &Workshop<'_>, dir: &Inode) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut seen = FxHashSet::default();
    for piece in maps::sound_pieces(shop, dir) {
        for distance in 0..piece.length {
            let block = BlockNumber(piece.physical.saturating_add(distance));
            let Ok(logical) = u32::try_from(piece.logical.saturating_add(distance)) else { break };
            let logical = LogicalBlock(logical);
            let in_metadata = shop.knowledge.claims.in_metadata(BlockRun::single(block)).is_some();
            if in_metadata || !seen.insert(block) {
                continue;
            }
            let bytes = shop.read(block, BlockKind::Plain)?;
            let root_only = logical.0 == 0 && is_node(shop, dir, &bytes, logical) && is_index_root(&bytes);
            if root_only || (logical.0 != 0 && is_node(shop, dir, &bytes, logical)) {
                continue;
            }
            found.push(bytes.to_vec());
        }
    }
    Ok(found)
}

/// Whether the second entry covers the block, as it does over the root of an index.
fn is_index_root(bytes: &[u8]) -> bool {
    htree::entries_offset(bytes) == Some(htree::ROOT_ENTRIES)
}

/// Makes a directory whose names cannot be hashed here one without an index: every name stays where it is.
fn make_linear(shop: &mut Workshop<'_>, mut dir: Inode) -> Result<()> {
    let shape = blocks::shape(shop, &dir)?;
    let mut all: Vec<((LogicalBlock, BlockNumber), Vec<Kept>)> = Vec::new();
    for piece in maps::sound_pieces(shop, &dir) {
        for distance in 0..piece.length {
            let block = BlockNumber(piece.physical.saturating_add(distance));
            let Ok(logical) = u32::try_from(piece.logical.saturating_add(distance)) else { break };
            let bytes = shop.read(block, BlockKind::Plain)?;
            let node = is_node(shop, &dir, &bytes, LogicalBlock(logical));
            let kept = if node { Vec::new() } else { entries_of(shop, &shape, &bytes) };
            all.push(((LogicalBlock(logical), block), kept));
        }
    }
    let flags = dir.view().flags().difference(InodeFlags::INDEX);
    dir.set_flags(flags);
    inode::write_over(shop, &dir)?;
    for (at, kept) in all {
        write_leaf(shop, &dir, at, &kept)?;
    }
    Ok(())
}

/// Gives a hole an empty block.
fn fill_hole(shop: &mut Workshop<'_>, mut dir: Inode, logical: LogicalBlock) -> Result<()> {
    if dir.view().flags().contains(InodeFlags::INDEX) || shop.layout().geometry.cluster_bits() > 0 {
        return rebuild(shop, dir);
    }
    let goal = BlockNumber(0);
    let block = shop.allocate_blocks(BlockRequest { goal, wanted: 1, owner: dir.number() })?.start;
    map::insert(shop, &mut dir, logical, BlockRun::single(block), false)?;
    inode::write_over(shop, &dir)?;
    write_leaf(shop, &dir, (logical, block), &[])
}

/// Gives an entry another name, one that no other entry of its area has.
fn rename(shop: &mut Workshop<'_>, dir: Inode, place: &Place, at: usize) -> Result<()> {
    edit_area(shop, dir, place, &mut |format, area| {
        let length = usize::from(area.get(at.saturating_add(6)).copied().unwrap_or(0));
        let start = at.saturating_add(8);
        let Some(old) = area.get(start..start.saturating_add(length)).map(<[u8]>::to_vec) else {
            return Ok(());
        };
        let inode = le32(area, at).unwrap_or(0);
        let record = le16(area, at.saturating_add(4)).unwrap_or(0);
        let room = dirent::decode_rec_len(record, format.block_size).saturating_sub(8);
        let illegal = |byte: &u8| matches!(byte, 0 | b'/');
        let mut name: Vec<u8> = old.iter().map(|byte| if illegal(byte) { b'.' } else { *byte }).collect();
        if name == old || dirent::is_dot(&name) {
            // The number makes it unlike any other name, as far as there is room for it.
            let tail = format!("~{inode}");
            let keep = room.min(dirent::MAX_NAME).saturating_sub(tail.len()).min(name.len());
            name.truncate(keep);
            name.extend_from_slice(tail.as_bytes());
            name.truncate(room.min(dirent::MAX_NAME));
        }
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        put(area, at.saturating_add(6), &[length])?;
        put(area, start, &name)
    })
}

/// Writes both parts of an inline directory anew.
fn salvage_inline(shop: &mut Workshop<'_>, mut dir: Inode) -> Result<()> {
    let shape = blocks::shape(shop, &dir)?;
    let parent = dirent::inline_parent(dir.view().map()).unwrap_or(InodeNumber::ROOT);
    let mut list = attributes::sound_in_inode(&dir);
    let is_data = |attribute: &ext4kit_format::disk::xattr::Attribute| {
        attribute.index == NameIndex::SYSTEM && attribute.name == b"data"
    };
    let mut kept = search(shop, shape.format, dir.view().map().get(INLINE_ENTRIES).unwrap_or_default());
    if let Some(ext4kit_format::disk::xattr::NewValue::Here(value)) =
        list.iter().find(|attribute| is_data(attribute)).map(|attribute| &attribute.value)
    {
        kept.extend(search(shop, shape.format, value));
    }
    let room = INLINE_ENTRIES.len();
    let mut first: Vec<Kept> = Vec::new();
    let mut second: Vec<Kept> = Vec::new();
    let mut taken = 0usize;
    for entry in kept {
        let needed = shape.format.needed(&entry.name);
        if second.is_empty() && taken.saturating_add(needed) <= room {
            taken = taken.saturating_add(needed);
            first.push(entry);
        } else {
            second.push(entry);
        }
    }
    let failed = |defect: ext4kit_format::Defect| defect.at(Place::InlineData(dir.number()));
    let mut map = *dir.view().map();
    dirent::set_inline_parent(&mut map, parent).map_err(failed)?;
    fill(shape.format, map.get_mut(INLINE_ENTRIES).unwrap_or_default(), &first).map_err(failed)?;
    let mut rest = vec![0; second.iter().map(|entry| shape.format.needed(&entry.name)).sum()];
    if !rest.is_empty() {
        fill(shape.format, &mut rest, &second).map_err(failed)?;
    }
    let size = wide(map.len().saturating_add(rest.len()));
    list.retain(|attribute| !is_data(attribute));
    list.push(ext4kit_format::disk::xattr::Attribute {
        index: NameIndex::SYSTEM,
        name: b"data".to_vec(),
        value: ext4kit_format::disk::xattr::NewValue::Here(rest),
    });
    *dir.map_mut() = map;
    ext4kit_format::disk::xattr::write_inode_area(dir.attribute_area_mut(), &list)
        .map_err(|defect| defect.at(Place::InlineData(dir.number())))?;
    dir.set_size(size);
    inode::write_over(shop, &dir)
}

fn fill(
    format: EntryFormat,
    area: &mut [u8],
    kept: &[Kept],
) -> std::result::Result<(), ext4kit_format::Defect> {
    if kept.is_empty() { format.clear(area) } else { format.pack(area, kept.iter().map(Kept::entry)) }
}
