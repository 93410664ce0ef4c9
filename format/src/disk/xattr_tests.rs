//! Extended attributes: kernel bytes, and areas against a map.

use proptest::prelude::*;

use super::*;

// See testdata/disk/README.md.
const BLOCK: &[u8] = include_bytes!("../../../testdata/disk/xattr_block.bin");
const LARGE: &[u8] = include_bytes!("../../../testdata/disk/xattr_large_block.bin");
const INODE: &[u8] = include_bytes!("../../../testdata/disk/xattr_inode.bin");
const SEED: u32 = 0x12c4_76be;

fn attributes(area: Area) -> Vec<Attribute> {
    area.checked().unwrap().iter().map(Entry::to_attribute).collect()
}

#[test]
fn kernel_written_block_reads_checks_and_is_rebuilt_to_the_byte() {
    let area = Area::of_block(BLOCK).unwrap();
    let entries = area.checked().unwrap();
    let names: Vec<_> = entries.iter().map(|entry| full_name(entry.index, entry.name).unwrap()).collect();
    assert_eq!(names, ["user.é".as_bytes(), b"trusted.q"]);
    assert!(entries.iter().all(|entry| entry.hash_matches(0) && entry.value == Value::Here(&[b'z'; 300])));
    assert!(area.check_layout(true).is_empty());
    assert_eq!(verify_checksum(BLOCK, SEED, BlockNumber(9001)), Ok(()));
    assert!(verify_checksum(BLOCK, SEED, BlockNumber(9002)).is_err());

    let mut list = attributes(area);
    list.reverse();
    let mut rebuilt = vec![0xff; 1024];
    write_block(&mut rebuilt, &list, 1).unwrap();
    refresh_checksum(&mut rebuilt, SEED, BlockNumber(9001)).unwrap();
    assert_eq!(rebuilt, BLOCK);
    assert_eq!(needed(&list), 4 + 2 * 20 + 600);
}

#[test]
fn a_large_block_is_rebuilt_to_the_byte() {
    let mut rebuilt = vec![0; 4096];
    write_block(&mut rebuilt, &attributes(Area::of_block(LARGE).unwrap()), 1).unwrap();
    refresh_checksum(&mut rebuilt, 0x8cfa_74fc, BlockNumber(4203)).unwrap();
    assert_eq!(rebuilt, LARGE);
}

#[test]
fn inode_area_with_values_in_inodes_is_rebuilt_to_the_byte() {
    let area = Area::of_inode(INODE).unwrap();
    let list = attributes(area);
    assert_eq!(area.find(NameIndex::USER, b"a").unwrap().unwrap().value, Value::Here(b"v"));
    let huge = area.find(NameIndex::USER, b"huge").unwrap().unwrap();
    let inode = InodeNumber::new(0xbc9).unwrap();
    assert_eq!((huge.value, huge.hash), (Value::Inode { inode, size: 20000 }, 0x8d0b_6e83));
    // The value's own hash follows from the entry's, which is name hash turned by half, xor value hash.
    let value_hash = huge.hash ^ hash_name(b"huge").rotate_left(16);
    assert_eq!(hash_with_inode(b"huge", value_hash), huge.hash);
    assert!(huge.hash_matches(value_hash) && !huge.hash_matches(value_hash ^ 1));
    let mut rebuilt = vec![0xff; INODE.len()];
    write_inode_area(&mut rebuilt, &list).unwrap();
    assert_eq!(rebuilt, INODE);
    write_inode_area(&mut rebuilt, &[]).unwrap();
    assert!(Area::of_inode(&rebuilt).is_none());
}

#[test]
fn signed_hashes_are_accepted() {
    let mut block = BLOCK.to_vec();
    let signed = hash_value(hash_name_signed("é".as_bytes()), &[b'z'; 300]);
    assert_ne!(signed, hash("é".as_bytes(), &[b'z'; 300]));
    put_le32(&mut block, 0x2c, signed).unwrap();
    assert!(Area::of_block(&block).unwrap().checked().unwrap()[0].hash_matches(0));
    put_le32(&mut block, 0x2c, signed ^ 2).unwrap();
    assert!(!Area::of_block(&block).unwrap().checked().unwrap()[0].hash_matches(0));
}

#[test]
fn prefixes_go_both_ways() {
    for full in
        ["user.x", "trusted.a.b", "security.selinux", "system.data", "system.posix_acl_access", "gnu.author"]
    {
        let (index, name) = split_name(full.as_bytes()).unwrap();
        assert_eq!(full_name(index, name).unwrap(), full.as_bytes());
    }
    assert_eq!(split_name(b"system.posix_acl_default"), Some((NameIndex::POSIX_ACL_DEFAULT, b"".as_slice())));
    assert_eq!(split_name(b"user."), None);
    assert_eq!(split_name(b"other.x"), None);
    assert_eq!(full_name(NameIndex::ENCRYPTION, b"c"), None);
}

#[test]
fn contradictions_are_found() {
    let damaged = |at: usize, value: u32| {
        let mut block = BLOCK.to_vec();
        put_le32(&mut block, at, value).unwrap();
        Area::of_block(&block).and_then(|area| area.checked().map(|_| ())).unwrap_err()
    };
    let range = |field, value, least, most| Defect::Range { field, value, least, most };
    assert_eq!(damaged(0, 1), Defect::Magic { found: 1, wanted: MAGIC });
    assert_eq!(damaged(4, 0), range("h_refcount", 0, 1, 1024));
    assert_eq!(damaged(8, 2), range("h_blocks", 2, 1, 1));
    assert_eq!(damaged(0x28, 301), range("e_value_size", 301, 0, 300));
    assert_eq!(damaged(0x20, 0x0040_0102), range("e_value_offs", 0x40, 0x4c, 1024), "inside the list");
    assert_eq!(
        damaged(0x30, 0x0000_00c3),
        Defect::Contradiction("attribute name holds a zero byte".to_owned())
    );
    let full = [&BLOCK[..32], &[1; 992]].concat();
    let bad: Vec<_> = Area::of_block(&full).unwrap().entries().filter_map(Result::err).collect();
    assert_eq!(bad.last().unwrap().defect, CUT, "a list without an end");
}

#[test]
fn overlapping_and_unsorted_entries_are_found() {
    let mut block = BLOCK.to_vec();
    block[0x36..0x38].copy_from_slice(&[0xac, 0x01]);
    let found = Area::of_block(&block).unwrap().check_layout(true);
    assert_eq!(found.iter().map(|bad| bad.offset).collect::<Vec<_>>(), [0x20], "0x1ac + 300 reaches 0x2d8");
    let mut block = BLOCK.to_vec();
    block[0x35] = 0;
    let area = Area::of_block(&block).unwrap();
    assert_eq!(area.check_layout(true).iter().map(|bad| bad.offset).collect::<Vec<_>>(), [0x34]);
    assert!(area.check_layout(false).is_empty());
}

#[test]
fn blocks_with_an_entry_without_hash_are_not_shared() {
    assert_eq!(block_hash([5, 7]), (5u32 << 16) ^ 7);
    assert_eq!(block_hash([5, 0, 7]), 0);
}

fn any_attribute() -> impl Strategy<Value = Attribute> {
    let name = prop::collection::vec(1u8.., 1..20);
    let here = prop::collection::vec(any::<u8>(), 0..90).prop_map(NewValue::Here);
    let there = (1u32.., 0u32..100_000, any::<u32>()).prop_map(|(inode, size, entry_hash)| NewValue::Inode {
        inode: InodeNumber::new(inode).unwrap(),
        size,
        entry_hash,
    });
    (1u8..11, name, prop_oneof![3 => here, 1 => there]).prop_map(|(index, name, value)| Attribute {
        index: NameIndex(index),
        name,
        value,
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(mut list in prop::collection::vec(any_attribute(), 0..12), in_inode: bool) {
        list.sort_by(|a, b| sort_key(a.index, &a.name).cmp(&sort_key(b.index, &b.name)));
        list.dedup_by(|a, b| sort_key(a.index, &a.name) == sort_key(b.index, &b.name));
        let mut bytes = vec![0xff; 512];
        let header = if in_inode { INODE_HEADER } else { BLOCK_HEADER };
        let written = if in_inode {
            write_inode_area(&mut bytes, &list)
        } else {
            write_block(&mut bytes, &list, 3)
        };
        prop_assert_eq!(written.is_ok(), needed(&list) + header <= 512);
        if written.is_ok() {
            let area = if in_inode { Area::of_inode(&bytes) } else { Area::of_block(&bytes).ok() };
            prop_assert_eq!(area.is_none(), in_inode && list.is_empty());
            if let Some(area) = area {
                prop_assert_eq!(attributes(area), list);
                prop_assert!(area.check_layout(true).is_empty());
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), small: bool) {
        put_le32(&mut bytes, 0, MAGIC);
        put_le32(&mut bytes, 4, 1);
        put_le32(&mut bytes, 8, 1);
        if small {
            for at in (32..bytes.len()).step_by(4) { bytes[at] %= 9; }
        }
        for area in [Area::of_inode(&bytes), Area::of_block(&bytes).ok()].into_iter().flatten() {
            prop_assert!(area.entries().count() <= bytes.len() / 16 + 1);
            area.check_layout(true);
        }
        let _ = refresh_checksum(&mut bytes, 0, BlockNumber(1));
    }
}
