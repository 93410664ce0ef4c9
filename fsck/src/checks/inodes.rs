//! Pass 1: every inode of the used part of each table, and the blocks it maps.

use ext4kit_format::bytes::all_zero;
use ext4kit_format::disk::dirent::FileType;
use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::inode::{FileKind, InodeFlags, InodeView, MAP_SIZE};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::{index, wide};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, InodeNumber, Place};

use super::attributes::{self, Seen};
use super::context::{Context, Directory, known};
use super::disguise;
use super::maps::{self, Piece, View, Visitor};
use super::special;
use crate::finding::{InodeProblem as Problem, MapProblem, SuperblockProblem};

/// Findings about one inode's map beyond this many add nothing.
const MOST_MAP_PROBLEMS: usize = 32;

/// Checks all inodes.
pub fn check(context: &mut Context<'_>) {
    let geometry = context.geometry();
    let groups = u64::from(geometry.group_count());
    for group in geometry.groups() {
        check_group(context, group);
        context.progress(u64::from(group.0).saturating_add(1), groups);
    }
    for number in 1..geometry.first_inode() {
        if let Some(inode) = InodeNumber::new(number) {
            let state = context.state(inode) | known::USED | if number == 2 { 0 } else { known::HIDDEN };
            if number != 2 || context.state(inode) != 0 {
                context.set_state(inode, state);
            }
        }
    }
    attributes::check_blocks(context);
    context.values = context.value_references.iter().map(|(value, _)| *value).collect();
    context.values.sort_unstable();
    context.values.dedup();
    if context.has_large_file && !context.features().ro_compat.contains(RoCompat::LARGE_FILE) {
        context.find(Place::Superblock, SuperblockProblem::LargeFileUnset {});
    }
}

fn check_group(context: &mut Context<'_>, group: GroupNumber) {
    let geometry = context.geometry();
    let Some(descriptor) = context.group(group) else { return };
    let used = context.used_part(group);
    let size = index(geometry.inode_size());
    let per_block = geometry.inodes_per_block().max(1);
    let table = BlockRun { start: descriptor.inode_table, length: geometry.inode_table_blocks().into() };
    if used == 0 || !geometry.contains_run(table) {
        return;
    }
    let source = context.source;
    for (at, block) in (0u32..).zip(table.iter().take(index(used.div_ceil(per_block)))) {
        let bytes = match source.block(block) {
            Ok(bytes) => bytes,
            Err(error) => {
                context.find(Place::InodeTable(group), Problem::Unreadable { why: error.to_string() });
                continue;
            }
        };
        let first = at.saturating_mul(per_block);
        for (within, slot) in (0u32..).zip(bytes.chunks_exact(size)) {
            let place = first.saturating_add(within);
            if place < used
                && let Some(number) = geometry.inode_at(group, place)
                && let Ok(view) = InodeView::new(slot)
                && !all_zero(slot.get(..128).unwrap_or_default())
            {
                check_inode(context, number, view);
            }
        }
    }
}

fn check_inode(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>) {
    let place = Place::Inode(number);
    if let Some(seed) = context.layout.checksum_seed
        && let Err(defect) = view.verify_checksum(seed, number)
    {
        context.find(place.clone(), Problem::ChecksumWrong { defect });
    }
    let first = context.geometry().first_inode();
    if number.get() < first && number != InodeNumber::ROOT {
        return check_reserved(context, number, view);
    }
    let orphan = context.orphans.contains(&number);
    let time = view.deletion_time();
    let looks_like_link = time != 0 && !orphan && chain_remains(context, time);
    if looks_like_link {
        context.find(place.clone(), Problem::OrphanChainRemains { next: time });
    }
    if view.links() == 0 && !orphan {
        if number == InodeNumber::ROOT {
            context.find(place, Problem::RootNotDirectory { mode: view.mode() });
        } else if time == 0 && view.mode() != 0 {
            context.find(place, Problem::DeletionTimeMissing {});
        }
        return;
    }
    if time != 0 && !orphan && !looks_like_link {
        context.find(place.clone(), Problem::DeletionTimeSet { time });
    }
    if number == InodeNumber::ROOT && !view.is_directory() {
        context.find(place, Problem::RootNotDirectory { mode: view.mode() });
        return;
    }
    check_used(context, number, view, orphan);
}

/// Whether a time of deletion must be a link of an orphan list that is no more: it is no time of this filesystem.
fn chain_remains(context: &Context<'_>, time: u32) -> bool {
    let superblock = context.superblock;
    let inodes = superblock.s_inodes_count.get();
    let odd_clock = |seconds: u32| seconds != 0 && seconds < inodes;
    time < inodes
        && superblock.s_wtime.get() >= inodes
        && !odd_clock(superblock.s_mtime.get())
        && !odd_clock(superblock.s_mkfs_time.get())
}

/// Reserved inodes but the root: files that the filesystem keeps for itself.
fn check_reserved(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>) {
    let place = Place::Inode(number);
    let superblock = context.superblock;
    let state = known::USED | known::HIDDEN | FileType::from_mode(view.mode()).0 & known::KIND;
    context.set_state(number, state);
    let features = context.features();
    match number {
        InodeNumber::RESIZE => return,
        InodeNumber::BAD_BLOCKS => {
            let head = view.head();
            if view.mode() != 0 || view.uid() != 0 || view.links() != 0 || head.i_file_acl_lo.get() != 0 {
                context.find(place, Problem::BadBlocksInodeWrong { inode: number });
            }
            check_blocks(context, number, view, &Seen::default());
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
        let quota = matches!(number, InodeNumber::USER_QUOTA | InodeNumber::GROUP_QUOTA);
        if !empty && (!quota || features.ro_compat.contains(RoCompat::QUOTA)) {
            context.find(place, Problem::ReservedNotClear { inode: number });
            return;
        }
    }
    if view.flags().contains(InodeFlags::CASEFOLD) && !view.is_directory() {
        let bits = InodeFlags::CASEFOLD.bits();
        context.find(place.clone(), Problem::FlagWrong { flag: "casefold", bits });
    }
    let regular = view.kind() == Some(FileKind::Regular);
    let needs_file = own && matches!(number, InodeNumber::JOURNAL);
    let wrong = if number == InodeNumber::BOOT_LOADER {
        view.is_directory()
    } else {
        !regular && (view.mode() != 0 || needs_file)
    };
    if wrong {
        context.find(place, Problem::ReservedModeWrong { mode: view.mode() });
        return;
    }
    if matches!(view.kind(), Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)) {
        return check_blocks(context, number, view, &Seen::default());
    }
    // Without a mode it maps nothing, whatever its map says.
    let in_block = attributes::of_block(context, number, view, &mut Seen::default());
    if view.size() != 0 {
        context.find(place, Problem::SizeWrong { stored: view.size(), wanted: 0 });
    }
    check_block_count(context, number, view, u64::from(in_block) << context.geometry().cluster_bits());
}

fn check_used(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>, orphan: bool) {
    let flags = view.flags();
    if disguise::is_really_directory(context, number, view) {
        let mode = FileKind::Directory.mode_bits() | view.mode() & 0o7777;
        context.find(Place::Inode(number), Problem::ReallyDirectory { found: view.mode(), mode });
    }
    let mut state = known::USED | FileType::from_mode(view.mode()).0 & known::KIND;
    let superblock = context.superblock;
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
    context.set_state(number, state);
    check_fields(context, number, view);
    check_flags(context, number, view);
    let mut seen = Seen::default();
    attributes::in_inode(context, number, view, &mut seen);
    let kind = view.kind();
    count_kind(context, kind, view);
    match kind {
        Some(FileKind::Directory) => {
            context.directories.push(Directory { inode: number, dotdot: 0, parent: 0 });
            check_blocks(context, number, view, &seen);
        }
        Some(FileKind::Regular) => {
            check_blocks(context, number, view, &seen);
        }
        Some(FileKind::Symlink) => {
            if !special::is_sound_symlink(context, number, view) {
                context.find(Place::Inode(number), Problem::SymlinkWrong { inode: number });
            }
            check_blocks(context, number, view, &seen);
        }
        Some(_) => {
            if !special::is_sound_special(view) {
                context.find(Place::Inode(number), Problem::SpecialFileWrong { inode: number });
            } else if view.size() != 0 {
                context.find(Place::Inode(number), Problem::SpecialSize { stored: view.size() });
            }
            let in_block = attributes::of_block(context, number, view, &mut seen);
            let clusters = u64::from(in_block) << context.geometry().cluster_bits();
            check_block_count(context, number, view, clusters.saturating_add(seen.value_blocks));
        }
        None => context.find(Place::Inode(number), Problem::ModeWrong { inode: number, mode: view.mode() }),
    }
}

fn count_kind(context: &mut Context<'_>, kind: Option<FileKind>, view: InodeView<'_>) {
    let files = &mut context.summary.files;
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
fn check_fields(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>) {
    let head = view.head();
    let features = context.features();
    let linux = context.superblock.s_creator_os.get() == 0;
    let mut odd: Vec<(&'static str, u64)> = vec![("i_faddr", head.i_faddr.get().into())];
    if linux && !features.incompat.contains(Incompat::BIT64) {
        odd.push(("i_file_acl_high", head.i_file_acl_high.get().into()));
    }
    if linux && !features.ro_compat.contains(RoCompat::HUGE_FILE) {
        odd.push(("i_blocks_high", head.i_blocks_high.get().into()));
    }
    if view.is_directory() && !features.incompat.contains(Incompat::LARGE_DIR) {
        odd.push(("i_size_high", head.i_size_high.get().into()));
    }
    for (field, value) in odd.into_iter().filter(|(_, value)| *value != 0) {
        context.find(Place::Inode(number), Problem::FieldNotZero { field, value });
    }
    if let Some(stored) = view.extra_size() {
        let room = context.geometry().inode_size().saturating_sub(128);
        if u32::from(stored) > room || !stored.is_multiple_of(4) || (stored != 0 && stored < 4) {
            context.find(Place::Inode(number), Problem::ExtraSizeWrong { stored });
        }
    }
}

/// Flags that need a feature or another kind of file.
fn check_flags(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>) {
    let flags = view.flags();
    let features = context.features();
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
        context.find(Place::Inode(number), Problem::ValueFeatureUnset {});
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
    if flags.contains(InodeFlags::INDEX) && (!directory || !context.layout.has_directory_index()) {
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
        context.find(Place::Inode(number), Problem::FlagsOddOnSpecial { bits: odd.bits() });
    }
    let place = Place::Inode(number);
    for (flag, bits) in without {
        context.find(place.clone(), Problem::FlagWithoutFeature { flag, bits: bits.bits() });
    }
    for (flag, bits) in wrong {
        context.find(place.clone(), Problem::FlagWrong { flag, bits: bits.bits() });
    }
    if flags.contains(InodeFlags::IMAGIC) && !features.compat.contains(Compat::IMAGIC_INODES) {
        context.find(place, Problem::MagicFlag {});
    }
}

/// What the walk over an inode's map collects.
struct Collector<'c, 'a> {
    context: &'c mut Context<'a>,
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

impl Collector<'_, '_> {
    fn find(&mut self, place: Place, problem: MapProblem) {
        self.problems = self.problems.saturating_add(1);
        if self.problems <= MOST_MAP_PROBLEMS {
            self.context.find(place, problem);
        }
    }

    /// Claims the clusters of a piece, but not the one that it shares with the piece before.
    fn claim(&mut self, piece: Piece) {
        let bits = self.context.geometry().cluster_bits();
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
            self.context.claims.claim_range(first, last);
        }
        self.clusters = self.clusters.saturating_add(last.saturating_add(1).saturating_sub(first));
        if self.previous.is_some_and(|before| before.physical.saturating_add(before.length) != piece.physical)
        {
            self.fragmented = true;
        }
        self.previous = Some(piece);
    }
}

impl Collector<'_, '_> {
    /// The list of bad blocks cannot name what the filesystem lies in, nor itself: what is in use there can be read.
    fn check_listed(&mut self, run: BlockRun) {
        let metadata = self.context.claims.in_metadata(run);
        let node = run.iter().find(|block| self.nodes.contains(block));
        if let Some(block) = metadata.or(node) {
            self.find(Place::Inode(self.number), MapProblem::ListedMetadata { block });
        }
    }

    /// Whether a piece begins in the file's cluster that the piece before ended in, but in another cluster on disk.
    fn leaves_its_cluster(&self, piece: Piece) -> bool {
        let bits = self.context.geometry().cluster_bits();
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

impl Visitor for Collector<'_, '_> {
    fn data(&mut self, piece: Piece) {
        let place = Place::Inode(self.number);
        let run = BlockRun { start: BlockNumber(piece.physical), length: piece.length };
        let end = piece.logical.saturating_add(piece.length.saturating_sub(1));
        if !self.context.geometry().contains_run(run) {
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
            && let Some(block) = self.context.claims.in_metadata(run)
        {
            let distance = block.0.saturating_sub(piece.physical);
            let problem = MapProblem::OverMetadata { logical: piece.logical.saturating_add(distance), block };
            self.find(place, problem);
            return;
        }
        self.claim(piece);
    }

    fn node(&mut self, block: BlockNumber) -> bool {
        if self.context.claims.in_metadata(BlockRun::single(block)).is_some() && !self.over_metadata {
            self.find(Place::Inode(self.number), MapProblem::OverMetadata { logical: 0, block });
            return false;
        }
        self.clusters = self.clusters.saturating_add(1);
        if self.over_metadata {
            self.nodes.push(block);
        }
        let cluster = self.context.claims.cluster(block.0);
        // A node that somebody claimed before is not entered again: that ends circles and bounds the walk.
        !self.context.claims.claim(cluster)
    }

    fn problem(&mut self, place: Place, problem: MapProblem) {
        self.find(place, problem);
    }
}

/// Walks the map, claims what it maps, and compares size and count of blocks with it.
fn check_blocks(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>, seen: &Seen) {
    let mut seen = *seen;
    let in_block = attributes::of_block(context, number, view, &mut seen);
    let flags = view.flags();
    let kind = view.kind();
    if flags.contains(InodeFlags::ENCRYPTED) && context.features().incompat.contains(Incompat::ENCRYPT) {
        match seen.context {
            None => {
                let problem = Problem::EncryptionContextWrong { inode: number, missing: true };
                context.find(Place::Inode(number), problem);
            }
            Some(false) => {
                let problem = Problem::EncryptionContextWrong { inode: number, missing: false };
                context.find(Place::Inode(number), problem);
            }
            Some(true) => {}
        }
    }
    let inline = flags.contains(InodeFlags::INLINE_DATA);
    let short = kind == Some(FileKind::Symlink) && special::is_fast_symlink(view);
    let mapped = !inline && !short;
    let (source, layout) = (context.source, context.layout);
    let mut collector = Collector {
        context,
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
            collector.context.find(Place::Inode(number), Problem::ExtentsFlagMissing {});
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
    let Collector { context, clusters, last, last_written, fragmented, problems, .. } = collector;
    if fragmented && number.get() >= context.geometry().first_inode() {
        context.summary.files.fragmented = context.summary.files.fragmented.saturating_add(1);
        if kind == Some(FileKind::Directory) {
            context.summary.files.fragmented_directories =
                context.summary.files.fragmented_directories.saturating_add(1);
        }
    }
    if number == InodeNumber::BAD_BLOCKS {
        return;
    }
    if inline {
        check_inline(context, number, view, &seen);
    } else if problems == 0 && mapped {
        let only_nodes = last.is_none() && clusters > u64::from(in_block);
        check_size(context, number, view, (last, last_written, only_nodes));
    }
    if problems == 0 {
        let blocks = (clusters << context.geometry().cluster_bits()).saturating_add(seen.value_blocks);
        check_block_count(context, number, view, blocks);
    }
}

/// Compares the size with the last block.
fn check_size(
    context: &mut Context<'_>,
    number: InodeNumber,
    view: InodeView<'_>,
    (last, last_written, only_nodes): (Option<u64>, Option<u64>, bool),
) {
    let bits = context.geometry().block_bits();
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
            return context.find(Place::Inode(number), problem);
        }
        let slack = u64::from(context.superblock.s_prealloc_dir_blocks) << bits;
        let aligned = size >> bits << bits == size;
        if !aligned || size > wanted || wanted.saturating_sub(size) > slack {
            context.find(Place::Inode(number), Problem::SizeWrong { stored: size, wanted });
        }
        return;
    }
    if view.flags().contains(InodeFlags::VERITY) || context.orphans.contains(&number) {
        return;
    }
    let extents = view.flags().contains(InodeFlags::EXTENTS);
    let per_block = u64::from(context.geometry().pointers_per_block());
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
        context.find(Place::Inode(number), Problem::SizeWrong { stored: size, wanted });
    } else if view.kind() == Some(FileKind::Regular) && size > 0x7fff_ffff {
        context.has_large_file = true;
    }
}

/// Compares `i_blocks` with what was counted, in 512-byte units.
fn check_block_count(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>, blocks: u64) {
    let huge = context.features().ro_compat.contains(RoCompat::HUGE_FILE);
    let shift = context.geometry().block_bits().saturating_sub(9);
    let raw = if huge { view.blocks_raw() } else { view.blocks_raw() & u64::from(u32::MAX) };
    let in_blocks = huge && view.flags().contains(InodeFlags::HUGE_FILE);
    let stored = if in_blocks { raw << shift } else { raw };
    let counted = blocks << shift;
    if stored != counted {
        let (stored, counted) = if in_blocks { (raw, blocks) } else { (stored, counted) };
        context.find(Place::Inode(number), Problem::BlocksWrong { stored, counted });
    }
}

/// Inline data lies in the map and in an attribute, which has to be there, and the size is that of both.
fn check_inline(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>, seen: &Seen) {
    let place = Place::Inode(number);
    let size = view.size();
    let Some(rest) = seen.inline else {
        return context.find(place, Problem::InlineDataWrong { why: "its attribute is missing" });
    };
    let held = wide(MAP_SIZE.saturating_add(rest));
    if view.is_directory() {
        if size != held {
            context.find(place, Problem::SizeWrong { stored: size, wanted: held });
        }
    } else if size > held || (rest > 0 && size != held) {
        context.find(place, Problem::SizeWrong { stored: size, wanted: held });
    }
}
