//! Pass 0: the journal, and the orphans on their list and in their file.

use std::sync::Arc;

use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::inode::{FileKind, InodeFlags, InodeView};
use ext4kit_format::disk::jbd2::superblock::JournalSuperblock;
use ext4kit_format::disk::orphan;
use ext4kit_format::disk::superblock::JOURNAL_BACKUP_BLOCKS;
use ext4kit_format::error::Error;
use ext4kit_format::journal::{Journal, LogBlocks};
use ext4kit_format::num::{high32, low32};
use ext4kit_format::txn::Owner;
use ext4kit_format::{BlockNumber, InodeNumber, Place};

use super::context::Context;
use super::maps::{self, Piece, View, Visitor};
use crate::finding::{JournalProblem as Problem, MapProblem};
use crate::opening::journal_runs;

/// Checks journal and orphans.
pub fn check(context: &mut Context<'_>) {
    for problem in journal(context) {
        context.find(Place::JournalBlock(0), problem);
    }
    orphan_list(context);
    orphan_file(context);
}

fn journal(context: &Context<'_>) -> Vec<Problem> {
    let superblock = context.superblock;
    let features = superblock.features();
    let recover = features.incompat.contains(Incompat::RECOVER);
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        let named = superblock.s_journal_inum.get() != 0 || superblock.s_journal_dev.get() != 0;
        let mut found = Vec::new();
        if named {
            found.push(Problem::FeatureUnset {});
        }
        if recover {
            found.push(Problem::RecoveryWithoutJournal {});
        }
        return found;
    }
    let Some(number) = superblock.journal_inode() else {
        // One that was given was looked at before the replay.
        let why = "the journal is on another device, which was not given (-j)".to_owned();
        return if context.has_external_journal || recover {
            Vec::new()
        } else {
            vec![Problem::ExternalUnavailable { why }]
        };
    };
    let invalid = |why: &str| vec![Problem::InodeInvalid { why: why.to_owned() }];
    let Some((bytes, range)) = context.inode_block(number) else { return invalid("it does not exist") };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else {
        return invalid("it does not exist");
    };
    if view.kind() != Some(FileKind::Regular) || view.links() == 0 {
        return invalid("it is not a regular file");
    }
    if view.flags().contains(InodeFlags::ENCRYPTED) {
        return invalid("it is marked as encrypted");
    }
    let runs = match journal_runs(&context.source.overlay, number) {
        Ok(runs) => runs,
        Err(error) => return invalid(&error.to_string()),
    };
    let blocks =
        match LogBlocks::internal(Arc::clone(context.source.store()), context.geometry().block_size(), &runs)
        {
            Ok(blocks) => blocks,
            Err(error) => return invalid(&error.to_string()),
        };
    match Journal::open(blocks) {
        Ok(journal) => {
            if let Some(why) = foreign_fields(journal.superblock()) {
                return vec![Problem::SuperblockDamaged { why: why.to_owned() }];
            }
            let waits = journal.superblock().s_start.get() != 0;
            let mut found =
                if backup_is_current(context, view) { Vec::new() } else { vec![Problem::BackupStale {}] };
            if waits && !recover && !context.ledger.summary.replayed {
                found.push(Problem::DataWithoutRecovery {});
            }
            found
        }
        Err(Error::Unsupported(why)) => vec![Problem::Unsupported { why }],
        Err(error) => vec![Problem::SuperblockDamaged { why: error.to_string() }],
    }
}

/// Whether the superblock's copy of the journal's map and size is that of the inode.
fn backup_is_current(context: &Context<'_>, view: InodeView<'_>) -> bool {
    let superblock = context.superblock;
    let (map, _) = view.map().as_chunks::<4>();
    let words = map.iter().map(|word| u32::from_le_bytes(*word));
    let size = [high32(view.size()), low32(view.size())];
    superblock.s_jnl_backup_type == JOURNAL_BACKUP_BLOCKS
        && superblock.s_jnl_blocks.iter().map(|word| word.get()).eq(words.chain(size))
}

/// What an internal journal's superblock says that only another kind of journal may.
fn foreign_fields(superblock: &JournalSuperblock) -> Option<&'static str> {
    let users = superblock.s_nr_users.get();
    if superblock.has_features() {
        return (users > 1).then_some("it has more than one user");
    }
    let fields = superblock.s_feature_compat.get() | superblock.s_feature_incompat.get() | users;
    (fields != 0).then_some("it has fields that its version does not know")
}

/// After a replay, orphans are what the next mount expects; without one, somebody should have dealt with them.
fn waiting(context: &Context<'_>, count: u64) -> Problem {
    if context.ledger.summary.replayed {
        Problem::OrphansWaiting { count }
    } else {
        Problem::OrphansLeft { count }
    }
}

/// Follows the list of orphans, whose links lie in the inodes' deletion times.
fn orphan_list(context: &mut Context<'_>) {
    let mut next = context.superblock.s_last_orphan.get();
    let mut problem = None;
    while let Some(number) = InodeNumber::new(next) {
        let geometry = context.geometry();
        if number.get() < geometry.first_inode() || geometry.inode_place(number).is_none() {
            problem = Some(Problem::OrphanListDamaged { inode: next, why: "cannot be an orphan" });
            break;
        }
        let Some((bytes, range)) = context.inode_block(number) else { break };
        let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { break };
        if view.mode() == 0 {
            problem = Some(Problem::OrphanListDamaged { inode: next, why: "is free" });
            break;
        }
        // Each inode is put in once, so the walk ends.
        if !context.orphans.insert(number) {
            problem = Some(Problem::OrphanListDamaged { inode: next, why: "is there twice" });
            break;
        }
        next = view.deletion_time();
    }
    if let Some(problem) = problem {
        context.find(Place::Superblock, problem);
    }
    let count = ext4kit_format::num::wide(context.orphans.len());
    if count > 0 {
        let problem = waiting(context, count);
        context.find(Place::Superblock, problem);
    }
}

/// The blocks of the orphan file, by logical block.
#[derive(Default)]
struct Pieces(Vec<Piece>, u32);

impl Visitor for Pieces {
    fn data(&mut self, piece: Piece) {
        self.0.push(piece);
    }

    fn node(&mut self, _block: BlockNumber) -> bool {
        // A file of at most 512 blocks has few nodes; more than these are not entered.
        self.1 = self.1.saturating_add(1);
        self.1 < 1024
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {}
}

fn orphan_file(context: &mut Context<'_>) {
    let features = context.features();
    let present = features.ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let place = Place::Superblock;
    if !features.compat.contains(Compat::ORPHAN_FILE) {
        if present {
            context.find(place, Problem::OrphansWithoutFile {});
        }
        return;
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        context.find(place.clone(), Problem::OrphanFileWithoutJournal {});
    }
    match orphan_entries(context) {
        Err(why) => context.find(place, Problem::OrphanFileDamaged { why }),
        Ok(entries) => {
            let count = ext4kit_format::num::wide(entries.len());
            for inode in entries {
                if present {
                    context.orphans.insert(inode);
                } else {
                    context.find(place.clone(), Problem::OrphanFileDirty { inode });
                }
            }
            if present {
                let problem = if count == 0 { Problem::OrphansAbsent {} } else { waiting(context, count) };
                context.find(place, problem);
            }
        }
    }
}

fn orphan_entries(context: &Context<'_>) -> Result<Vec<InodeNumber>, String> {
    let number = InodeNumber::new(context.superblock.s_orphan_file_inum.get())
        .filter(|number| number.get() >= context.geometry().first_inode())
        .ok_or_else(|| "its inode number cannot be".to_owned())?;
    let (bytes, range) = context.inode_block(number).ok_or_else(|| "it does not exist".to_owned())?;
    let view = bytes
        .get(range)
        .and_then(|slot| InodeView::new(slot).ok())
        .ok_or_else(|| "it does not exist".to_owned())?;
    if view.kind() != Some(FileKind::Regular) || view.links() == 0 {
        return Err("it is not a regular file".to_owned());
    }
    let geometry = context.geometry();
    let size = view.size();
    let blocks = size >> geometry.block_bits();
    if blocks << geometry.block_bits() != size || blocks == 0 {
        return Err(format!("its size is {size}"));
    }
    let mut pieces = Pieces::default();
    maps::walk(View { source: context.source, layout: context.layout }, number, view, &mut pieces);
    let seed = context.layout.inode_seed(Owner { inode: number, generation: view.generation() });
    let mut entries = Vec::new();
    let mut wanted = 0;
    for piece in pieces.0 {
        if piece.logical != wanted || piece.physical.saturating_add(piece.length) > geometry.blocks_count() {
            return Err(format!("block {wanted} is missing"));
        }
        wanted = piece.logical.saturating_add(piece.length);
        for block in piece.physical..piece.physical.saturating_add(piece.length) {
            let block = BlockNumber(block);
            let bytes = context.source.block(block).map_err(|error| error.to_string())?;
            orphan::check(&bytes).map_err(|defect| format!("block {block}: {defect}"))?;
            if let Some(seed) = seed {
                orphan::verify_checksum(&bytes, seed, block)
                    .map_err(|defect| format!("block {block}: {defect}"))?;
            }
            let inside = |(_, inode): (usize, InodeNumber)| {
                (inode.get() >= geometry.first_inode() && geometry.inode_place(inode).is_some())
                    .then_some(inode)
            };
            entries.extend(orphan::orphans(&bytes).filter_map(inside));
        }
    }
    if wanted < blocks { Err(format!("block {wanted} is missing")) } else { Ok(entries) }
}
