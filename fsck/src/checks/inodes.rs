//! Pass 1: every inode of the used part of each table, and the blocks it maps.

use std::ops::Range;

use ext4kit_format::bytes::all_zero;
use ext4kit_format::disk::dirent::FileType;
use ext4kit_format::disk::extent::ExtentLeaf;
use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::inode::{self, FileKind, HEAD_SIZE, InodeFlags, InodeView, MAP_SIZE};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::{index, index64, wide};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, InodeNumber, Place};

use super::attributes::{self, Seen};
use super::bits::InodeBytes;
use super::context::{Context, Known, known};
use super::directory_list::DirectoryList;
use super::maps::{self, Piece, View, Visitor};
use super::part::{Part, Run};
use super::plain::Measure;
use super::proof;
use super::{disguise, plain, special};
use crate::finding::{InodeProblem as Problem, MapProblem, SuperblockProblem};

/// Findings about one inode's map beyond this many add nothing.
const MOST_MAP_PROBLEMS: usize = 32;

/// Blocks of a table that are read at a time.
const STRETCH: u32 = 64;
/// A directory of so many clusters is split in pass 2.
const LARGE_DIRECTORY: u64 = 256;

/// Checks all inodes.
pub fn check(context: &mut Context<'_>) {
    context.run(tables, |known| {
        known.claims.restart();
        known.states = InodeBytes::new(known.geometry().inodes_count());
        known.links = InodeBytes::new(known.geometry().inodes_count());
    });
    let directories = std::mem::take(&mut context.ledger.kept.directories);
    let large = std::mem::take(&mut context.ledger.kept.large_directories);
    context.known.directories = DirectoryList::new(directories, &large);
    for number in 1..context.geometry().first_inode() {
        if let Some(inode) = InodeNumber::new(number) {
            let state = context.state(inode) | known::USED | if number == 2 { 0 } else { known::HIDDEN };
            if number != 2 || context.state(inode) != 0 {
                context.states.set(inode, state);
            }
        }
    }
    attributes::check_blocks(context);
    let references = &context.ledger.kept.value_references;
    let mut values: Vec<InodeNumber> = references.iter().map(|(value, _)| *value).collect();
    values.sort_unstable();
    values.dedup();
    context.known.values = values;
    if context.ledger.kept.has_large_file && !context.features().ro_compat.contains(RoCompat::LARGE_FILE) {
        context.find(Place::Superblock, SuperblockProblem::LargeFileUnset {});
    }
}

/// Inodes of a group that follow each other, whole blocks of its table.
#[derive(Clone, Copy)]
struct Stretch {
    group: GroupNumber,
    /// The first block, from the table's start.
    first: u32,
    /// How many blocks.
    blocks: u32,
}

/// Checks the used parts of all tables.
fn tables(run: &mut Run<'_, '_>) {
    let geometry = run.known.geometry();
    let per_block = geometry.inodes_per_block().max(1);
    let blocks_of = |group| run.known.used_part(group).div_ceil(per_block);
    let total = geometry.groups().fold(0u64, |sum, group| sum.saturating_add(blocks_of(group).into()));
    let parts = wide(run.parts_of(index64(total), index(STRETCH))).max(1);
    let most = u32::try_from(total.div_ceil(parts)).unwrap_or(STRETCH).clamp(1, STRETCH);
    let mut stretches = Vec::new();
    for group in geometry.groups() {
        let blocks = blocks_of(group);
        for first in (0..blocks).step_by(index(most)) {
            stretches.push(Stretch { group, first, blocks: most.min(blocks.saturating_sub(first)) });
        }
    }
    run.parts(stretches.len(), |part, at| {
        if let Some(stretch) = stretches.get(at) {
            check_stretch(part, *stretch);
        }
    });
}

fn check_stretch(part: &mut Part<'_, '_>, stretch: Stretch) {
    let geometry = part.geometry();
    let Some(descriptor) = part.group(stretch.group) else { return };
    let table = BlockRun { start: descriptor.inode_table, length: geometry.inode_table_blocks().into() };
    if !geometry.contains_run(table) {
        return;
    }
    let start = BlockNumber(table.start.0.saturating_add(stretch.first.into()));
    let first = stretch.first.saturating_mul(geometry.inodes_per_block());
    let mut buffer = std::mem::take(&mut part.buffer);
    let read = part.source.read_blocks(BlockRun { start, length: stretch.blocks.into() }, &mut buffer);
    let all = read.map(|bytes| check_slots(part, (stretch.group, first), bytes));
    part.buffer = buffer;
    if all.is_ok() {
        return;
    }
    // One by one, to tell of those that cannot be read and to look at the others.
    for at in 0..stretch.blocks {
        let first = first.saturating_add(at.saturating_mul(geometry.inodes_per_block()));
        match part.source.block(BlockNumber(start.0.saturating_add(at.into()))) {
            Ok(bytes) => check_slots(part, (stretch.group, first), &bytes),
            Err(error) => {
                part.find(Place::InodeTable(stretch.group), Problem::Unreadable { why: error.to_string() });
            }
        }
    }
}

/// Slots whose checksums are verified together.
const TOGETHER: usize = 4;

/// Checks the inodes in some blocks of a group's table, given the place of the first.
fn check_slots(part: &mut Part<'_, '_>, (group, first): (GroupNumber, u32), bytes: &[u8]) {
    let geometry = part.geometry();
    let size = index(geometry.inode_size());
    let Some(before) = geometry.inode_at(group, 0).map(InodeNumber::get) else { return };
    let places = first..part.used_part(group);
    let plain = plain::applies(part);
    let slots = bytes.chunks(size.saturating_mul(TOGETHER));
    for (place, slots) in places.clone().step_by(TOGETHER).zip(slots) {
        let Some(number) = InodeNumber::new(before.saturating_add(place)) else { continue };
        let sound = match (part.layout.checksum_seed, slots.try_into()) {
            (None, _) => [true; TOGETHER],
            (Some(seed), Ok(slots)) => inode::verify_four(slots, seed, number),
            (Some(_), Err(_)) => [false; TOGETHER],
        };
        for ((place, slot), sound) in (place..places.end).zip(slots.chunks_exact(size)).zip(sound) {
            if let Ok(view) = InodeView::new(slot)
                && let Some(number) = InodeNumber::new(before.saturating_add(place))
                && !all_zero(slot.get(..HEAD_SIZE).unwrap_or_default())
            {
                if !sound && let Some(corrected) = check_sum(part, number, view) {
                    if let Ok(view) = InodeView::new(&corrected) {
                        check_inode(part, number, view);
                    }
                } else if !(plain && plain::take(part, number, view)) {
                    check_inode(part, number, view);
                }
            }
        }
    }
}

/// Tells of a wrong checksum; gives the inode as it was, where the checksum proves that one bit of it is wrong.
fn check_sum(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>) -> Option<Vec<u8>> {
    let seed = part.layout.checksum_seed?;
    let defect = view.verify_checksum(seed, number).err()?;
    let Some(wrong) = proof::inode(view, seed, number) else {
        part.find(Place::Inode(number), Problem::ChecksumWrong { defect });
        return None;
    };
    let byte = u32::try_from(wrong.byte).unwrap_or(u32::MAX);
    part.find(Place::Inode(number), Problem::OneBitWrong { byte, bit: wrong.bit });
    let mut corrected = view.bytes().to_vec();
    wrong.flip(&mut corrected);
    Some(corrected)
}

fn check_inode(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>) {
    let place = Place::Inode(number);
    let first = part.geometry().first_inode();
    if number.get() < first && number != InodeNumber::ROOT {
        return check_reserved(part, number, view);
    }
    let orphan = part.orphans.contains(&number);
    let time = view.deletion_time();
    let looks_like_link = time != 0 && !orphan && chain_remains(part, time);
    if looks_like_link {
        part.find(place.clone(), Problem::OrphanChainRemains { next: time });
    }
    if view.links() == 0 && !orphan {
        if number == InodeNumber::ROOT {
            part.find(place, Problem::RootNotDirectory { mode: view.mode() });
        } else if time == 0 && view.mode() != 0 {
            part.find(place, Problem::DeletionTimeMissing {});
        }
        return;
    }
    if time != 0 && !orphan && !looks_like_link {
        part.find(place.clone(), Problem::DeletionTimeSet { time });
    }
    if number == InodeNumber::ROOT && !view.is_directory() {
        part.find(place, Problem::RootNotDirectory { mode: view.mode() });
        return;
    }
    check_used(part, number, view, orphan);
}

/// Whether a time of deletion must be a link of an orphan list that is no more: it is no time of this filesystem.
fn chain_remains(known: &Known<'_>, time: u32) -> bool {
    let superblock = known.superblock;
    let inodes = superblock.s_inodes_count.get();
    let odd_clock = |seconds: u32| seconds != 0 && seconds < inodes;
    time < inodes
        && superblock.s_wtime.get() >= inodes
        && !odd_clock(superblock.s_mtime.get())
        && !odd_clock(superblock.s_mkfs_time.get())
}

/// Reserved inodes but the root: files that the filesystem keeps for itself.
fn check_reserved(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>) {
    let place = Place::Inode(number);
    let superblock = part.superblock;
    let state = known::USED | known::HIDDEN | FileType::from_mode(view.mode()).0 & known::KIND;
    part.states.set(number, state);
    part.links.set(number, u8::try_from(view.links()).unwrap_or(u8::MAX));
    let features = part.features();
    match number {
        InodeNumber::RESIZE => return,
        InodeNumber::BAD_BLOCKS => {
            let head = view.head();
            if view.mode() != 0 || view.uid() != 0 || view.links() != 0 || head.i_file_acl_lo.get() != 0 {
                part.find(place, Problem::BadBlocksInodeWrong { inode: number });
            }
            check_blocks(part, number, view, &Seen::default());
            return;
        }
        _ => {}
    }
    let own = match number {
        InodeNumber::JOURNAL => {
            features.compat.contains(Compat::HAS_JOURNAL) && superblock.s_journal_inum.get() == number.get()
        }
        InodeNumber::USER_QUOTA => superblock.s_usr_quota_inum.get() == number.get(),
        InodeNumber::GROUP_QUOTA => superblock.s_grp_quota_inum.get() == number.get(),
        _ => true,
    };
    let empty = view.mode() == 0 && view.links() == 0 && view.size() == 0 && all_zero(view.map());
    if !own {
        let mapped = matches!(view.kind(), Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink));
        let used = match number {
            // Numbers that had other meanings once may hold remains that nobody reads.
            InodeNumber::USER_QUOTA | InodeNumber::GROUP_QUOTA => view.links() > 0 || mapped,
            _ => !empty,
        };
        if used {
            part.find(place, Problem::ReservedNotClear { inode: number });
            return;
        }
    }
    if view.mode() == 0 {
        // What no mode goes with says how to read what is not there.
        let odd = InodeFlags::CASEFOLD | InodeFlags::INDEX | InodeFlags::INLINE_DATA | InodeFlags::EA_INODE;
        let odd = view.flags() & odd;
        if !odd.is_empty() {
            part.find(place.clone(), Problem::FlagWrong { flag: "of a file", bits: odd.bits() });
        }
    } else {
        check_flags(part, number, view);
    }
    let regular = view.kind() == Some(FileKind::Regular);
    let (wrong, wanted) = match number {
        InodeNumber::BOOT_LOADER => (view.is_directory(), 0),
        InodeNumber::JOURNAL if own => (!regular, FileKind::Regular.mode_bits() | 0o600),
        InodeNumber::USER_QUOTA | InodeNumber::GROUP_QUOTA if own => (!regular && view.mode() != 0, 0),
        _ => (view.mode() != 0, 0),
    };
    if wrong {
        part.find(place, Problem::ReservedModeWrong { mode: view.mode(), wanted });
        return;
    }
    if matches!(view.kind(), Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)) {
        return check_blocks(part, number, view, &Seen::default());
    }
    // Without a mode it maps nothing, whatever its map says.
    let in_block = attributes::of_block(part, number, view, &mut Seen::default());
    if view.size() != 0 {
        part.find(place, Problem::SizeWrong { stored: view.size(), wanted: 0 });
    }
    let blocks = u64::from(in_block) << part.geometry().cluster_bits();
    check_block_count(part, number, view, blocks);
}

fn check_used(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>, orphan: bool) {
    let flags = view.flags();
    if disguise::is_really_directory(part, number, view) {
        let mode = FileKind::Directory.mode_bits() | view.mode() & 0o7777;
        part.find(Place::Inode(number), Problem::ReallyDirectory { found: view.mode(), mode });
    }
    let mut state = known::USED | FileType::from_mode(view.mode()).0 & known::KIND;
    let superblock = part.superblock;
    let hidden = [superblock.s_prj_quota_inum.get(), superblock.s_orphan_file_inum.get()];
    if hidden.contains(&number.get()) && view.kind() == Some(FileKind::Regular)
        || (orphan && view.links() == 0)
    {
        state |= known::HIDDEN;
    }
    if flags.contains(InodeFlags::EA_INODE) {
        state |= known::VALUE;
    }
    if flags.contains(InodeFlags::ENCRYPTED) {
        state |= known::ENCRYPTED;
    }
    part.states.set(number, state);
    part.links.set(number, u8::try_from(view.links()).unwrap_or(u8::MAX));
    check_fields(part, number, view);
    check_flags(part, number, view);
    let mut seen = Seen::default();
    attributes::in_inode(part, number, view, &mut seen);
    let kind = view.kind();
    count_kind(part, kind, view);
    match kind {
        Some(FileKind::Directory) => {
            part.found.directories.push(number);
            check_blocks(part, number, view, &seen);
        }
        Some(FileKind::Regular) => {
            check_blocks(part, number, view, &seen);
        }
        Some(FileKind::Symlink) => {
            if !special::is_sound_symlink(part, number, view) {
                part.find(Place::Inode(number), Problem::SymlinkWrong { inode: number });
            }
            check_blocks(part, number, view, &seen);
        }
        Some(_) => {
            if !special::is_sound_special(view) {
                part.find(Place::Inode(number), Problem::SpecialFileWrong { inode: number });
            } else if view.size() != 0 {
                part.find(Place::Inode(number), Problem::SpecialSize { stored: view.size() });
            }
            let in_block = attributes::of_block(part, number, view, &mut seen);
            let clusters = u64::from(in_block) << part.geometry().cluster_bits();
            check_block_count(part, number, view, clusters.saturating_add(seen.value_blocks));
        }
        None => part.find(Place::Inode(number), Problem::ModeWrong { inode: number, mode: view.mode() }),
    }
}

fn count_kind(part: &mut Part<'_, '_>, kind: Option<FileKind>, view: InodeView<'_>) {
    let files = &mut part.found.files;
    let target = match kind {
        Some(FileKind::Regular) => &mut files.regular,
        Some(FileKind::Directory) => &mut files.directories,
        Some(FileKind::CharacterDevice) => &mut files.character_devices,
        Some(FileKind::BlockDevice) => &mut files.block_devices,
        Some(FileKind::Fifo) => &mut files.fifos,
        Some(FileKind::Socket) => &mut files.sockets,
        Some(FileKind::Symlink) => {
            if special::is_fast_symlink(view) {
                files.fast_symlinks = files.fast_symlinks.saturating_add(1);
            }
            &mut files.symlinks
        }
        None => return,
    };
    *target = target.saturating_add(1);
}

/// Fields that have to be zero or in a range.
fn check_fields(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>) {
    let head = view.head();
    let features = part.features();
    let linux = part.superblock.s_creator_os.get() == 0;
    let short_acl = linux && !features.incompat.contains(Incompat::BIT64);
    let short_blocks = linux && !features.ro_compat.contains(RoCompat::HUGE_FILE);
    let short_size = view.is_directory() && !features.incompat.contains(Incompat::LARGE_DIR);
    let must_be_zero: [(bool, &str, u64); 4] = [
        (true, "i_faddr", head.i_faddr.get().into()),
        (short_acl, "i_file_acl_high", head.i_file_acl_high.get().into()),
        (short_blocks, "i_blocks_high", head.i_blocks_high.get().into()),
        (short_size, "i_size_high", head.i_size_high.get().into()),
    ];
    for (_, field, value) in must_be_zero.into_iter().filter(|(must, _, value)| *must && *value != 0) {
        part.find(Place::Inode(number), Problem::FieldNotZero { field, value });
    }
    if let Some(stored) = view.extra_size() {
        let room = part.geometry().inode_size().saturating_sub(128);
        if u32::from(stored) > room || !stored.is_multiple_of(4) || (stored != 0 && stored < 4) {
            part.find(Place::Inode(number), Problem::ExtraSizeWrong { stored });
        }
    }
}

/// Flags that need a feature or another kind of file.
fn check_flags(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>) {
    let flags = view.flags();
    let features = part.features();
    let directory = view.is_directory();
    let regular = view.kind() == Some(FileKind::Regular);
    let lacks = |flag, feature| flags.contains(flag) && !features.incompat.contains(feature);
    let mut without: Vec<(&'static str, InodeFlags)> = Vec::new();
    let mut wrong: Vec<(&'static str, InodeFlags)> = Vec::new();
    if lacks(InodeFlags::EXTENTS, Incompat::EXTENTS) {
        without.push(("extents", InodeFlags::EXTENTS));
    }
    if lacks(InodeFlags::INLINE_DATA, Incompat::INLINE_DATA) {
        without.push(("inline_data", InodeFlags::INLINE_DATA));
    }
    if lacks(InodeFlags::EA_INODE, Incompat::EA_INODE) {
        part.find(Place::Inode(number), Problem::ValueFeatureUnset {});
    }
    if flags.contains(InodeFlags::CASEFOLD) {
        if !directory {
            wrong.push(("casefold", InodeFlags::CASEFOLD));
        } else if lacks(InodeFlags::CASEFOLD, Incompat::CASEFOLD) {
            without.push(("casefold", InodeFlags::CASEFOLD));
        }
    }
    if flags.contains(InodeFlags::EA_INODE) && !regular {
        wrong.push(("ea_inode", InodeFlags::EA_INODE));
    }
    if flags.contains(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS) && (directory || regular) {
        wrong.push(("inline_data", InodeFlags::INLINE_DATA));
    }
    if flags.contains(InodeFlags::INDEX) && (!directory || !part.layout.has_directory_index()) {
        wrong.push(("index", InodeFlags::INDEX));
    }
    let symlink = view.kind() == Some(FileKind::Symlink);
    if symlink && special::is_fast_symlink(view) && flags.contains(InodeFlags::EXTENTS) {
        wrong.push(("extents", InodeFlags::EXTENTS));
    }
    let odd = flags & (InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    let mapping = flags & (InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
    if !directory && !regular && !symlink && view.kind().is_some() && !mapping.is_empty() {
        wrong.push(("extents or inline_data", mapping));
    }
    if !directory && !regular && !odd.is_empty() {
        part.find(Place::Inode(number), Problem::FlagsOddOnSpecial { bits: odd.bits() });
    }
    let place = Place::Inode(number);
    for (flag, bits) in without {
        part.find(place.clone(), Problem::FlagWithoutFeature { flag, bits: bits.bits() });
    }
    for (flag, bits) in wrong {
        part.find(place.clone(), Problem::FlagWrong { flag, bits: bits.bits() });
    }
    if flags.contains(InodeFlags::IMAGIC) && !features.compat.contains(Compat::IMAGIC_INODES) {
        part.find(place, Problem::MagicFlag {});
    }
}

/// What the walk over an inode's map collects.
struct Collector<'c, 'k, 'a> {
    part: &'c mut Part<'k, 'a>,
    number: InodeNumber,
    directory: bool,
    /// The last logical block that the file may have.
    most: u64,
    /// The list of bad blocks may name anything.
    over_metadata: bool,
    /// Of the list of bad blocks: the blocks that it lies in.
    nodes: Vec<BlockNumber>,
    clusters: u64,
    last: Option<u64>,
    last_written: Option<u64>,
    previous: Option<Piece>,
    fragmented: bool,
    problems: usize,
}

impl Collector<'_, '_, '_> {
    fn find(&mut self, place: Place, problem: MapProblem) {
        self.problems = self.problems.saturating_add(1);
        if self.problems <= MOST_MAP_PROBLEMS {
            self.part.find(place, problem);
        }
    }

    /// Claims the clusters of a piece, but not the one that it shares with the piece before.
    fn claim(&mut self, piece: Piece) {
        let bits = self.part.geometry().cluster_bits();
        let mask = (1u64 << bits).saturating_sub(1);
        if bits > 0 && (piece.physical & mask != piece.logical & mask || self.leaves_its_cluster(piece)) {
            let problem =
                MapProblem::ClusterMisaligned { logical: piece.logical, block: BlockNumber(piece.physical) };
            self.find(Place::Inode(self.number), problem);
        }
        let mut first = piece.physical >> bits;
        let last = piece.physical.saturating_add(piece.length.saturating_sub(1)) >> bits;
        let same = self.previous.is_some_and(|before| {
            bits > 0
                && before.physical.saturating_add(before.length.saturating_sub(1)) >> bits == first
                && before.logical.saturating_add(before.length.saturating_sub(1)) >> bits
                    == piece.logical >> bits
        });
        if same {
            first = first.saturating_add(1);
        }
        if first <= last {
            self.part.claim(first, last);
        }
        self.clusters = self.clusters.saturating_add(last.saturating_add(1).saturating_sub(first));
        if self.previous.is_some_and(|before| before.physical.saturating_add(before.length) != piece.physical)
        {
            self.fragmented = true;
        }
        self.previous = Some(piece);
    }
}

impl Collector<'_, '_, '_> {
    /// The list of bad blocks cannot name what the filesystem lies in, nor itself: what is in use there can be read.
    fn check_listed(&mut self, run: BlockRun) {
        let metadata = self.part.in_metadata(run);
        let node = run.iter().find(|block| self.nodes.contains(block));
        if let Some(block) = metadata.or(node) {
            self.find(Place::Inode(self.number), MapProblem::ListedMetadata { block });
        }
    }

    /// Whether a piece begins in the file's cluster that the piece before ended in, but in another cluster on disk.
    fn leaves_its_cluster(&self, piece: Piece) -> bool {
        let bits = self.part.geometry().cluster_bits();
        self.previous.is_some_and(|before| {
            let last = before.length.saturating_sub(1);
            before.logical.saturating_add(last) >> bits == piece.logical >> bits
                && before.physical.saturating_add(last) >> bits != piece.physical >> bits
        })
    }
}

/// The last logical block that a file of its kind may have.
pub fn last_logical(layout: &Layout, view: InodeView<'_>) -> u64 {
    let large = layout.features().incompat.contains(Incompat::LARGE_DIR);
    match view.kind() {
        Some(FileKind::Directory) if !large => {
            ((1u64 << 31) >> layout.geometry.block_bits()).saturating_sub(1)
        }
        Some(FileKind::Symlink) => 0,
        _ => u64::MAX,
    }
}

impl Visitor for Collector<'_, '_, '_> {
    fn data(&mut self, piece: Piece) {
        let place = Place::Inode(self.number);
        let run = BlockRun { start: BlockNumber(piece.physical), length: piece.length };
        let end = piece.logical.saturating_add(piece.length.saturating_sub(1));
        if !self.part.geometry().contains_run(run) {
            let problem = MapProblem::BlockInvalid { logical: piece.logical, block: run.start };
            return self.find(place, problem);
        }
        if end > self.most {
            return self.find(place, MapProblem::TooBig { logical: piece.logical, block: run.start });
        }
        if self.over_metadata {
            self.check_listed(run);
        }
        self.last = self.last.max(Some(end));
        if !piece.unwritten {
            self.last_written = self.last_written.max(Some(end));
        } else if self.directory {
            self.find(place.clone(), MapProblem::UnwrittenInDirectory { logical: piece.logical });
        }
        if !self.over_metadata
            && let Some(block) = self.part.in_metadata(run)
        {
            let distance = block.0.saturating_sub(piece.physical);
            let problem = MapProblem::OverMetadata { logical: piece.logical.saturating_add(distance), block };
            self.find(place, problem);
            return;
        }
        self.claim(piece);
    }

    fn plain_leaf(&mut self, leaves: &[ExtentLeaf], range: &Range<u64>) -> bool {
        let special = self.directory || self.over_metadata || self.most != u64::MAX;
        if special || self.part.geometry().cluster_bits() > 0 {
            return false;
        }
        let Some(last) = leaves.last().map(ExtentLeaf::extent) else { return false };
        let Some(Measure { blocks, end }) = plain::measure(self.part, range.clone(), leaves) else {
            return false;
        };
        let before = self.previous.map(|before| before.physical.saturating_add(before.length));
        let fragmented = plain::claim(self.part, leaves, before);
        self.fragmented |= fragmented;
        self.clusters = self.clusters.saturating_add(blocks);
        self.last = self.last.max(end.checked_sub(1));
        self.last_written = self.last_written.max(end.checked_sub(1));
        self.previous = Some(Piece {
            logical: last.logical.0.into(),
            physical: last.physical.0,
            length: last.length.into(),
            unwritten: false,
        });
        true
    }

    fn node(&mut self, block: BlockNumber) -> bool {
        if self.part.in_metadata(BlockRun::single(block)).is_some() && !self.over_metadata {
            self.find(Place::Inode(self.number), MapProblem::OverMetadata { logical: 0, block });
            return false;
        }
        self.clusters = self.clusters.saturating_add(1);
        if self.over_metadata {
            self.nodes.push(block);
        }
        let cluster = self.part.claims.cluster(block.0);
        // A node that somebody claimed before is not entered again: that ends circles and bounds the walk.
        !self.part.claim_single(cluster)
    }

    fn problem(&mut self, place: Place, problem: MapProblem) {
        self.find(place, problem);
    }
}

/// Walks the map, claims what it maps, and compares size and count of blocks with it.
fn check_blocks(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>, seen: &Seen) {
    let mut seen = *seen;
    let in_block = attributes::of_block(part, number, view, &mut seen);
    let flags = view.flags();
    let kind = view.kind();
    if flags.contains(InodeFlags::ENCRYPTED) && part.features().incompat.contains(Incompat::ENCRYPT) {
        match seen.context {
            None => {
                let problem = Problem::EncryptionContextWrong { inode: number, missing: true };
                part.find(Place::Inode(number), problem);
            }
            Some(false) => {
                let problem = Problem::EncryptionContextWrong { inode: number, missing: false };
                part.find(Place::Inode(number), problem);
            }
            Some(true) => {}
        }
    }
    let inline = flags.contains(InodeFlags::INLINE_DATA);
    let short = kind == Some(FileKind::Symlink) && special::is_fast_symlink(view);
    let mapped = !inline && !short;
    let (source, layout) = (part.source, part.layout);
    let mut collector = Collector {
        part,
        number,
        directory: kind == Some(FileKind::Directory),
        most: last_logical(layout, view),
        over_metadata: number == InodeNumber::BAD_BLOCKS,
        nodes: Vec::new(),
        clusters: u64::from(in_block),
        last: None,
        last_written: None,
        previous: None,
        fragmented: false,
        problems: 0,
    };
    if mapped {
        if special::looks_like_extents(view) && layout.features().incompat.contains(Incompat::EXTENTS) {
            collector.part.find(Place::Inode(number), Problem::ExtentsFlagMissing {});
            return;
        }
        if !flags.contains(InodeFlags::EXTENTS)
            && !all_zero(view.map())
            && layout.geometry.cluster_bits() > 0
            && !matches!(number, InodeNumber::BAD_BLOCKS)
        {
            collector.find(Place::Inode(number), MapProblem::BlockMapWithClusters {});
        }
        maps::walk(View { source, layout }, number, view, &mut collector);
    }
    let Collector { part, clusters, last, last_written, fragmented, problems, .. } = collector;
    if fragmented && number.get() >= part.geometry().first_inode() {
        part.found.files.fragmented = part.found.files.fragmented.saturating_add(1);
        if kind == Some(FileKind::Directory) {
            part.found.files.fragmented_directories =
                part.found.files.fragmented_directories.saturating_add(1);
        }
    }
    if number == InodeNumber::BAD_BLOCKS {
        return;
    }
    if kind == Some(FileKind::Directory) && clusters >= LARGE_DIRECTORY {
        part.found.large_directories.push(number);
    }
    if inline {
        check_inline(part, number, view, &seen);
    } else if problems == 0 && mapped {
        let only_nodes = last.is_none() && clusters > u64::from(in_block);
        check_size(part, number, view, (last, last_written, only_nodes));
    }
    if problems == 0 {
        let blocks = (clusters << part.geometry().cluster_bits()).saturating_add(seen.value_blocks);
        check_block_count(part, number, view, blocks);
    }
}

/// Compares the size with the last block.
fn check_size(
    part: &mut Part<'_, '_>,
    number: InodeNumber,
    view: InodeView<'_>,
    (last, last_written, only_nodes): (Option<u64>, Option<u64>, bool),
) {
    let bits = part.geometry().block_bits();
    let size = view.size();
    let after = |last: Option<u64>| last.map_or(0, |last| last.saturating_add(1));
    if view.kind() == Some(FileKind::Directory) {
        let wanted = after(last) << bits;
        if last.is_none() {
            // With a tree but no leaf, the directory has a hole for its first block.
            let problem = match (only_nodes, size) {
                (false, _) => Problem::DirectoryEmpty { inode: number },
                (true, 0) => return,
                (true, _) => Problem::SizeWrong { stored: size, wanted: 0 },
            };
            return part.find(Place::Inode(number), problem);
        }
        let slack = u64::from(part.superblock.s_prealloc_dir_blocks) << bits;
        let aligned = size >> bits << bits == size;
        if !aligned || size > wanted || wanted.saturating_sub(size) > slack {
            part.find(Place::Inode(number), Problem::SizeWrong { stored: size, wanted });
        }
        return;
    }
    if view.flags().contains(InodeFlags::VERITY) || part.orphans.contains(&number) {
        return;
    }
    let extents = view.flags().contains(InodeFlags::EXTENTS);
    let per_block = u64::from(part.geometry().pointers_per_block());
    let squared = per_block.saturating_mul(per_block);
    let mapped = per_block
        .saturating_mul(squared)
        .saturating_add(squared)
        .saturating_add(per_block)
        .saturating_add(12);
    let most = if extents { u64::from(u32::MAX).saturating_add(1) } else { mapped };
    let least = last_written.unwrap_or(0) << bits;
    if size < least || size >= most << bits {
        let wanted = after(last_written) << bits;
        part.find(Place::Inode(number), Problem::SizeWrong { stored: size, wanted });
    } else if view.kind() == Some(FileKind::Regular) && size > 0x7fff_ffff {
        part.found.has_large_file = true;
    }
}

/// Compares `i_blocks` with what was counted, in 512-byte units.
fn check_block_count(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>, blocks: u64) {
    let huge = part.features().ro_compat.contains(RoCompat::HUGE_FILE);
    let shift = part.geometry().block_bits().saturating_sub(9);
    let raw = if huge { view.blocks_raw() } else { view.blocks_raw() & u64::from(u32::MAX) };
    let in_blocks = huge && view.flags().contains(InodeFlags::HUGE_FILE);
    let stored = if in_blocks { raw << shift } else { raw };
    let counted = blocks << shift;
    if stored != counted {
        let (stored, counted) = if in_blocks { (raw, blocks) } else { (stored, counted) };
        part.find(Place::Inode(number), Problem::BlocksWrong { stored, counted });
    }
}

/// Inline data lies in the map and in an attribute, which has to be there, and the size is that of both.
fn check_inline(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>, seen: &Seen) {
    let place = Place::Inode(number);
    let size = view.size();
    let Some(rest) = seen.inline else {
        return part.find(place, Problem::InlineDataWrong { why: "its attribute is missing" });
    };
    let held = wide(MAP_SIZE.saturating_add(rest));
    if view.is_directory() {
        if size != held {
            part.find(place, Problem::SizeWrong { stored: size, wanted: held });
        }
    } else if size > held || (rest > 0 && size != held) {
        part.find(place, Problem::SizeWrong { stored: size, wanted: held });
    }
}
