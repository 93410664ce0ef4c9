//! Directory entries: kernel bytes, and edits against a map.

use proptest::prelude::*;

use super::*;

// See testdata/disk/README.md.
const ROOT_LEAF: &[u8] = include_bytes!("../../../testdata/disk/dir_root_leaf.bin");
const EMPTY_LEAF: &[u8] = include_bytes!("../../../testdata/disk/dir_empty_leaf.bin");
const HTREE_ROOT: &[u8] = include_bytes!("../../../testdata/disk/htree_root.bin");
const ROOT_SEED: u32 = 0x2ff9_fb1f;

const PLAIN: EntryFormat = EntryFormat { block_size: 1024, file_type: true, hashed: false };
const HASHED: EntryFormat = EntryFormat { block_size: 1024, file_type: true, hashed: true };
const UNTYPED: EntryFormat = EntryFormat { block_size: 1024, file_type: false, hashed: false };

fn number(number: u32) -> InodeNumber {
    InodeNumber::new(number).unwrap()
}

fn regular(inode: u32, name: &[u8]) -> NewEntry<'_> {
    NewEntry { inode: number(inode), file_type: FileType::REGULAR, name, hash: None }
}

fn listed(format: EntryFormat, area: &[u8]) -> Vec<(u32, Vec<u8>)> {
    format
        .entries(area)
        .map(Result::unwrap)
        .filter_map(|entry| Some((entry.inode?.get(), entry.name.to_vec())))
        .collect()
}

#[test]
fn a_kernel_written_leaf_reads_and_checks() {
    let area = leaf_area(ROOT_LEAF, true);
    let names: Vec<_> = PLAIN.entries(area).map(|entry| entry.unwrap().name).collect();
    assert_eq!(names, [b".".as_slice(), b"..", b"lost+found", b"d", b"big", b"sparse"]);
    let found = PLAIN.find(area, b"d").unwrap().unwrap();
    let wanted = (0x2c, Some(number(13)), FileType::DIRECTORY);
    assert_eq!((found.offset, found.inode, FileType(2)), wanted, "{found:?}");
    assert_eq!(PLAIN.find(area, b"D").unwrap(), None);
    assert_eq!(verify_checksum(ROOT_LEAF, ROOT_SEED), Ok(()));
    assert_eq!(verify_checksum(EMPTY_LEAF, 0x24fe_82e2), Ok(()));
    assert!(listed(PLAIN, leaf_area(EMPTY_LEAF, true)).is_empty());
}

#[test]
fn empty_leaf_is_rebuilt_to_the_byte() {
    let mut block = vec![0xff; 1024];
    PLAIN.clear(leaf_area_mut(&mut block, true)).unwrap();
    write_tail(&mut block).unwrap();
    refresh_checksum(&mut block, 0x24fe_82e2).unwrap();
    assert_eq!(block, EMPTY_LEAF);
}

#[test]
fn root_leaf_is_rebuilt_to_the_byte() {
    let mut block = vec![0; 1024];
    write_tail(&mut block).unwrap();
    let area = leaf_area(ROOT_LEAF, true);
    let entries = PLAIN.entries(area).filter_map(|entry| entry.unwrap().to_new());
    PLAIN.pack(leaf_area_mut(&mut block, true), entries).unwrap();
    refresh_checksum(&mut block, ROOT_SEED).unwrap();
    assert_eq!(block, ROOT_LEAF);
}

// A linear directory's block that becomes the root of a hash tree keeps the bytes of its tail; taking it for a leaf would
// "repair" the index into nonsense. The real root has no such bytes, so the test plants them.
#[test]
fn stale_tail_bytes_of_an_index_root_are_not_a_tail() {
    let mut block = HTREE_ROOT.to_vec();
    write_tail(&mut block).unwrap();
    assert_eq!(tail_offset(&block), None);
    assert_eq!(tail_offset(ROOT_LEAF), Some(1012));
    assert!(verify_checksum(&block, 0).is_err());
}

#[test]
fn tails_need_every_field() {
    for at in [1012, 1016, 1018, 1019] {
        let mut block = ROOT_LEAF.to_vec();
        block[at] ^= 1;
        assert_eq!(tail_offset(&block), None, "byte {at}");
    }
}

#[test]
fn record_lengths_of_64k_blocks() {
    for length in [12, 0xfffc, 65536] {
        let stored = encode_rec_len(length, 65536).unwrap();
        assert_eq!(decode_rec_len(stored, 65536), length);
    }
    assert_eq!(encode_rec_len(65536, 65536), Ok(0xffff));
    assert_eq!(decode_rec_len(0, 65536), 65536);
    assert_eq!(decode_rec_len(0, 4096), 0);
    assert!(encode_rec_len(14, 4096).is_err() && encode_rec_len(4100, 4096).is_err());
}

#[test]
fn bad_records_are_found_at_their_offsets() {
    let first_bad = |at: usize, value: &[u8]| {
        let mut area = leaf_area(ROOT_LEAF, true).to_vec();
        area[at..at + value.len()].copy_from_slice(value);
        let bad: Vec<_> = PLAIN.entries(&area).filter_map(Result::err).collect();
        assert_eq!(bad.len(), 1, "{bad:?}");
        bad[0].clone()
    };
    let range = |field, value, least, most| Defect::Range { field, value, least, most };
    let short = first_bad(16, &8u16.to_le_bytes());
    assert_eq!((short.offset, short.rec_len), (12, None));
    assert_eq!(short.defect, range("rec_len", 8, 12, 1000));
    assert!(matches!(first_bad(16, &13u16.to_le_bytes()).defect, Defect::Contradiction(_)));
    assert_eq!(first_bad(16, &1004u16.to_le_bytes()).defect, range("rec_len", 1004, 12, 1000));
    let close = first_bad(16, &992u16.to_le_bytes());
    assert!(matches!(close.defect, Defect::Contradiction(_)), "8 bytes are left");
    let name = first_bad(18, &[5]);
    assert_eq!((name.offset, name.rec_len), (12, Some(12)), "the walk goes on");
    assert_eq!(name.defect, range("name_len", 5, 1, 4));
    assert_eq!(first_bad(18, &[0]).defect, range("name_len", 0, 1, 4));
    let untyped: Vec<_> = UNTYPED.entries(leaf_area(ROOT_LEAF, true)).filter_map(Result::err).collect();
    assert_eq!(untyped.len(), 6, "a file type read as the high byte of a length");
}

#[test]
fn removing_joins_the_record_before() {
    let mut area = leaf_area(ROOT_LEAF, true).to_vec();
    PLAIN.remove(&mut area, 0x2c).unwrap();
    let before = PLAIN.find(&area, b"lost+found").unwrap().unwrap();
    assert_eq!((before.offset, before.rec_len), (24, 32));
    assert!(PLAIN.remove(&mut area, 0x2c).is_err(), "no entry begins there any more");
    assert_eq!(PLAIN.insert(&mut area, &regular(99, b"new!")).unwrap(), Some(0x2c));
    PLAIN.remove(&mut area, 0).unwrap();
    assert_eq!(PLAIN.entries(&area).next().unwrap().unwrap().inode, None);
    assert_eq!(PLAIN.insert(&mut area, &regular(98, b"x")).unwrap(), Some(0));
    PLAIN.set_target(&mut area, 0, (number(97), FileType::FIFO)).unwrap();
    assert_eq!(PLAIN.find(&area, b"x").unwrap().unwrap().file_type, FileType::FIFO);
}

#[test]
fn hashes_follow_names_but_not_dots() {
    let mut area = vec![0; 1012];
    HASHED.write_dots(&mut area, number(20), number(2)).unwrap();
    assert!(HASHED.insert(&mut area, &regular(5, b"abcde")).is_err(), "needs its hash");
    let hash = Some(StoredHash { hash: 0x1234_5678, minor: 9 });
    let new = NewEntry { hash, ..regular(5, b"abcde") };
    assert_eq!(HASHED.needed(b"abcde"), 24);
    assert_eq!(HASHED.insert(&mut area, &new).unwrap(), Some(24));
    let found = HASHED.find(&area, b"abcde").unwrap().unwrap();
    assert_eq!(found.hash, hash);
    assert_eq!(area[24 + 16..24 + 20], 0x1234_5678u32.to_le_bytes());
    assert_eq!(HASHED.find(&area, b"..").unwrap().unwrap().hash, None);
    area[28..30].copy_from_slice(&988u16.to_le_bytes());
    HASHED.pack(&mut area[..28], [regular(5, b".")]).unwrap();
    let mut cut = vec![0; 16];
    PLAIN.pack(&mut cut, [regular(5, b"abcde")]).unwrap();
    assert!(matches!(HASHED.entries(&cut).next(), Some(Err(BadEntry { rec_len: Some(16), .. }))));
}

#[test]
fn inline_directories_grow_into_the_value() {
    let mut i_block = [0; 60];
    set_inline_parent(&mut i_block, number(2)).unwrap();
    PLAIN.clear(&mut i_block[INLINE_ENTRIES]).unwrap();
    for at in 0..4u32 {
        let placed = PLAIN.insert(&mut i_block[INLINE_ENTRIES], &regular(at + 12, &[b'a'; 4])).unwrap();
        assert_eq!(placed, Some(at as usize * 12));
    }
    assert_eq!(PLAIN.insert(&mut i_block[INLINE_ENTRIES], &regular(30, b"12345")).unwrap(), None);
    assert_eq!(inline_parent(&i_block), Some(number(2)));
    let mut value = vec![0; 16];
    PLAIN.extend(&mut value, 0).unwrap();
    assert_eq!(PLAIN.insert(&mut value, &regular(30, b"12345")).unwrap(), Some(0));
    value.resize(32, 0xee);
    PLAIN.extend(&mut value, 16).unwrap();
    assert_eq!(PLAIN.insert(&mut value, &regular(31, b"123456")).unwrap(), Some(16));
    assert_eq!(listed(PLAIN, &value), [(30, b"12345".to_vec()), (31, b"123456".to_vec())]);
}

#[test]
fn modes_have_types() {
    assert_eq!(FileType::from_mode(0o100_644), FileType::REGULAR);
    assert_eq!(FileType::from_mode(0o040_755), FileType::DIRECTORY);
    assert_eq!(FileType::from_mode(0o120_777), FileType::SYMLINK);
    assert_eq!(FileType::from_mode(0o644), FileType::UNKNOWN);
}

proptest! {
    // Insert and remove by turns; the area always holds exactly the model's names and no byte is lost between records.
    #[test]
    fn editing_follows_a_map(
        steps in prop::collection::vec((any::<bool>(), 0u8..40, 1usize..60), 1..120),
        which in 0usize..3,
    ) {
        let format = [PLAIN, HASHED, UNTYPED][which];
        let mut area = vec![0x77; 1012];
        format.clear(&mut area).unwrap();
        let mut model = std::collections::BTreeMap::new();
        for (add, key, length) in steps {
            if add && !model.contains_key(&key) {
                let name = vec![b'A' + key; length];
                let hash = Some(StoredHash { hash: u32::from(key), minor: 7 });
                let new = NewEntry { hash, ..regular(u32::from(key) + 11, &name) };
                if format.insert(&mut area, &new).unwrap().is_some() {
                    model.insert(key, name);
                } else {
                    let used: usize = model.values().map(|name| format.needed(name)).sum();
                    prop_assert!(used > 100, "an area with room refused an entry");
                }
            } else if let Some(name) = model.remove(&key) {
                let at = format.find(&area, &name).unwrap().unwrap().offset;
                format.remove(&mut area, at).unwrap();
            }
            let mut found = listed(format, &area);
            found.sort();
            let mut wanted: Vec<_> =
                model.iter().map(|(key, name)| (u32::from(*key) + 11, name.clone())).collect();
            wanted.sort();
            prop_assert_eq!(found, wanted);
            let total: usize = format.entries(&area).map(|entry| entry.unwrap().rec_len).sum();
            prop_assert_eq!(total, area.len());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut area in prop::collection::vec(any::<u8>(), 0..200), hashed: bool, big: bool) {
        // Small lengths, so that walks get somewhere.
        for at in (5..area.len()).step_by(4) { area[at] &= 0; }
        let block_size = if big { 65536 } else { 1024 };
        let format = EntryFormat { block_size, file_type: true, hashed };
        prop_assert!(format.entries(&area).count() <= area.len() / 12 + 1);
        let hash = Some(StoredHash { hash: 1, minor: 1 });
        let _ = format.insert(&mut area, &NewEntry { hash, ..regular(3, b"abc") });
        let _ = format.remove(&mut area, 12);
        let _ = format.extend(&mut area, 24);
        let _ = verify_checksum(&area, 0);
    }
}

// The directory that debugfs 1.47.0 (`mkdir d` on an inline_data filesystem) made: i_block holds the parent and one
// unused record.
#[test]
fn a_new_inline_directory_is_as_debugfs_makes_it() {
    let mut real = [0; 60];
    real[0] = 2;
    real[8] = 0x38;
    assert_eq!(inline_parent(&real), Some(InodeNumber::ROOT));
    assert!(listed(PLAIN, &real[INLINE_ENTRIES]).is_empty());
    let mut made = [0xff; 60];
    set_inline_parent(&mut made, InodeNumber::ROOT).unwrap();
    PLAIN.clear(&mut made[INLINE_ENTRIES]).unwrap();
    assert_eq!(made, real);
}
