//! Bad blocks: the list is kept, and what lies in them moves.

mod calls;

use calls::fsck;
use ext4kit_format::store::MemoryStore;
use ext4kit_format::tree::{file, inode, map};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{BlockNumber, InodeNumber, LogicalBlock};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{filesystem, oracle};

const LENGTH: usize = 20 * 1024;

fn contents() -> Vec<u8> {
    (0..LENGTH).map(|at| u8::try_from(at / 7 % 251).unwrap()).collect()
}

/// A filesystem with one file of twenty blocks, and where its blocks lie.
fn with_file(changes: &str) -> (MemoryStore, InodeNumber, Vec<BlockNumber>) {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(8192, 1024, changes));
    let mut made = filesystem::fresh(&mut overlay, 0o100_644);
    file::write(&mut overlay, &mut made, 0, &contents()).unwrap();
    filesystem::put_in_root(&mut overlay, "file", &made);
    filesystem::commit_clean(&store, &mut overlay);
    let store = MemoryStore::clone(&store);
    let blocks = blocks_of(&store, made.number());
    (store, made.number(), blocks)
}

fn blocks_of(store: &MemoryStore, number: InodeNumber) -> Vec<BlockNumber> {
    let mut damage = Damage::to(store);
    let txn = damage.transaction();
    let inode = inode::read(txn, number).unwrap();
    let runs = map::segments(txn, &inode, LogicalBlock(0)).map(|segment| segment.unwrap().run().unwrap());
    runs.flat_map(ext4kit_format::BlockRun::iter).collect()
}

fn read(store: &MemoryStore, number: InodeNumber) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut damage = Damage::to(store);
    for block in blocks_of(store, number) {
        let mut one = vec![0; 1024];
        damage.transaction().read_data(block, &mut one).unwrap();
        bytes.extend(one);
    }
    bytes
}

fn list(image: &TempImage) -> Vec<BlockNumber> {
    let mut blocks = blocks_of(&image.load().unwrap(), InodeNumber::BAD_BLOCKS);
    blocks.sort();
    blocks
}

/// The program with a list in a file.
fn with_list(options: &[&str], blocks: &[u64], image: &TempImage) -> (i32, String, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines: Vec<String> = blocks.iter().map(ToString::to_string).collect();
    let text = lines.join("\n") + "\n";
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    fsck(&[options, &[path]].concat(), image)
}

#[test]
fn a_file_moves_off_a_bad_block_with_its_contents() {
    for changes in ["", "^extent", "^metadata_csum"] {
        let (store, file, blocks) = with_file(changes);
        let image = TempImage::of(&store).unwrap();
        let (bad, free) = (blocks[7], BlockNumber(8000));
        let (code, out, errors) = with_list(&["-y", "-l"], &[bad.0, free.0], &image);
        assert_eq!(code, 1, "{changes}: {out}{errors}");
        assert_eq!(list(&image), [bad, free], "{changes}");
        let after = image.load().unwrap();
        assert!(!blocks_of(&after, file).contains(&bad), "{changes}");
        assert_eq!(read(&after, file), contents(), "{changes}");
        oracle::assert_clean(&after);
        if let Some(run) = oracle::dumpe2fs(&after, &["-b"]) {
            assert_eq!(run.stdout, format!("{bad}\n{free}\n"), "{changes}");
        }
        let (code, out, _) = fsck(&["-fnv"], &image);
        assert_eq!(code, 0, "{out}");
        assert!(out.contains("           2 bad blocks\n"), "{out}");
    }
}

#[test]
fn lists_grow_are_replaced_and_are_searched_for() {
    let image = TempImage::of(&with_file("").0).unwrap();
    assert_eq!(with_list(&["-y", "-l"], &[8000, 8002], &image).0, 1);
    assert_eq!(with_list(&["-y", "-l"], &[8001], &image).0, 1);
    assert_eq!(list(&image), [8000, 8001, 8002].map(BlockNumber));
    assert_eq!(with_list(&["-y", "-L"], &[7999], &image).0, 1);
    assert_eq!(list(&image), [BlockNumber(7999)]);
    oracle::assert_clean(&image.load().unwrap());
    // A sound device has no bad block: with -k the list stays, without it ends.
    let (code, out, _) = fsck(&["-y", "-c", "-k"], &image);
    assert!(code <= 1, "{out}");
    assert!(out.contains("IMAGE: 0 bad blocks were found"), "{out}");
    assert_eq!(list(&image), [BlockNumber(7999)]);
    assert_eq!(fsck(&["-y", "-cc"], &image).0, 1);
    assert_eq!(list(&image), []);
    oracle::assert_clean(&image.load().unwrap());
}

#[test]
fn metadata_is_never_listed_and_nonsense_changes_nothing() {
    let image = TempImage::of(&with_file("").0).unwrap();
    let (code, out, _) = with_list(&["-y", "-l"], &[1, 8000], &image);
    assert_eq!(code, 1);
    assert!(
        out.contains("IMAGE: block 1 holds the filesystem's own metadata, and is not listed as bad"),
        "{out}"
    );
    assert_eq!(list(&image), [BlockNumber(8000)]);
    let before = std::fs::read(image.path()).unwrap();
    let (code, _, errors) = with_list(&["-y", "-l"], &[99_999], &image);
    assert_eq!(code, 8);
    assert!(errors.contains("bad block 99999 lies outside the filesystem"), "{errors}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "12\nmany\n").unwrap();
    let (code, _, errors) = fsck(&["-y", "-l", file.path().to_str().unwrap()], &image);
    assert_eq!(code, 8);
    assert!(errors.contains("`many` is no block"), "{errors}");
    assert!(before == std::fs::read(image.path()).unwrap());
}
