//! Block maps and extent trees: everything sound that can be read of a map is put into a new one; blocks that belong to
//! others as well are copied.

use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::inode::{Inode, InodeFlags};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::tree::{inode, map, xattr};
use ext4kit_format::txn::{BlockKind, BlockRequest, Transaction, create, modify};
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, LogicalBlock, Place};
use rustc_hash::{FxHashMap, FxHashSet};

use super::fields;
use super::workshop::{Whole, Workshop};
use crate::checks::inodes::last_logical;
use crate::checks::maps::{self, Piece, Visitor};
use crate::finding::{Finding, MapProblem, Problem};
use crate::repair::Repair;

/// Puts a problem of a map right.
pub fn apply(
    shop: &mut Workshop<'_>,
    place: &Place,
    (problem, repair): (&MapProblem, &Repair),
    gentle: bool,
) -> Result<()> {
    let number = fields::inode_of(place)?;
    if shop.is_done(Whole::Cleared, number) {
        return Ok(());
    }
    if !gentle {
        return fields::clear_inode(shop, number);
    }
    if let (Repair::RefreshChecksum, Place::ExtentNode { block: Some(block), .. }) = (repair, place) {
        let owner = inode::read_unverified(shop, number)?.owner();
        return modify(shop, *block, BlockKind::ExtentNode(owner), |_| ());
    }
    let in_root = matches!(place, Place::ExtentNode { block: None, .. });
    if in_root && matches!(problem, MapProblem::NodeDamaged { .. }) {
        // Nothing can be reached any more.
        return fields::clear_inode(shop, number);
    }
    if number == InodeNumber::BAD_BLOCKS {
        return if shop.first_time(Whole::Map, number) { shorten_list(shop) } else { Ok(()) };
    }
    if shop.first_time(Whole::Map, number) {
        let mut file = inode::read_unverified(shop, number)?;
        let to_extents = matches!(problem, MapProblem::BlockMapWithClusters {});
        rebuild(shop, &mut file, to_extents, &mut |_| false)?;
    }
    Ok(())
}

/// Writes the list of bad blocks anew without those that the filesystem or the list itself lies in.
fn shorten_list(shop: &mut Workshop<'_>) -> Result<()> {
    let list = inode::read_unverified(shop, InodeNumber::BAD_BLOCKS)?;
    let own = sound_map(shop, &list).1;
    let claims = &shop.knowledge.claims;
    let stays =
        |block: &BlockNumber| claims.in_metadata(BlockRun::single(*block)).is_none() && !own.contains(block);
    let kept: Vec<BlockNumber> = bad_blocks(shop)?.into_iter().filter(stays).collect();
    write_bad_blocks(shop, kept)
}

/// The blocks that the list of bad blocks has.
pub fn bad_blocks(shop: &Workshop<'_>) -> Result<Vec<BlockNumber>> {
    let list = inode::read_unverified(shop, InodeNumber::BAD_BLOCKS)?;
    let pieces = sound_pieces(shop, &list);
    let runs =
        pieces.iter().map(|piece| BlockRun { start: BlockNumber(piece.physical), length: piece.length });
    Ok(runs.flat_map(BlockRun::iter).collect())
}

/// Makes the list of bad blocks of these.
pub fn write_bad_blocks(
    shop: &mut Workshop<'_>,
    blocks: impl IntoIterator<Item = BlockNumber>,
) -> Result<()> {
    let mut list = inode::read_unverified(shop, InodeNumber::BAD_BLOCKS)?;
    let extents = map::uses_extents(&list);
    map::initialise(&mut list, extents)?;
    inode::set_sectors(shop, &mut list, 0)?;
    for (logical, block) in (0u64..).zip(blocks) {
        let piece = Piece { logical, physical: block.0, length: 1, unwritten: false };
        insert(shop, &mut list, piece)?;
    }
    inode::write_over(shop, &list)
}

/// Every inode's copy of the blocks that it shares: all owners but the last get their own, and all of them where the
/// filesystem's own metadata lies there.
pub fn clone_shared(shop: &mut Workshop<'_>, findings: &[&Finding]) -> Vec<Result<()>> {
    let bits = shop.layout().geometry.cluster_bits();
    let mut owners: FxHashMap<u64, Owners> = FxHashMap::default();
    let clusters = |block: BlockNumber, length: u64| {
        (block.0 >> bits)..=(block.0.saturating_add(length.saturating_sub(1)) >> bits)
    };
    for finding in findings {
        if let Problem::Map(MapProblem::Shared { block, length }) = &finding.problem {
            let bad = fields::inode_of(&finding.place).is_ok_and(|number| number == InodeNumber::BAD_BLOCKS);
            for cluster in clusters(*block, *length) {
                if bad {
                    shop.bad.insert(cluster);
                }
                let owners = owners.entry(cluster).or_default();
                owners.left = owners.left.saturating_add(u32::from(!bad));
                owners.fixed |= bad;
            }
        }
    }
    // Where only one owner was named, the other is no file: the resize inode, or metadata.
    for owners in owners.values_mut() {
        owners.fixed |= owners.left < 2;
    }
    let mut results = Vec::with_capacity(findings.len());
    for finding in findings {
        let number = fields::inode_of(&finding.place);
        results.push(number.and_then(|number| {
            let bad = number == InodeNumber::BAD_BLOCKS;
            if !bad && shop.first_time(Whole::Map, number) {
                clone_inode(shop, number, &mut owners)
            } else {
                Ok(())
            }
        }));
    }
    results
}

/// Who has a cluster: so many files, and perhaps somebody who cannot give it up.
#[derive(Clone, Copy, Debug, Default)]
struct Owners {
    left: u32,
    fixed: bool,
}

fn clone_inode(
    shop: &mut Workshop<'_>,
    number: InodeNumber,
    owners: &mut FxHashMap<u64, Owners>,
) -> Result<()> {
    let bits = shop.layout().geometry.cluster_bits();
    let mut file = inode::read_unverified(shop, number)?;
    let mut own = |block: BlockNumber| match owners.get_mut(&(block.0 >> bits)) {
        Some(Owners { left, fixed }) if *left > 1 || *fixed => {
            *left = left.saturating_sub(1);
            true
        }
        _ => false,
    };
    let attributes = file.view().attribute_block();
    if attributes.0 != 0 && shop.knowledge.claims.shared.contains(attributes.0 >> bits) && own(attributes) {
        let bytes = shop.read(attributes, BlockKind::Plain)?;
        let request = BlockRequest { goal: attributes, wanted: 1, owner: number };
        let copy = shop.allocate_blocks(request)?.start;
        create(shop, copy, BlockKind::Attributes, |to| to.copy_from_slice(&bytes))?;
        file.set_attribute_block(copy).map_err(|defect| defect.at(Place::Inode(number)))?;
        inode::write_over(shop, &file)?;
    }
    if file.view().flags().contains(InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    rebuild(shop, &mut file, false, &mut own)
}

/// A map without a block.
pub fn empty(shop: &mut Workshop<'_>, file: &mut Inode) -> Result<()> {
    let flags = file.view().flags().difference(InodeFlags::INLINE_DATA | InodeFlags::INDEX);
    file.set_flags(flags);
    let extents = shop.layout().features().incompat.contains(Incompat::EXTENTS);
    map::initialise(file, extents)?;
    file.set_size(0);
    reset_block_count(shop, file)?;
    inode::write_over(shop, file)
}

/// Counts in `i_blocks` what attributes take and nothing else, so that what is mapped from here on adds up.
pub fn reset_block_count(shop: &Workshop<'_>, file: &mut Inode) -> Result<()> {
    let charged = xattr::charged_blocks(shop, file).unwrap_or(0);
    let shift = shop.layout().geometry.block_bits().saturating_sub(9);
    inode::set_sectors(shop, file, charged << shift)
}

/// Collects what a map says, as far as it can be.
struct Sound<'g> {
    geometry: &'g ext4kit_format::geometry::Geometry,
    pieces: Vec<Piece>,
    nodes: FxHashSet<BlockNumber>,
    /// Where the next piece may begin.
    next: u64,
    /// The last logical block that the file may have.
    most: u64,
}

impl Visitor for Sound<'_> {
    fn data(&mut self, piece: Piece) {
        let run = BlockRun { start: BlockNumber(piece.physical), length: piece.length };
        let first = self.geometry.first_data_block().0;
        let sound = self.geometry.contains_run(run) && piece.physical >= first && piece.physical > 0;
        let end = piece.logical.saturating_add(piece.length.saturating_sub(1));
        if sound && piece.logical >= self.next && end <= self.most {
            self.next = piece.logical.saturating_add(piece.length);
            self.pieces.push(piece);
        }
    }

    fn node(&mut self, block: BlockNumber) -> bool {
        self.nodes.insert(block)
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {}
}

/// The pieces of a file's map that lie in the filesystem, in order and over no other.
pub fn sound_pieces(shop: &Workshop<'_>, file: &Inode) -> Vec<Piece> {
    sound_map(shop, file).0
}

/// The same with the blocks of the map itself.
fn sound_map(shop: &Workshop<'_>, file: &Inode) -> (Vec<Piece>, FxHashSet<BlockNumber>) {
    let geometry = &shop.layout().geometry;
    let most = last_logical(shop.layout(), file.view());
    let mut sound = Sound { geometry, pieces: Vec::new(), nodes: FxHashSet::default(), next: 0, most };
    maps::walk(shop.view(), file.number(), file.view(), &mut sound);
    (sound.pieces, sound.nodes)
}

/// Builds a map anew from its sound pieces, all of which stay where they are.
pub fn rebuild_plain(shop: &mut Workshop<'_>, file: &mut Inode, to_extents: bool) -> Result<()> {
    rebuild(shop, file, to_extents, &mut |_| false)
}

/// Builds a map anew from its sound pieces. Blocks that `copied` names, and those that hold the filesystem's metadata,
/// are copied first.
fn rebuild(
    shop: &mut Workshop<'_>,
    file: &mut Inode,
    to_extents: bool,
    copied: &mut dyn FnMut(BlockNumber) -> bool,
) -> Result<()> {
    let pieces = sound_pieces(shop, file);
    let extents = to_extents || map::uses_extents(file);
    let directory = file.view().is_directory();
    let old = *file.view().map();
    map::initialise(file, extents)?;
    reset_block_count(shop, file)?;
    for piece in pieces {
        let outcome = take_over(shop, file, piece, (directory, copied));
        if let Err(error) = outcome {
            *file.map_mut() = old;
            return Err(error);
        }
    }
    inode::write_over(shop, file)
}

fn take_over(
    shop: &mut Workshop<'_>,
    file: &mut Inode,
    piece: Piece,
    (directory, copied): (bool, &mut dyn FnMut(BlockNumber) -> bool),
) -> Result<()> {
    let size = 1u64 << shop.layout().geometry.cluster_bits();
    let rest_of_cluster = |block: u64| size.saturating_sub(block & size.saturating_sub(1));
    let unwritten = piece.unwritten && !directory;
    let mut staying: Option<Piece> = None;
    let mut done = 0u64;
    while done < piece.length {
        let (logical, physical) = (piece.logical.saturating_add(done), piece.physical.saturating_add(done));
        let rest = piece.length.saturating_sub(done);
        let length = rest.min(rest_of_cluster(logical)).min(rest_of_cluster(physical));
        let part = Piece { logical, physical, length, unwritten };
        if strays(shop, file, part)? || must_copy(shop, part, copied) {
            if let Some(staying) = staying.take() {
                insert(shop, file, staying)?;
            }
            copy(shop, file, part)?;
        } else if let Some(staying) = &mut staying {
            staying.length = staying.length.saturating_add(length);
        } else {
            staying = Some(part);
        }
        done = done.saturating_add(length);
    }
    staying.map_or(Ok(()), |staying| insert(shop, file, staying))
}

/// Whether the file has the cluster of these blocks somewhere else already.
fn strays(shop: &Workshop<'_>, file: &Inode, part: Piece) -> Result<bool> {
    let bits = shop.layout().geometry.cluster_bits();
    if bits == 0 {
        return Ok(false);
    }
    let mapped = map::block_in_cluster(shop, file, part.logical >> bits)?;
    Ok(mapped.is_some_and(|block| block.0 >> bits != part.physical >> bits))
}

/// Whether blocks of one cluster cannot stay where they are.
fn must_copy(shop: &Workshop<'_>, part: Piece, copied: &mut dyn FnMut(BlockNumber) -> bool) -> bool {
    let within = (1u64 << shop.layout().geometry.cluster_bits()).saturating_sub(1);
    let claims = &shop.knowledge.claims;
    let at = BlockNumber(part.physical);
    let run = BlockRun { start: at, length: part.length };
    let misplaced = part.physical & within != part.logical & within;
    claims.in_metadata(run).is_some()
        || misplaced
        || (claims.shared.contains(claims.cluster(at.0)) && copied(at))
}

/// Copies blocks that lie in one cluster of the file.
fn copy(shop: &mut Workshop<'_>, file: &mut Inode, part: Piece) -> Result<()> {
    let geometry = &shop.layout().geometry;
    let (bits, block_length) = (geometry.cluster_bits(), geometry.block_length());
    let size = 1u64 << bits;
    let within = part.logical & size.saturating_sub(1);
    let mapped = if bits > 0 { map::block_in_cluster(shop, file, part.logical >> bits)? } else { None };
    let cluster = if let Some(block) = mapped {
        BlockNumber(block.0 >> bits << bits)
    } else {
        let goal = BlockNumber(part.physical);
        shop.allocate_blocks(BlockRequest { goal, wanted: size, owner: file.number() })?.start
    };
    let start = cluster.0.saturating_add(within);
    let mut bytes = vec![0; block_length];
    for distance in 0..part.length {
        let from = BlockNumber(part.physical.saturating_add(distance));
        match shop.read_data(from, &mut bytes) {
            // Nothing more can be had from a block that is known to be bad; anywhere else another try may help.
            Err(Error::Io { .. }) if shop.bad.contains(&(from.0 >> bits)) => {
                bytes.fill(0);
                shop.unreadable.push((file.number(), from));
            }
            read => read?,
        }
        shop.write_data(BlockNumber(start.saturating_add(distance)), &bytes)?;
    }
    insert(shop, file, Piece { physical: start, ..part })
}

fn insert(shop: &mut Workshop<'_>, file: &mut Inode, piece: Piece) -> Result<()> {
    let logical = u32::try_from(piece.logical).map_err(|_| Error::FileTooBig(file.number()))?;
    let run = BlockRun { start: BlockNumber(piece.physical), length: piece.length };
    let unwritten = piece.unwritten && map::uses_extents(file);
    map::insert(shop, file, LogicalBlock(logical), run, unwritten)
}
