//! Repairs of the superblock, and of what is known through it alone: protection block, resize inode, backups.
//!
//! A change of features or sizes takes effect at once: the overlay is given the layout that follows, so that the next
//! repair sees it.

use ext4kit_format::bytes::le32;
use ext4kit_format::create::{map_reserved_descriptors, write_backups};
use ext4kit_format::disk::features::{Compat, Feature, Incompat};
use ext4kit_format::disk::group_desc::GroupDescriptor;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::disk::mmp::MmpBlock;
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::error::{Defect, Error, Place, Result};
use ext4kit_format::layout::Layout;
use ext4kit_format::num::{high32, index, low8, low16, low32};
use ext4kit_format::tree::{group, inode};
use ext4kit_format::txn::{BlockKind, Overlay, Transaction, create, modify};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, InodeNumber};
use zerocopy::IntoBytes;

use crate::finding::{Finding, Problem, SuperblockProblem};
use crate::repair::Repair;

/// What the opening found out, which repairs of this stage work with. Bitmaps cannot be trusted yet.
pub struct Ground<'a> {
    /// The superblock in use: [`crate::opening::Opened::superblock`].
    pub superblock: &'a Superblock,
    /// The descriptors in use: [`crate::opening::Opened::groups`].
    pub groups: &'a [GroupDescriptor],
    /// Finds blocks that nothing uses, and counts them as used from then on.
    pub free: &'a mut dyn FnMut(Wanted) -> Option<BlockNumber>,
}

/// Blocks that a repair needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How many, one after the other.
    pub blocks: u64,
    /// Where they have to lie.
    pub within: BlockRun,
    /// The group for which they are.
    pub group: GroupNumber,
}

/// Carries out the repair of a problem of the superblock. A problem of another area, or one without a repair, is an
/// error.
pub fn apply(finding: &Finding, overlay: &mut Overlay, ground: &mut Ground<'_>) -> Result<()> {
    let Problem::Superblock(problem) = &finding.problem else {
        return Err(Error::Invalid(format!("{finding}: no problem of the superblock")));
    };
    match (problem, finding.verdict().repair) {
        (_, Some(Repair::RestoreSuperblock)) => restore(overlay, ground.superblock),
        // The seal puts the checksum right.
        (_, Some(Repair::RefreshChecksum)) => group::update_superblock(overlay, |_| ()),
        (_, Some(Repair::RewriteBackups)) => write_backups(overlay),
        (_, Some(Repair::ResetMmp)) => reset_protection(overlay, ground.superblock),
        (_, Some(Repair::RecreateResizeInode)) => recreate_resize_inode(overlay, ground),
        (_, Some(Repair::SetField { field, value })) => store_field(overlay, field, value),
        (SuperblockProblem::FirstMetaGroupTooBig { .. }, _) => {
            switch(overlay, "meta_bg", false, |superblock| superblock.s_first_meta_bg.set(0))
        }
        (SuperblockProblem::MmpBlockInvalid { .. }, _) => {
            switch(overlay, "mmp", false, |superblock| superblock.s_mmp_block.set(0))
        }
        (SuperblockProblem::ResizeInodeWithMetaGroups {}, _) => {
            switch(overlay, "resize_inode", false, |superblock| superblock.s_reserved_gdt_blocks.set(0))?;
            recreate_resize_inode(overlay, ground)
        }
        (_, Some(Repair::ClearFeature(name))) => switch(overlay, name, false, |_| ()),
        (_, Some(Repair::SetFeature(name))) => switch(overlay, name, true, |_| ()),
        _ => Err(Error::Invalid(format!("{finding}: there is no repair"))),
    }
}

/// Whether a repair of this finding makes the copies say something else than the primary, so that they are to be
/// written again ([`write_backups`]) once all repairs of the stage are done.
pub fn outdates_backups(finding: &Finding) -> bool {
    let verdict = finding.verdict();
    let area = matches!(finding.problem, Problem::Superblock(_) | Problem::Group(_));
    area && verdict.grade.is_error()
        && !matches!(verdict.repair, None | Some(Repair::ResetMmp | Repair::RefreshChecksum))
}

/// Writes a superblock as the primary one, whatever lies there.
fn restore(overlay: &mut Overlay, superblock: &Superblock) -> Result<()> {
    let block = overlay.layout().geometry.superblock_block();
    let offset = overlay.layout().geometry.superblock_offset();
    let mut fresh = superblock.clone();
    fresh.s_block_group_nr.set(0);
    // With larger blocks the boot sector lies in the same one, and stays.
    let written = modify(overlay, block, BlockKind::Superblock, |bytes| {
        bytes.get_mut(offset..).is_some_and(|area| fresh.write_to_prefix(area).is_ok())
    })?;
    if !written {
        return Err(Defect::Truncated { what: "superblock" }.at(Place::Superblock));
    }
    follow(overlay)
}

/// Gives the overlay the layout that its superblock describes. One that is not possible yet, because other repairs are
/// still due, changes nothing.
fn follow(overlay: &mut Overlay) -> Result<()> {
    let superblock = group::read_superblock(overlay)?;
    if let Ok(layout) = Layout::new(&superblock) {
        overlay.set_layout(layout);
    }
    Ok(())
}

/// Turns a feature on or off, and changes what goes with it.
pub fn switch(overlay: &mut Overlay, name: &str, on: bool, also: impl FnOnce(&mut Superblock)) -> Result<()> {
    let feature = Feature::from_name(name)
        .ok_or_else(|| Error::Invalid(format!("there is no feature named {name}")))?;
    group::update_superblock(overlay, |superblock| {
        let mut features = superblock.features();
        features.set(feature, on);
        superblock.set_features(features);
        also(superblock);
    })?;
    follow(overlay)
}

fn store_field(overlay: &mut Overlay, field: &str, value: u64) -> Result<()> {
    let known = {
        let mut known = false;
        group::update_superblock(overlay, |superblock| known = set_field(superblock, field, value))?;
        known
    };
    if !known {
        return Err(Error::Invalid(format!("{field} is no field of the superblock that repairs set")));
    }
    follow(overlay)
}

/// Stores a field by the kernel's name; whether it is one that repairs set.
fn set_field(superblock: &mut Superblock, field: &str, value: u64) -> bool {
    match field {
        "s_inodes_count" => superblock.s_inodes_count.set(low32(value)),
        "s_r_blocks_count" => superblock.set_reserved_blocks_count(value),
        "s_free_blocks_count" => superblock.set_free_blocks_count(value),
        "s_free_inodes_count" => superblock.s_free_inodes_count.set(low32(value)),
        "s_first_data_block" => superblock.s_first_data_block.set(low32(value)),
        "s_log_cluster_size" => superblock.s_log_cluster_size.set(low32(value)),
        "s_clusters_per_group" => superblock.s_clusters_per_group.set(low32(value)),
        "s_rev_level" => {
            // What the later revision reads from fields is fixed in the first one, which leaves them empty.
            if superblock.s_inode_size.get() == 0 {
                superblock.s_inode_size.set(superblock.inode_size());
                superblock.s_first_ino.set(superblock.first_inode());
            }
            superblock.s_rev_level.set(low32(value));
        }
        "s_first_ino" => superblock.s_first_ino.set(low32(value)),
        "s_desc_size" => superblock.s_desc_size.set(low16(low32(value))),
        "s_reserved_gdt_blocks" => superblock.s_reserved_gdt_blocks.set(low16(low32(value))),
        "s_log_groups_per_flex" => superblock.s_log_groups_per_flex = low8(low32(value)),
        "s_checksum_type" => superblock.s_checksum_type = low8(low32(value)),
        "s_min_extra_isize" => superblock.s_min_extra_isize.set(low16(low32(value))),
        "s_want_extra_isize" => superblock.s_want_extra_isize.set(low16(low32(value))),
        "s_usr_quota_inum" => superblock.s_usr_quota_inum.set(low32(value)),
        "s_grp_quota_inum" => superblock.s_grp_quota_inum.set(low32(value)),
        "s_prj_quota_inum" => superblock.s_prj_quota_inum.set(low32(value)),
        "s_overhead_clusters" => superblock.s_overhead_clusters.set(low32(value)),
        "s_journal_dev" => superblock.s_journal_dev.set(low32(value)),
        "s_journal_uuid" => superblock.s_journal_uuid = [0; 16],
        "s_last_orphan" => superblock.s_last_orphan.set(low32(value)),
        _ => return false,
    }
    true
}

/// Makes the protection block anew, saying that nobody uses the filesystem.
fn reset_protection(overlay: &mut Overlay, superblock: &Superblock) -> Result<()> {
    let block = BlockNumber(superblock.s_mmp_block.get());
    let interval = superblock.s_mmp_update_interval.get();
    create(overlay, block, BlockKind::Mmp, |bytes| {
        MmpBlock::create(bytes).map(|mmp| mmp.mmp_check_interval.set(interval))
    })?
    .map_err(|defect| defect.at(Place::MmpBlock(block)))
}

/// Makes the resize inode anew, or empties it where the feature is off.
fn recreate_resize_inode(overlay: &mut Overlay, ground: &mut Ground<'_>) -> Result<()> {
    let geometry = overlay.layout().geometry.clone();
    let number = InodeNumber::RESIZE;
    let features = geometry.features();
    let mut resize = read_or_fresh(overlay, number)?;
    let invalid = |defect: Defect| defect.at(Place::Inode(number));
    if !features.compat.contains(Compat::RESIZE_INODE) || features.incompat.contains(Incompat::META_BG) {
        resize.map_mut().fill(0);
        resize.set_blocks_raw(0).map_err(invalid)?;
        resize.set_size(0);
        resize.set_links(0);
        resize.set_mode(0);
        return inode::write_over(overlay, &resize);
    }
    let stored = BlockNumber(le32(resize.view().map(), 13 * 4).unwrap_or(0).into());
    let usable = geometry.contains(stored)
        && high32(stored.0) == 0
        && !super::groups::is_metadata(&geometry, ground.groups, BlockRun::single(stored));
    let double = if usable {
        stored
    } else {
        let within = BlockRun {
            start: geometry.first_data_block(),
            // Pointers have 32 bits.
            length: geometry.blocks_count().min(1 << 32).saturating_sub(geometry.first_data_block().0),
        };
        (ground.free)(Wanted { blocks: 1, within, group: GroupNumber(0) }).ok_or(Error::NoSpace)?
    };
    resize.set_mode(0o100_600);
    resize.set_links(1);
    resize.set_flags(ext4kit_format::disk::inode::InodeFlags::empty());
    resize.set_deletion_time(0);
    let pointers = u64::from(geometry.pointers_per_block());
    let all = pointers.saturating_mul(pointers).saturating_add(pointers).saturating_add(12);
    resize.set_size(all << geometry.block_bits());
    map_reserved_descriptors(overlay, &mut resize, double)?;
    inode::write_over(overlay, &resize)
}

/// An inode, or an empty one where its slot holds none.
fn read_or_fresh(overlay: &Overlay, number: InodeNumber) -> Result<Inode> {
    match inode::read_unverified(overlay, number) {
        Ok(inode) => Ok(inode),
        Err(error @ Error::Io { .. }) => Err(error),
        Err(_) => {
            let size = index(overlay.layout().geometry.inode_size());
            let extra = if size > 128 { ext4kit_format::disk::inode::EXTRA_SIZE } else { 0 };
            Ok(Inode::fresh(number, size, extra))
        }
    }
}
