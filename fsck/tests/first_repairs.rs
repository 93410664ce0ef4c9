//! Damage to superblock and descriptors: found, put right, and not found again.

use std::sync::Arc;

use ext4kit_format::create::write_backups;
use ext4kit_format::disk::features::{Compat, Incompat, RoCompat};
use ext4kit_format::disk::group_desc::GroupFlags;
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::image::Image;
use ext4kit_format::num::index;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::txn::{BlockKind, Transaction};
use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber};
use ext4kit_fsck::finding::{Finding, Problem};
use ext4kit_fsck::opening::{self, Opened};
use ext4kit_fsck::repairs::jobs::Jobs;
use ext4kit_fsck::repairs::superblock::{Ground, Wanted};
use ext4kit_fsck::repairs::{Decision, Judge, groups, repair, superblock};
use ext4kit_fsck::{Options, check};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::{filesystem, oracle};

fn made(blocks: u64, changes: &str) -> MemoryStore {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(blocks, 1024, changes));
    filesystem::commit_clean(&store, &mut overlay);
    MemoryStore::clone(&store)
}

fn findings(store: &MemoryStore) -> Vec<Finding> {
    let mut found = Vec::new();
    check(Arc::new(store.clone()), &Options::default(), &mut |finding| found.push(finding))
        .expect("it opens");
    found
}

fn codes(findings: &[Finding]) -> Vec<u16> {
    findings.iter().map(Finding::code).collect()
}

/// The last free blocks of the range by the bitmaps of a filesystem whose bitmaps are sound.
fn free_blocks(opened: &Opened) -> impl FnMut(Wanted) -> Option<BlockNumber> + use<> {
    let geometry = opened.source.layout().geometry.clone();
    let mut used = vec![true; index(u32::try_from(geometry.blocks_count()).unwrap())];
    for (group, descriptor) in geometry.groups().zip(&opened.groups) {
        let bitmap = opened.source.block(descriptor.block_bitmap).unwrap();
        for bit in 0..geometry.group_clusters(group) {
            let block = index(u32::try_from(geometry.block_of_bit(group, bit).0).unwrap());
            let written = !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT);
            used[block] = written && bitmap[index(bit / 8)] >> (bit % 8) & 1 == 1;
        }
    }
    move |wanted| {
        let length = usize::try_from(wanted.blocks).unwrap();
        let first = usize::try_from(wanted.within.start.0).unwrap();
        let end = first + usize::try_from(wanted.within.length).unwrap();
        let start = (first..=end.checked_sub(length)?)
            .rev()
            .find(|at| used[*at..at + length].iter().all(|used| !used))?;
        used[start..start + length].fill(true);
        Some(BlockNumber(start as u64))
    }
}

/// Puts right what the first stage finds.
fn repaired(store: &MemoryStore) -> MemoryStore {
    let store = Arc::new(store.clone());
    let found = findings(&store);
    let mut opened = opening::open(Arc::clone(&store) as Arc<dyn Store>, &Options::default()).unwrap();
    let mut free = free_blocks(&opened);
    for finding in found.iter().filter(|finding| finding.verdict().repair.is_some()) {
        let mut ground = Ground { superblock: &opened.superblock, groups: &opened.groups, free: &mut free };
        let overlay = &mut opened.source.overlay;
        match &finding.problem {
            Problem::Superblock(_) => superblock::apply(finding, overlay, &mut ground).unwrap(),
            Problem::Group(_) => groups::apply(finding, overlay, &mut ground).unwrap(),
            _ => {}
        }
    }
    if found.iter().any(superblock::outdates_backups) {
        write_backups(&mut opened.source.overlay).unwrap();
    }
    opened.refresh().unwrap();
    let overlay = &mut opened.source.overlay;
    for at in overlay.seal().unwrap() {
        let change = overlay.change(at).unwrap().unwrap();
        store.write_at(overlay.layout().geometry.byte_offset(at).unwrap(), &change.after).unwrap();
    }
    MemoryStore::clone(&store)
}

/// Damage that leaves nothing for later passes.
fn assert_put_right(what: &str, damaged: &MemoryStore, wanted: &[u16]) {
    assert_eq!(codes(&findings(damaged)), wanted, "{what}");
    let repaired = repaired(damaged);
    assert_eq!(codes(&findings(&repaired)), [0u16; 0], "{what}, after the repair");
    oracle::assert_clean(&repaired);
}

/// Damage whose repair leaves bitmaps and counts to the last pass.
fn assert_place_found(what: &str, damaged: &MemoryStore, wanted: &[u16]) -> MemoryStore {
    let early = |store: &MemoryStore| -> Vec<u16> {
        codes(&findings(store)).into_iter().filter(|code| *code < 300).collect()
    };
    assert_eq!(early(damaged), wanted, "{what}");
    let repaired = repaired(damaged);
    assert_eq!(early(&repaired), [0u16; 0], "{what}, after the repair");
    repaired
}

#[test]
fn fields_of_the_superblock() {
    type Change = fn(&mut Superblock);
    let changes: [(u16, Change); 14] = [
        (103, |to| to.s_inodes_count.set(4000)),
        (104, |to| to.s_reserved_gdt_blocks.set(9999)),
        (104, |to| to.s_first_ino.set(3)),
        (104, |to| to.s_log_groups_per_flex = 77),
        (104, |to| to.s_first_data_block.set(0)),
        (104, |to| to.s_clusters_per_group.set(5)),
        (104, |to| to.s_log_cluster_size.set(7)),
        (104, |to| to.s_desc_size.set(65)),
        (104, |to| to.s_checksum_type = 2),
        (104, |to| to.set_reserved_blocks_count(80_000)),
        (111, |to| to.s_min_extra_isize.set(7)),
        (112, |to| to.s_want_extra_isize.set(999)),
        (127, |to| to.s_journal_uuid = [0x11; 16]),
        (128, |to| to.s_overhead_clusters.set(90_000)),
    ];
    let sound = made(81920, "");
    for (at, (code, change)) in changes.into_iter().enumerate() {
        assert_put_right(&format!("change {at}"), &Damage::to(&sound).superblock(change).finish(), &[code]);
    }
}

#[test]
fn features_that_exclude_or_need_each_other() {
    let switch = |store: &MemoryStore, change: fn(&mut ext4kit_format::disk::features::Features)| {
        let mut bytes = [0; 1024];
        store.read_at(1024, &mut bytes).unwrap();
        let mut superblock = Superblock::parse(&bytes).unwrap();
        let mut features = superblock.features();
        change(&mut features);
        superblock.set_features(features);
        superblock.refresh_checksum();
        let store = store.clone();
        store.write_at(1024, zerocopy::IntoBytes::as_bytes(&superblock)).unwrap();
        store
    };
    let sound = made(16384, "");
    let damaged = switch(&sound, |features| features.ro_compat.insert(RoCompat::GDT_CSUM));
    assert_put_right("both checksums", &damaged, &[108]);
    let (plain, mut overlay) =
        filesystem::filesystem(&filesystem::parameters(16384, 1024, "^metadata_csum ^64bit"));
    filesystem::commit_clean(&plain, &mut overlay);
    let damaged = switch(&plain, |features| features.incompat.insert(Incompat::CSUM_SEED));
    assert_put_right("a seed without checksums", &damaged, &[110]);
    let damaged = switch(&sound, |features| features.compat.remove(Compat::RESIZE_INODE));
    let found = codes(&findings(&damaged));
    assert!(found.starts_with(&[105, 107]), "{found:?}");
    assert_place_found("reserved blocks without resize_inode", &damaged, &[105, 107]);
}

/// What the original revision fixes is nowhere stored: a later one without it would have inodes of no size.
#[test]
fn a_later_revision_has_what_the_first_one_fixes() {
    let Some(store) = oracle::mke2fs(4 << 20, &["-r", "0", "-b", "1024"]) else { return };
    let damaged = Damage::to(&store)
        .superblock(|to| {
            to.s_feature_ro_compat.set(RoCompat::LARGE_FILE.bits());
            to.s_inode_size.set(0);
            to.s_first_ino.set(0);
        })
        .finish();
    assert_eq!(codes(&findings(&damaged)).first(), Some(&113));
    let repaired = repaired(&damaged);
    assert!(!codes(&findings(&repaired)).contains(&113));
    oracle::assert_clean(&repaired);
}

#[test]
fn a_lost_primary_superblock_and_one_wrong_bit() {
    let sound = made(81920, "");
    let damaged = sound.clone();
    damaged.write_at(1024, &[0; 1024]).unwrap();
    assert_put_right("zeroes", &damaged, &[101]);
    let damaged = sound.clone();
    let mut byte = [0];
    damaged.read_at(1024 + 0x28, &mut byte).unwrap();
    damaged.write_at(1024 + 0x28, &[byte[0] ^ 4]).unwrap();
    let mut wanted = vec![126];
    assert_put_right("one bit", &damaged, &wanted);
    wanted[0] = 125;
    let damaged = sound.clone();
    damaged.write_at(1024 + 0x3fc, &[1, 2, 3, 4]).unwrap();
    assert_put_right("the checksum", &damaged, &wanted);
}

#[test]
fn damaged_backups_are_noted_and_written_again() {
    let sound = made(81920, "");
    let damaged = sound.clone();
    damaged.write_at(8193 * 1024 + 0x78, &[0xde, 0xad]).unwrap();
    assert_put_right("a copy of the superblock", &damaged, &[129]);
    let damaged = sound.clone();
    damaged.write_at(8194 * 1024, &[0x5a; 1024]).unwrap();
    assert_put_right("a copy of the descriptors", &damaged, &[129]);
}

#[test]
fn the_protection_block() {
    let sound = made(8192, "mmp");
    let at = Image::open(Arc::new(sound.clone())).unwrap().superblock().s_mmp_block.get();
    let damaged = sound.clone();
    damaged.write_at(at * 1024, &[0x12; 8]).unwrap();
    assert_put_right("its magic", &damaged, &[117]);
    let damaged = Damage::to(&sound).superblock(|to| to.s_mmp_block.set(99_999)).finish();
    assert_place_found("its place", &damaged, &[116]);
}

#[test]
fn the_resize_inode() {
    let sound = made(81920, "");
    let damaged =
        Damage::to(&sound).inode(InodeNumber::RESIZE, |inode| inode.map_mut()[52..56].fill(0xff)).finish();
    let repaired = assert_place_found("its map", &damaged, &[107]);
    assert!(codes(&findings(&repaired)).iter().all(|code| *code >= 900), "only a block is used anew");
    // One wrong pointer costs nothing else.
    let geometry = Image::open(Arc::new(sound.clone())).unwrap().layout().geometry.clone();
    let list = geometry.superblock_block().0 + 1 + u64::from(geometry.leading_descriptor_blocks());
    let kind = BlockKind::IndirectBlock(InodeNumber::RESIZE);
    let damaged = Damage::to(&sound).block(BlockNumber(list), kind, |bytes| bytes[0] ^= 0xff).finish();
    assert_put_right("a pointer", &damaged, &[107]);
}

#[test]
fn descriptors_from_copies_and_from_the_geometry() {
    let sound = made(81920, "^64bit");
    let damaged = sound.clone();
    damaged.write_at(2048 + 32 + 0x1e, &[0xff, 0xff]).unwrap();
    assert_place_found("a checksum", &damaged, &[204]);
    for changes in ["", "^flex_bg", "^metadata_csum"] {
        let sound = made(81920, changes);
        let damaged = sound.clone();
        damaged.write_at(2048, &[0; 128]).unwrap();
        let codes: &[u16] = &[210, 210];
        assert_place_found(changes, &damaged, codes);
        let sound = made(8000, changes);
        sound.write_at(2048, &[0xee; 64]).unwrap();
        assert_place_found(changes, &sound, &[211]);
    }
}

#[test]
fn places_of_bitmaps_and_tables() {
    let sound = made(81920, "");
    let damage = |change: fn(&mut ext4kit_format::disk::group_desc::GroupDescriptor)| {
        Damage::to(&sound).descriptor(GroupNumber(2), change).finish()
    };
    assert_put_right("block bitmap", &damage(|group| group.block_bitmap = BlockNumber(0)), &[201]);
    assert_put_right("inode bitmap", &damage(|group| group.inode_bitmap = BlockNumber(1 << 31)), &[202]);
    assert_put_right("inode table", &damage(|group| group.inode_table = BlockNumber(81919)), &[203]);
    assert_put_right("unused inodes", &damage(|group| group.unused_inodes = 0xffff), &[206]);
}

#[test]
fn metadata_over_other_metadata_goes_where_a_copy_says() {
    type Change = fn(&mut ext4kit_format::disk::group_desc::GroupDescriptor);
    let sound = made(81920, "");
    let changes: [(u16, Change); 3] = [
        (201, |group| group.block_bitmap = BlockNumber(2)),
        (202, |group| group.inode_bitmap = group.block_bitmap),
        (203, |group| group.inode_table = BlockNumber(group.inode_table.0 + 1)),
    ];
    for (code, change) in changes {
        let damaged = Damage::to(&sound).descriptor(GroupNumber(2), change).finish();
        assert_put_right("the second copy knows", &damaged, &[code]);
    }
}

#[test]
fn metadata_over_other_metadata_moves_where_no_copy_is() {
    let sound = made(8000, "");
    let damaged =
        Damage::to(&sound).descriptor(GroupNumber(0), |group| group.block_bitmap = BlockNumber(2)).finish();
    let repaired = assert_place_found("a bitmap in the descriptors", &damaged, &[208]);
    let mut left = codes(&findings(&repaired));
    left.dedup();
    assert!(left.iter().all(|code| (900..1000).contains(code)), "only bitmaps are left: {left:?}");
}

/// Nothing knows where the table was: the only one that e2fsck could do is to make an empty one.
#[test]
fn a_table_that_is_lost_is_said_to_be() {
    let sound = made(8000, "");
    let image = Image::open(Arc::new(sound.clone())).unwrap();
    let table = {
        let mut damage = Damage::to(&sound);
        ext4kit_format::tree::group::read_descriptor(damage.transaction(), GroupNumber(0))
            .unwrap()
            .inode_table
    };
    let length = u64::from(image.layout().geometry.inode_table_blocks());
    let damaged =
        Damage::to(&sound).descriptor(GroupNumber(0), |group| group.inode_table = BlockNumber(0)).finish();
    damaged.write_at(table.0 * 1024, &vec![0x99; usize::try_from(length * 1024).unwrap()]).unwrap();
    let early: Vec<u16> = codes(&findings(&damaged)).into_iter().filter(|code| *code < 300).collect();
    assert!(early.contains(&212), "{early:?}");
    let repaired = repaired(&damaged);
    assert!(!codes(&findings(&repaired)).contains(&212));
}

struct Yes;

impl Judge for Yes {
    fn judge(&mut self, _finding: &Finding) -> Decision {
        Decision::Repair
    }
}

/// Everything put right by the driver, and written.
fn wholly_repaired(store: &MemoryStore) -> MemoryStore {
    let store = Arc::new(store.clone());
    let mut opened = opening::open(Arc::clone(&store) as Arc<dyn Store>, &Options::default()).unwrap();
    repair(&mut opened, 1_700_000_000, Jobs::default(), &mut Yes).unwrap();
    let overlay = &mut opened.source.overlay;
    for at in overlay.seal().unwrap() {
        let change = overlay.change(at).unwrap().unwrap();
        store.write_at(overlay.layout().geometry.byte_offset(at).unwrap(), &change.after).unwrap();
    }
    MemoryStore::clone(&store)
}

/// The names in the root, and how many inodes are in use.
fn what_is_there(store: &MemoryStore) -> (u64, Vec<Vec<u8>>) {
    let summary = check(Arc::new(store.clone()), &Options::default(), &mut |_| {}).unwrap();
    let mut damage = Damage::to(store);
    let txn = damage.transaction();
    let root = ext4kit_format::tree::inode::read(txn, InodeNumber::ROOT).unwrap();
    let mut names = Vec::new();
    ext4kit_format::tree::dir::for_each(txn, &root, &mut |listed| {
        names.push(listed.name.to_vec());
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .unwrap();
    (summary.inodes_used, names)
}

/// Whatever befalls superblock and descriptors of a filesystem with copies: it is sound after the repair, and where
/// checksums tell what is right, nothing of its files is lost.
#[test]
fn seeded_damage_in_front_costs_no_file() {
    for (sound, name) in [(made(81920, ""), "ext4"), (made(81920, "^metadata_csum"), "without checksums")] {
        let wanted = what_is_there(&sound);
        let mut random = ext4kit_testkit::seed::Random::of("seeded_damage_in_front_costs_no_file");
        for round in 0..ext4kit_testkit::seed::mutants(60) {
            let damaged = sound.clone();
            let count = 1 + random.usize(..8);
            for _ in 0..count {
                // Superblock and descriptors fill blocks 1 and 2; checksummed ones are damaged whole at times.
                let length = if random.u8(..4) == 0 { 512 } else { 1 + random.usize(..8) };
                let at = 1024 + random.u64(..2048 - 512);
                let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                damaged.write_at(at, &bytes).unwrap();
            }
            if let Err(error) = opening::open(Arc::new(damaged.clone()), &Options::default()) {
                // Unknown features that no checksum contradicts have to be believed.
                assert!(name != "ext4", "{name}, round {round}: {error}");
                continue;
            }
            let repaired = wholly_repaired(&damaged);
            let left: Vec<u16> = findings(&repaired)
                .iter()
                .filter(|finding| finding.verdict().grade.is_error())
                .map(Finding::code)
                .collect();
            assert_eq!(left, [0u16; 0], "{name}, round {round}");
            // Without checksums a wrong number can be as good as the right one.
            if name == "ext4" {
                assert_eq!(what_is_there(&repaired), wanted, "{name}, round {round}");
                oracle::assert_clean(&repaired);
            }
        }
    }
}
