//! Pass 0: the superblock, and the resize inode, which mirrors the geometry.

use ext4kit_format::bytes::le32;
use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::group_desc::GroupDescriptor;
use ext4kit_format::disk::inode::{FileKind, InodeView};
use ext4kit_format::disk::mmp;
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::num::index;
use ext4kit_format::{BlockNumber, Defect, GroupNumber, InodeNumber, Place};

use super::context::Context;
use crate::finding::{InodeProblem, SuperblockProblem as Problem};
use crate::opening::copies;

/// Checks the fields that the geometry does not already depend on.
pub fn check(context: &mut Context<'_>) {
    let superblock = context.superblock;
    let features = superblock.features();
    let counted = context.geometry().inodes_count();
    let stored = superblock.s_inodes_count.get();
    let mut found: Vec<Problem> = Vec::new();
    if stored != counted {
        found.push(Problem::InodeCountWrong { stored, counted });
    }
    let most = superblock.blocks_count() / 2;
    if superblock.reserved_blocks_count() > most {
        let value = superblock.reserved_blocks_count();
        let field = "s_r_blocks_count";
        let defect = Defect::Range { field, value, least: 0, most };
        // What mke2fs sets aside.
        found.push(Problem::FieldOutOfRange { defect, field, value: superblock.blocks_count() / 20 });
    }
    let reserved: u32 = superblock.s_reserved_gdt_blocks.get().into();
    let resize = features.compat.contains(Compat::RESIZE_INODE);
    if reserved != 0 && !resize {
        found.push(Problem::ReservedDescriptorsUnused { blocks: reserved });
    }
    if resize && features.incompat.contains(Incompat::META_BG) {
        found.push(Problem::ResizeInodeWithMetaGroups {});
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM) {
        found.push(Problem::BothChecksumFeatures {});
    }
    if features.incompat.contains(Incompat::BIT64) && !features.incompat.contains(Incompat::EXTENTS) {
        found.push(Problem::WideWithoutExtents {});
    }
    if features.incompat.contains(Incompat::CSUM_SEED)
        && !features.ro_compat.contains(RoCompat::METADATA_CSUM)
    {
        found.push(Problem::SeedWithoutChecksums {});
    }
    if superblock.is_original_revision() && features != ext4kit_format::disk::features::Features::default() {
        found.push(Problem::FeaturesInOriginalRevision {});
    }
    if superblock.s_creator_os.get() == 1 && features.incompat.contains(Incompat::FILETYPE) {
        found.push(Problem::FileTypeOnHurd {});
    }
    if superblock.s_uuid == [0; 16] {
        found.push(Problem::NoUuid {});
    }
    journal_names(context, &mut found);
    let clusters = superblock.blocks_count() >> context.geometry().cluster_bits();
    let stored = superblock.s_overhead_clusters.get();
    if u64::from(stored) > clusters {
        found.push(Problem::OverheadTooLarge { stored, most: clusters });
    }
    extra_sizes(context, &mut found);
    quota_inodes(context, &mut found);
    protection_block(context, &mut found);
    backups(context, &mut found);
    for problem in found {
        context.find(Place::Superblock, problem);
    }
}

/// Looks at the copies. They are stale by design; only one that could not stand in for the primary is told.
fn backups(context: &Context<'_>, found: &mut Vec<Problem>) {
    let geometry = context.geometry();
    let held = context.source.store().size() >> geometry.block_bits();
    for group in geometry.backup_groups().into_iter().take(MOST_BACKUPS) {
        let Some(block) = geometry.superblock_copy(group).filter(|block| block.0 < held) else { continue };
        let stored = context.source.block(block).ok().and_then(|bytes| Superblock::parse(&bytes).ok());
        let store = context.source.store().as_ref();
        let copy = stored.and_then(|stored| copies::judge(store, stored, block, geometry.block_size()));
        let why = match copy {
            Some(copy) if copies::same_shape(&copy.superblock, context.superblock) => continue,
            Some(_) => "it describes another filesystem",
            None => "it is no sound superblock",
        };
        found.push(Problem::BackupDamaged { block, why: why.to_owned() });
    }
    for table_block in 0..geometry.descriptor_blocks() {
        let copies = geometry.descriptor_table_copies(table_block).into_iter().take(MOST_BACKUPS);
        for block in copies.filter(|block| block.0 < held) {
            if let Some(group) = wrong_descriptor(context, table_block, block) {
                let why = format!("the descriptor of group {group} has other places or a wrong checksum");
                found.push(Problem::BackupDamaged { block, why });
            }
        }
    }
}

/// Copies that a check looks at. Without `sparse_super` every group has one, and they are too many.
const MOST_BACKUPS: usize = 16;

/// The first group whose descriptor in a copy of the table does not lead where the one in use does.
fn wrong_descriptor(context: &Context<'_>, table_block: u32, block: BlockNumber) -> Option<GroupNumber> {
    let geometry = context.geometry();
    let first = table_block.saturating_mul(geometry.descriptors_per_block());
    let bytes = context.source.block(block).ok()?;
    let records = bytes.chunks_exact(index(geometry.descriptor_size()));
    let places = |descriptor: &GroupDescriptor| {
        (descriptor.block_bitmap, descriptor.inode_bitmap, descriptor.inode_table)
    };
    (first..geometry.group_count()).map(GroupNumber).zip(records).find_map(|(group, record)| {
        let copy = GroupDescriptor::parse(record).ok()?;
        let sound = context.layout.descriptor_checksum.verify(group, record).is_ok();
        (!sound || context.group(group).map(places) != Some(places(&copy))).then_some(group)
    })
}

/// An internal journal is the one that counts; tools that see another one named, even without any, look for it in vain.
fn journal_names(context: &Context<'_>, found: &mut Vec<Problem>) {
    let superblock = context.superblock;
    let external =
        superblock.features().compat.contains(Compat::HAS_JOURNAL) && superblock.journal_inode().is_none();
    if external {
        return;
    }
    if superblock.s_journal_uuid != [0; 16] {
        found.push(Problem::JournalNamedTwice { field: "s_journal_uuid" });
    }
    if superblock.s_journal_dev.get() != 0 {
        found.push(Problem::JournalNamedTwice { field: "s_journal_dev" });
    }
}

fn extra_sizes(context: &Context<'_>, found: &mut Vec<Problem>) {
    let superblock = context.superblock;
    let room = superblock.inode_size().saturating_sub(128);
    if superblock.inode_size() <= 128 {
        return;
    }
    let bad = |size: u16| size > room || !size.is_multiple_of(4);
    let stored = superblock.s_min_extra_isize.get();
    if bad(stored) {
        found.push(Problem::MinExtraSizeWrong { stored });
    }
    let stored = superblock.s_want_extra_isize.get();
    if bad(stored) {
        found.push(Problem::WantExtraSizeWrong { stored });
    }
}

fn quota_inodes(context: &Context<'_>, found: &mut Vec<Problem>) {
    let superblock = context.superblock;
    let has_quota = superblock.features().ro_compat.contains(RoCompat::QUOTA);
    let fields = [
        ("s_usr_quota_inum", superblock.s_usr_quota_inum.get(), 3),
        ("s_grp_quota_inum", superblock.s_grp_quota_inum.get(), 4),
        ("s_prj_quota_inum", superblock.s_prj_quota_inum.get(), 0),
    ];
    for (field, stored, usual) in fields {
        let geometry = context.geometry();
        let ordinary = stored >= geometry.first_inode() && stored <= geometry.inodes_count();
        // Without the feature there is no such inode, and e2fsck takes the number for one all the same.
        if stored != 0 && stored != usual && !(has_quota && ordinary) {
            found.push(Problem::QuotaInodeInvalid { field, stored });
        }
    }
}

fn protection_block(context: &Context<'_>, found: &mut Vec<Problem>) {
    if !context.features().incompat.contains(Incompat::MMP) {
        return;
    }
    let block = context.superblock.s_mmp_block.get();
    if !context.geometry().contains(BlockNumber(block)) {
        found.push(Problem::MmpBlockInvalid { block });
        return;
    }
    let Ok(bytes) = context.source.block(BlockNumber(block)) else { return };
    let seen = match context.layout.checksum_seed {
        Some(seed) => mmp::verify_checksum(&bytes, seed),
        None => mmp::MmpBlock::parse(&bytes).map(|_| ()),
    };
    if let Err(defect) = seen {
        found.push(Problem::MmpDamaged { defect });
    }
}

/// Checks the resize inode against what the geometry calls for, and claims the one block that is its own.
pub fn check_resize_inode(context: &mut Context<'_>) {
    let has = context.features().compat.contains(Compat::RESIZE_INODE);
    let Some((bytes, range)) = context.inode_block(InodeNumber::RESIZE) else { return };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return };
    let double = le32(view.map(), 52).unwrap_or(0);
    let place = Place::Inode(InodeNumber::RESIZE);
    if !has {
        if double != 0 {
            let why = "it is not empty although resize_inode is off".to_owned();
            context.find(place, Problem::ResizeInodeWrong { why });
        }
        return;
    }
    let verdict = resize_inode(context, view, BlockNumber(double.into()));
    let block = BlockNumber(double.into());
    if context.geometry().contains(block)
        && context.claims.in_metadata(ext4kit_format::BlockRun::single(block)).is_none()
    {
        let cluster = context.claims.cluster(block.0);
        context.claims.claim(cluster);
    }
    match verdict.and_then(|()| resize_blocks(context, block)) {
        Ok(blocks) => {
            let geometry = context.geometry();
            let stored = view.blocks_raw();
            let counted = blocks << geometry.block_bits().saturating_sub(9);
            if stored != counted && geometry.cluster_bits() == 0 {
                context.find(place, InodeProblem::BlocksWrong { stored, counted });
            }
        }
        Err(why) => context.find(place, Problem::ResizeInodeWrong { why }),
    }
}

/// How many blocks the resize inode maps: the block of pointers, each block of a table that it names, and what that
/// names in turn. All of them have to exist.
fn resize_blocks(context: &Context<'_>, double: BlockNumber) -> Result<u64, String> {
    let named = |block: BlockNumber| -> Result<Vec<BlockNumber>, String> {
        let bytes = context.source.block(block).map_err(|error| error.to_string())?;
        let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let pointers = words.filter(|pointer| *pointer != 0).map(|pointer| BlockNumber(pointer.into()));
        let pointers: Vec<BlockNumber> = pointers.collect();
        match pointers.iter().find(|pointer| !context.geometry().contains(**pointer)) {
            Some(outside) => Err(format!("block {block} names block {outside}, outside the filesystem")),
            None => Ok(pointers),
        }
    };
    named(double)?.into_iter().try_fold(1u64, |sum, list| {
        let copies = ext4kit_format::num::wide(named(list)?.len());
        Ok(sum.saturating_add(1).saturating_add(copies))
    })
}

/// The first pointer of the resize inode's block that leads outside the filesystem, or to a block that does. Pointers
/// besides those of the reserved blocks stay after the reserve was made smaller, and do no harm.
fn stray_pointer(context: &Context<'_>, pointers: &[u8]) -> Option<usize> {
    let geometry = context.geometry();
    let named = |bytes: &[u8]| -> Vec<BlockNumber> {
        let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        words.map(|pointer| BlockNumber(pointer.into())).collect()
    };
    let stray = |block: &BlockNumber| block.0 != 0 && !geometry.contains(*block);
    named(pointers).iter().position(|list| {
        let copies = || context.source.block(*list).map_or_else(|_| Vec::new(), |bytes| named(&bytes));
        list.0 != 0 && (stray(list) || copies().iter().any(stray))
    })
}

fn resize_inode(context: &Context<'_>, view: InodeView<'_>, double: BlockNumber) -> Result<(), String> {
    let geometry = context.geometry();
    let others =
        (0..15).filter(|at| *at != 13).any(|at| le32(view.map(), usize::saturating_mul(at, 4)) != Some(0));
    if view.kind() != Some(FileKind::Regular) || view.links() == 0 || others {
        return Err("it is not one".to_owned());
    }
    if !geometry.contains(double)
        || context.claims.in_metadata(ext4kit_format::BlockRun::single(double)).is_some()
    {
        return Err(format!("its block {double} cannot be"));
    }
    let pointers = context.source.block(double).map_err(|error| error.to_string())?;
    let tables = geometry.leading_descriptor_blocks();
    let per_block = geometry.pointers_per_block();
    let copies: Vec<BlockNumber> =
        geometry.backup_groups().into_iter().filter_map(|group| geometry.superblock_copy(group)).collect();
    if let Some(slot) = stray_pointer(context, &pointers) {
        return Err(format!("pointer {slot} leads outside the filesystem"));
    }
    for reserved in 0..geometry.reserved_descriptor_blocks() {
        let number = tables.saturating_add(reserved);
        let slot = number.checked_rem(per_block).unwrap_or(0);
        let distance = u64::from(number).saturating_add(1);
        let wanted = geometry.superblock_block().0.saturating_add(distance);
        let stored = le32(&pointers, index(slot).saturating_mul(4)).unwrap_or(0);
        if u64::from(stored) != wanted {
            return Err(format!("pointer {slot} is {stored}, should be {wanted}"));
        }
        let list = context.source.block(BlockNumber(wanted)).map_err(|error| error.to_string())?;
        for (at, copy) in copies.iter().enumerate() {
            // As e2fsprogs count: as far from the primary one as the groups are apart.
            let apart = copy.0.saturating_sub(geometry.first_data_block().0);
            let wanted = wanted.saturating_add(apart);
            let stored = le32(&list, at.saturating_mul(4)).unwrap_or(0);
            if u64::from(stored) != wanted {
                return Err(format!(
                    "copy {at} of reserved block {reserved} is {stored}, should be {wanted}"
                ));
            }
        }
    }
    Ok(())
}
