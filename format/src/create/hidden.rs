//! Files that no directory names: resize inode, journal, orphan file; and the block of multi-mount protection.

use zerocopy::IntoBytes;

use super::files::{extents, fresh_inode};
use super::{JournalParameters, Parameters};
use crate::bytes::put_le32;
use crate::disk::crc::crc32c;
use crate::disk::inode::{Inode, MAP_SIZE};
use crate::disk::jbd2::superblock::JournalSuperblock;
use crate::disk::mmp::MmpBlock;
use crate::disk::{orphan, superblock};
use crate::error::{Defect, Error, Place, Result};
use crate::ids::{BlockNumber, BlockRun, GroupNumber, InodeNumber, LogicalBlock};
use crate::num::{high32, index, low32};
use crate::tree::{group, inode, map};
use crate::txn::{BlockKind, BlockRequest, Transaction, create};

/// Mode of every hidden file: regular, readable and writable by root.
const HIDDEN_MODE: u16 = 0o100_600;

/// The resize inode: its double indirect block names the primary blocks reserved for descriptors, each of which names
/// its own copies in the backup groups.
pub(super) fn create_resize_inode(txn: &mut dyn Transaction, parameters: &Parameters) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    let pointers = geometry.pointers_per_block();
    let mut resize = fresh_inode(txn, InodeNumber::RESIZE, parameters);
    resize.set_mode(HIDDEN_MODE);
    resize.set_links(1);
    let all = u64::from(pointers)
        .saturating_mul(u64::from(pointers))
        .saturating_add(pointers.into())
        .saturating_add(12);
    resize.set_size(all << geometry.block_bits());

    let goal = geometry.group_start(GroupNumber(0));
    let wanted = geometry.blocks_per_cluster().into();
    let double = txn.allocate_blocks(BlockRequest { goal, wanted, owner: InodeNumber::RESIZE })?.start;
    map_reserved_descriptors(txn, &mut resize, double)?;
    inode::write_over(txn, &resize)
}

/// Writes the lists of blocks reserved for descriptors, and makes `double` the block of the resize inode that leads to
/// them. The inode's map and count of blocks are set; writing the inode is left to the caller.
pub fn map_reserved_descriptors(
    txn: &mut dyn Transaction,
    resize: &mut Inode,
    double: BlockNumber,
) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    let pointers = geometry.pointers_per_block();
    let kind = BlockKind::IndirectBlock(InodeNumber::RESIZE);
    let table = geometry.leading_descriptor_blocks();
    let reserved = geometry.reserved_descriptor_blocks();
    let first = geometry.superblock_block().0.saturating_add(1).saturating_add(table.into());
    let mut list = Vec::new();
    let mut blocks: i64 = 1;
    let backups = geometry.backup_groups();
    for number in 0..reserved {
        let primary = BlockNumber(first.saturating_add(number.into()));
        // The kernel looks for a copy as far into its group as the primary lies into the first.
        let copies: Vec<u32> = backups
            .iter()
            .map(|group| u64::from(group.0).saturating_mul(geometry.blocks_per_group().into()))
            .map(|start| low32(primary.0.saturating_add(start)))
            .take(index(pointers))
            .collect();
        blocks = blocks.saturating_add(1).saturating_add(i64::try_from(copies.len()).unwrap_or(0));
        create(txn, primary, kind, |bytes| {
            for (slot, copy) in copies.iter().enumerate() {
                put_le32(bytes, slot.saturating_mul(4), *copy);
            }
        })?;
        list.push((table.saturating_add(number).checked_rem(pointers).unwrap_or(0), low32(primary.0)));
    }
    create(txn, double, kind, |bytes| {
        for (slot, primary) in &list {
            put_le32(bytes, index(*slot).saturating_mul(4), *primary);
        }
    })?;
    resize.map_mut().fill(0);
    put_le32(resize.map_mut(), 13 * 4, low32(double.0));
    // Each of these blocks is counted as the whole cluster that it takes, shared or not.
    let per_cluster = i64::from(geometry.blocks_per_cluster());
    resize.set_blocks_raw(0).map_err(|defect| defect.at(Place::Inode(InodeNumber::RESIZE)))?;
    inode::change_blocks(txn, resize, blocks.saturating_mul(per_cluster))
}

/// The journal: an empty log in one run of blocks where possible, in the middle of the filesystem.
pub fn create_journal(
    txn: &mut dyn Transaction,
    parameters: &Parameters,
    journal: JournalParameters,
) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    let mut file = fresh_inode(txn, InodeNumber::JOURNAL, parameters);
    file.set_mode(HIDDEN_MODE);
    file.set_links(1);
    map::initialise(&mut file, extents(txn))?;
    let middle = GroupNumber(geometry.group_count() / 2);
    let goal = if geometry.group_count() > 1 { geometry.group_start(middle) } else { BlockNumber(0) };
    let first = fill_with_blocks(txn, &mut file, goal, journal.blocks, parameters)?;

    let mut log = JournalSuperblock::new(geometry.block_size(), journal.blocks, 1);
    log.s_uuid = parameters.identity.uuid;
    log.s_nr_users.set(1);
    log.s_num_fc_blks.set(journal.fast_commit_blocks);
    let written = create(txn, first, BlockKind::Journal, |bytes| log.write_to_prefix(bytes).is_ok())?;
    if !written {
        return Err(Defect::Truncated { what: "journal superblock" }.at(Place::JournalBlock(0)));
    }
    inode::write_over(txn, &file)?;
    let map = *file.view().map();
    let size = file.view().size();
    group::update_superblock(txn, |superblock| {
        superblock.s_journal_inum.set(InodeNumber::JOURNAL.get());
        superblock.s_jnl_backup_type = superblock::JOURNAL_BACKUP_BLOCKS;
        let (words, _) = map.as_chunks::<4>();
        for (slot, word) in superblock.s_jnl_blocks.iter_mut().zip(words) {
            slot.set(u32::from_le_bytes(*word));
        }
        superblock.s_jnl_blocks[MAP_SIZE / 4].set(high32(size));
        superblock.s_jnl_blocks[MAP_SIZE / 4 + 1].set(low32(size));
        let clusters = journal.blocks.div_ceil(geometry.blocks_per_cluster().max(1));
        superblock.s_overhead_clusters.set(superblock.s_overhead_clusters.get().saturating_add(clusters));
    })
}

/// Gives a new file so many blocks, zeroed unless the target is known to be zero; the first of them.
fn fill_with_blocks(
    txn: &mut dyn Transaction,
    file: &mut Inode,
    goal: BlockNumber,
    count: u32,
    parameters: &Parameters,
) -> Result<BlockNumber> {
    let mut first = None;
    let (mut goal, mut done) = (goal, 0u32);
    while done < count {
        let left = u64::from(count.saturating_sub(done));
        let run = txn.allocate_blocks(BlockRequest { goal, wanted: left, owner: file.number() })?;
        let run = BlockRun { length: run.length.min(left), ..run };
        map::insert(txn, file, LogicalBlock(done), run, false)?;
        if !parameters.target_is_zero {
            txn.zero_data(run)?;
        }
        first = first.or(Some(run.start));
        goal = run.end().unwrap_or_default();
        done = done.saturating_add(low32(run.length));
    }
    file.set_size(u64::from(count) << txn.layout().geometry.block_bits());
    first.ok_or_else(|| Error::Invalid("a hidden file needs at least one block".to_owned()))
}

/// The orphan file: blocks of empty slots.
pub(super) fn create_orphan_file(txn: &mut dyn Transaction, parameters: &Parameters) -> Result<()> {
    let number = txn.allocate_inode(GroupNumber(0), false)?;
    let mut file = fresh_inode(txn, number, parameters);
    file.set_mode(HIDDEN_MODE);
    file.set_links(1);
    // The generation only has to differ from filesystem to filesystem; derived, it is the same for the same inputs.
    file.set_generation(crc32c(u32::MAX, &parameters.identity.hash_seed));
    map::initialise(&mut file, extents(txn))?;
    fill_with_blocks(txn, &mut file, BlockNumber(0), parameters.orphan_file_blocks, parameters)?;
    let owner = file.owner();
    let runs: Vec<BlockRun> = map::segments(txn, &file, LogicalBlock(0))
        .map(|segment| Ok(segment?.run()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    for block in runs.into_iter().flat_map(BlockRun::iter) {
        create(txn, block, BlockKind::Orphan(owner), orphan::create)?
            .map_err(|defect| defect.at(Place::OrphanBlock(block)))?;
    }
    inode::write_over(txn, &file)?;
    group::update_superblock(txn, |superblock| superblock.s_orphan_file_inum.set(number.get()))
}

/// The block of multi-mount protection, saying that nobody has the filesystem mounted.
pub(super) fn create_mmp_block(txn: &mut dyn Transaction, parameters: &Parameters) -> Result<()> {
    let goal = txn.layout().geometry.group_start(GroupNumber(0));
    let block = txn.allocate_blocks(BlockRequest { goal, wanted: 1, owner: InodeNumber::ROOT })?.start;
    create(txn, block, BlockKind::Mmp, |bytes| {
        let mmp = MmpBlock::create(bytes)?;
        mmp.mmp_time.set(parameters.time.max(0).cast_unsigned());
        mmp.mmp_check_interval.set(parameters.mmp_interval);
        Ok::<(), Defect>(())
    })?
    .map_err(|defect| defect.at(Place::MmpBlock(block)))?;
    group::update_superblock(txn, |superblock| {
        superblock.s_mmp_block.set(block.0);
        superblock.s_mmp_update_interval.set(parameters.mmp_interval);
    })
}
