//! From parameters to a superblock and a geometry. Pure arithmetic.
//!
//! The counts follow mke2fs: the number of inodes is rounded so that each group's table fills whole blocks and its
//! bitmap whole bytes, and a last group too short to be of use is left out.

use super::files::lost_and_found_blocks;
use super::parameters::{InodeCount, Parameters};
use super::tables::{GroupTables, place_tables};
use crate::disk::features::{Compat, Incompat, RoCompat};
use crate::disk::superblock::{self, Superblock, flags, state};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::num::{high32, low8, low16, low32};

/// A superblock that is complete but for its free counts, and what follows from it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The superblock to be.
    pub superblock: Superblock,
    /// Its geometry and checksums.
    pub layout: Layout,
    /// Where each group's bitmaps and inode table lie.
    pub tables: Vec<GroupTables>,
}

/// Blocks that a last group must have beyond its own metadata, or it is left out.
const LEAST_USEFUL_BLOCKS: u64 = 50;
/// The ten reserved inodes, `lost+found`, and one to use.
const LEAST_INODES: u64 = 12;
/// A group is not made smaller than this to get more inodes.
const LEAST_BLOCKS_PER_GROUP: u32 = 256;
/// Groups of 65,528 blocks shrink by 8 at a time.
const MOST_ROUNDS: u32 = 8192;
/// Size of group descriptors with 64-bit block numbers.
const DESCRIPTOR_SIZE: u16 = 64;
/// Extra inode fields that are asked for: up to `i_projid`.
const EXTRA_SIZE: u16 = 32;

impl Plan {
    /// The filesystem that the parameters describe, or why there cannot be one.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let mut parameters = parameters.clone();
        let mut blocks_count = parameters.blocks_count;
        let inodes = wanted_inodes(&parameters);
        // A round drops a last group that is too short, or makes groups a little smaller where only all of them
        // together hold the inodes.
        for _ in 0..MOST_ROUNDS {
            let superblock = superblock_for(&parameters, blocks_count)?;
            let layout = Layout::new(&superblock)?;
            let geometry = &layout.geometry;
            let Some(rest) = short_last_group(geometry) else {
                let tables = place_tables(geometry)?;
                check_room(geometry, &parameters)?;
                return Ok(Self { superblock, layout, tables });
            };
            let left = u64::from(geometry.group_count().saturating_sub(1));
            if left == 0 {
                break;
            }
            if left.saturating_mul(u64::from(geometry.block_size()) << 3) < inodes {
                parameters.per_group = Some(geometry.clusters_per_group().saturating_sub(8));
            } else {
                blocks_count = blocks_count.saturating_sub(rest);
            }
        }
        Err(too_small(parameters.blocks_count))
    }
}

fn too_small(blocks_count: u64) -> Error {
    Error::Invalid(format!("{blocks_count} blocks are too few for this filesystem's own structures"))
}

/// Checks that what every filesystem has finds room beside the groups' own metadata.
fn check_room(geometry: &Geometry, parameters: &Parameters) -> Result<()> {
    let base: u64 =
        geometry.groups().flat_map(|group| geometry.base_metadata(group).runs()).map(|run| run.length).sum();
    let per_group = u64::from(geometry.inode_table_blocks()).saturating_add(2);
    let tables = per_group.saturating_mul(geometry.group_count().into());
    let mut files = lost_and_found_blocks(geometry.block_size()).saturating_add(1);
    files = files.saturating_add(parameters.journal.map_or(0, |journal| journal.blocks.into()));
    if parameters.features.compat.contains(Compat::ORPHAN_FILE) {
        files = files.saturating_add(parameters.orphan_file_blocks.into());
    }
    if parameters.features.compat.contains(Compat::RESIZE_INODE) {
        files = files.saturating_add(1);
    }
    let available = geometry.blocks_count().saturating_sub(geometry.first_data_block().0);
    let needed = base.saturating_add(tables).saturating_add(files);
    if needed <= available {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{available} blocks are too few: the filesystem's own structures take {needed}"
    )))
}

/// The length of the last group, if that is too short to hold its metadata and be of use. A single group has to hold
/// its metadata and nothing more.
fn short_last_group(geometry: &Geometry) -> Option<u64> {
    let last = geometry.groups().next_back()?;
    let length = geometry.group_blocks(last).length;
    let base: u64 = geometry.base_metadata(last).runs().map(|run| run.length).sum();
    let overhead = base.saturating_add(geometry.inode_table_blocks().into()).saturating_add(2);
    let spare = if geometry.group_count() == 1 { 0 } else { LEAST_USEFUL_BLOCKS };
    let whole = length == u64::from(geometry.blocks_per_group());
    (!whole && length < overhead.saturating_add(spare)).then_some(length)
}

fn superblock_for(parameters: &Parameters, blocks_count: u64) -> Result<Superblock> {
    let features = parameters.features;
    let mut superblock = Superblock::zeroed();
    let log_block_size = log_of_size("block size", parameters.block_size)?;
    let log_cluster_size = log_of_size("cluster size", parameters.cluster_size)?;
    superblock.s_log_block_size.set(log_block_size);
    superblock.s_log_cluster_size.set(log_cluster_size);
    superblock.set_features(features);
    superblock.s_rev_level.set(parameters.revision);
    superblock.set_blocks_count(blocks_count);
    if superblock.blocks_count() != blocks_count {
        return Err(Error::Invalid(format!("{blocks_count} blocks need the feature 64bit")));
    }
    if parameters.revision == superblock::REVISION_ORIGINAL && parameters.inode_size != 128 {
        return Err(Error::Invalid("revision 0 has inodes of 128 bytes".to_owned()));
    }
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    let first_data_block = u32::from(parameters.block_size == 1024 && !bigalloc);
    superblock.s_first_data_block.set(first_data_block);

    let cluster_bits = log_cluster_size.saturating_sub(log_block_size);
    if features.incompat.contains(Incompat::BIT64) {
        superblock.s_desc_size.set(DESCRIPTOR_SIZE);
    }
    superblock.s_first_ino.set(11);
    superblock.s_inode_size.set(low16(parameters.inode_size));

    let blocks = blocks_count.saturating_sub(first_data_block.into());
    let inodes = wanted_inodes(parameters);
    let clusters = clusters_per_group(parameters, blocks, inodes, cluster_bits)?;
    let blocks_per_group = clusters.checked_shl(cluster_bits).unwrap_or(0);
    superblock.s_blocks_per_group.set(blocks_per_group);
    superblock.s_clusters_per_group.set(clusters);
    let groups = blocks.div_ceil(u64::from(blocks_per_group).max(1));
    let inodes_per_group = inodes_per_group(parameters, inodes, groups);
    superblock.s_inodes_per_group.set(inodes_per_group);
    superblock.s_inodes_count.set(inodes_per_group.saturating_mul(low32(groups)));
    superblock.s_free_inodes_count.set(superblock.s_inodes_count.get());
    superblock.set_reserved_blocks_count(reserved_blocks(parameters, blocks_count));
    set_backups(&mut superblock, parameters, low32(groups));
    if features.incompat.contains(Incompat::FLEX_BG) {
        superblock.s_log_groups_per_flex = low8(parameters.flex_groups.max(1).trailing_zeros());
    }
    set_reserved_descriptors(&mut superblock, parameters);
    set_identity(&mut superblock, parameters);
    Ok(superblock)
}

/// The exponent that stands for a size in a superblock: 0 for 1 KiB.
fn log_of_size(what: &str, size: u32) -> Result<u32> {
    if size >= 1024 && size.is_power_of_two() {
        Ok(size.trailing_zeros().saturating_sub(10))
    } else {
        Err(Error::Invalid(format!("a {what} of {size} bytes is no power of two of at least 1024")))
    }
}

/// As many clusters as a bitmap has bits, within the 16-bit counts of short descriptors.
fn default_clusters_per_group(block_size: u32) -> u32 {
    (block_size << 3).min(65_528)
}

/// How many inodes are asked for. A share of the size counts all blocks that were asked for, also those of a last group
/// that is dropped.
fn wanted_inodes(parameters: &Parameters) -> u64 {
    let wanted = match parameters.inodes {
        InodeCount::BytesPerInode(ratio) => {
            let bytes = parameters.blocks_count.saturating_mul(parameters.block_size.into());
            bytes.checked_div(ratio.into()).unwrap_or(0)
        }
        InodeCount::AtLeast(count) => count.into(),
    };
    wanted.clamp(LEAST_INODES, u32::MAX.into())
}

/// Clusters of a group: as asked for, or as many as a bitmap has bits, or fewer where only so the groups are enough for
/// the inodes that their bitmaps can hold.
fn clusters_per_group(parameters: &Parameters, blocks: u64, inodes: u64, cluster_bits: u32) -> Result<u32> {
    let mut clusters =
        parameters.per_group.unwrap_or_else(|| default_clusters_per_group(parameters.block_size));
    let inodes_of_a_bitmap = u64::from(parameters.block_size) << 3;
    loop {
        let groups = blocks.div_ceil((u64::from(clusters) << cluster_bits).max(1));
        if inodes <= groups.saturating_mul(inodes_of_a_bitmap) {
            return Ok(clusters);
        }
        if cluster_bits > 0 || clusters < LEAST_BLOCKS_PER_GROUP {
            return Err(Error::Invalid(format!(
                "{inodes} inodes are more than {groups} groups of at most {inodes_of_a_bitmap} can hold"
            )));
        }
        clusters = clusters.saturating_sub(8);
    }
}

/// Inodes of a group, rounded so that its table fills whole blocks and its bitmap whole bytes.
fn inodes_per_group(parameters: &Parameters, wanted: u64, groups: u64) -> u32 {
    let inode_size = u64::from(parameters.inode_size.max(1));
    let block_size = u64::from(parameters.block_size);
    let per_block = block_size.checked_div(inode_size).unwrap_or(1);
    let most = block_size.saturating_mul(8).min(65_536u64.saturating_sub(per_block));
    let mut per_group = wanted.div_ceil(groups.max(1)).min(most);
    loop {
        let table = per_group.saturating_mul(inode_size).div_ceil(block_size);
        let filled = table.saturating_mul(block_size).checked_div(inode_size).unwrap_or(0);
        let rounded = filled.min(most).max(8) & !7;
        // Rounding down must not lose the reserved inodes and the one of `lost+found`.
        let rounded = if rounded.saturating_mul(groups) < LEAST_INODES { 16 } else { rounded };
        if rounded.saturating_mul(groups) <= u32::MAX.into() || rounded <= 16 {
            return low32(rounded);
        }
        per_group = rounded.saturating_sub(8);
    }
}

/// Which groups hold copies of the superblock under sparse_super2: the second and the last.
fn set_backups(superblock: &mut Superblock, parameters: &Parameters, groups: u32) {
    if !parameters.features.compat.contains(Compat::SPARSE_SUPER2) {
        return;
    }
    let last = groups.saturating_sub(1);
    if parameters.backups >= 1 && groups > 1 {
        superblock.s_backup_bgs[0].set(1);
    }
    if parameters.backups >= 2 && groups > 2 {
        superblock.s_backup_bgs[1].set(last);
    }
}

/// How many blocks behind each descriptor table are kept for descriptors to come.
fn set_reserved_descriptors(superblock: &mut Superblock, parameters: &Parameters) {
    if !parameters.features.compat.contains(Compat::RESIZE_INODE) {
        return;
    }
    let first = u64::from(superblock.s_first_data_block.get());
    let per_group = u64::from(superblock.s_blocks_per_group.get()).max(1);
    let blocks = superblock.blocks_count();
    let grown = parameters
        .resize_blocks
        .unwrap_or_else(|| blocks.saturating_mul(1024))
        .clamp(blocks, u32::MAX.into());
    let per_block =
        u64::from(parameters.block_size.checked_div(superblock.descriptor_size().into()).unwrap_or(1));
    let table_blocks =
        |blocks: u64| blocks.saturating_sub(first).div_ceil(per_group).div_ceil(per_block.max(1));
    let reserved = table_blocks(grown).saturating_sub(table_blocks(blocks));
    let most = u64::from(parameters.block_size >> 2);
    superblock.s_reserved_gdt_blocks.set(low16(low32(reserved.min(most))));
}

fn set_identity(superblock: &mut Superblock, parameters: &Parameters) {
    let time = parameters.time.max(0).cast_unsigned();
    let (time_low, time_high) = (low32(time), low8(high32(time)));
    superblock.s_magic.set(superblock::MAGIC);
    superblock.s_state.set(state::VALID);
    superblock.s_errors.set(parameters.errors);
    superblock.s_creator_os.set(parameters.creator_os);
    superblock.s_max_mnt_count.set(u16::MAX);
    superblock.s_mkfs_time.set(time_low);
    superblock.s_mkfs_time_hi = time_high;
    superblock.s_wtime.set(time_low);
    superblock.s_wtime_hi = time_high;
    superblock.s_lastcheck.set(time_low);
    superblock.s_lastcheck_hi = time_high;
    superblock.s_uuid = parameters.identity.uuid;
    superblock.s_hash_seed = parameters.identity.hash_seed;
    superblock.s_volume_name = parameters.identity.label;
    superblock.s_last_mounted = parameters.identity.last_mounted;
    superblock.s_def_hash_version = parameters.hash_version;
    let hash_flag = if parameters.unsigned_hash { flags::UNSIGNED_HASH } else { flags::SIGNED_HASH };
    let test_flag = if parameters.test_filesystem { flags::TEST_FILESYSTEM } else { 0 };
    superblock.s_flags.set(hash_flag | test_flag);
    superblock.s_default_mount_opts.set(parameters.mount_options);
    superblock.s_raid_stride.set(parameters.raid.0);
    superblock.s_raid_stripe_width.set(parameters.raid.1);
    if parameters.inode_size > 128 {
        superblock.s_min_extra_isize.set(EXTRA_SIZE);
        superblock.s_want_extra_isize.set(EXTRA_SIZE);
    }
    if parameters.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        superblock.s_checksum_type = superblock::CHECKSUM_CRC32C;
    }
    if parameters.features.incompat.contains(Incompat::CSUM_SEED) {
        let seed = crate::disk::crc::crc32c(u32::MAX, &parameters.identity.uuid);
        superblock.s_checksum_seed.set(seed);
    }
    if parameters.features.incompat.contains(Incompat::CASEFOLD) {
        superblock.s_encoding.set(parameters.encoding.0);
        superblock.s_encoding_flags.set(parameters.encoding.1);
    }
}

/// The blocks kept for the super-user: their share of the blocks that were asked for, and less in proportion where a
/// last group was dropped.
fn reserved_blocks(parameters: &Parameters, blocks_count: u64) -> u64 {
    let asked_for = parameters.blocks_count;
    let whole = percent_of(asked_for, parameters.reserved_percent);
    let scaled = u128::from(whole).saturating_mul(blocks_count.into()).checked_div(asked_for.into());
    scaled.and_then(|blocks| u64::try_from(blocks).ok()).unwrap_or(whole)
}

/// A share of a number, rounded down; at most half of it.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes an integer by saturating, and the result is bounded by half of the number"
)]
fn percent_of(number: u64, percent: f64) -> u64 {
    ((number as f64 * percent / 100.0) as u64).min(number >> 1)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::create::Identity;
    use crate::disk::features::{Feature, Features};

    /// The features that mke2fs 1.47.0 gives an ext4 filesystem.
    pub fn ext4_features() -> Features {
        let mut features = Features::default();
        for name in [
            "has_journal",
            "ext_attr",
            "resize_inode",
            "dir_index",
            "filetype",
            "extent",
            "64bit",
            "flex_bg",
            "sparse_super",
            "large_file",
            "huge_file",
            "dir_nlink",
            "extra_isize",
            "metadata_csum",
        ] {
            features.set(Feature::from_name(name).unwrap(), true);
        }
        features
    }

    /// Parameters as mke2fs would choose them for an ext4 filesystem.
    pub fn ext4(blocks_count: u64, block_size: u32) -> Parameters {
        Parameters {
            identity: Identity { uuid: [0x11; 16], hash_seed: [0x22; 16], ..Identity::default() },
            time: 1_700_000_000,
            target_is_zero: true,
            ..Parameters::new(blocks_count, block_size, ext4_features())
        }
    }

    #[test]
    fn counts_are_those_of_mke2fs() {
        // Blocks, block size, ratio; then inodes, inodes per group, reserved blocks, reserved descriptors of
        // mke2fs 1.47.0 -t ext4.
        for (blocks, size, ratio, inodes, per_group, reserved, descriptors) in [
            (262_144, 4096, 16384, 65536, 8192, 13107, 127),
            (102_400, 1024, 4096, 25584, 1968, 5120, 256),
            (8192, 1024, 4096, 2048, 2048, 409, 63),
        ] {
            let mut parameters = ext4(blocks, size);
            parameters.inodes = InodeCount::BytesPerInode(ratio);
            let plan = Plan::new(&parameters).unwrap();
            assert_eq!(plan.superblock.s_inodes_count.get(), inodes, "{blocks} blocks of {size}");
            assert_eq!(plan.superblock.s_inodes_per_group.get(), per_group);
            assert_eq!(plan.superblock.reserved_blocks_count(), reserved);
            assert_eq!(plan.superblock.s_reserved_gdt_blocks.get(), descriptors);
        }
    }

    #[test]
    fn a_useless_last_group_is_dropped() {
        let mut parameters = ext4(262_144 + 256, 4096);
        parameters.reserved_percent = 50.0;
        let plan = Plan::new(&parameters).unwrap();
        assert_eq!(plan.superblock.blocks_count(), 262_144);
        assert_eq!(plan.superblock.reserved_blocks_count(), 131_072);
    }

    #[test]
    fn impossible_wishes_are_refused() {
        let mut parameters = ext4(4, 4096);
        assert!(Plan::new(&parameters).is_err());
        parameters.blocks_count = 1 << 33;
        parameters.features.incompat.remove(Incompat::BIT64);
        assert!(Plan::new(&parameters).unwrap_err().to_string().contains("64bit"));
    }
}
