//! Filesystems whose superblock and descriptors are gone, found and rebuilt by the program.

mod calls;

use calls::fsck;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{filesystem, oracle};

fn made(blocks: u64, block_size: u32, changes: &str) -> MemoryStore {
    let parameters = filesystem::parameters(blocks, block_size, changes);
    let (store, mut overlay) = filesystem::filesystem(&parameters);
    filesystem::commit_clean(&store, &mut overlay);
    MemoryStore::clone(&store)
}

/// Nothing is left in front: superblock and descriptors are zeros.
fn beheaded(store: &MemoryStore) -> TempImage {
    let damaged = store.clone();
    damaged.write_at(0, &vec![0; 16384]).unwrap();
    TempImage::of(&damaged).unwrap()
}

#[test]
fn a_beheaded_filesystem_is_listed_and_rebuilt() {
    for (blocks, block_size, changes) in [
        (40_960, 1024, ""),
        (40_960, 1024, "^metadata_csum"),
        (70_000, 2048, "^flex_bg"),
        (131_072, 4096, ""),
    ] {
        let what = format!("{blocks} blocks of {block_size}, {changes}");
        let image = beheaded(&made(blocks, block_size, changes));
        let before = image.load().unwrap();
        let (code, out, _) = fsck(&["--find-super"], &image);
        assert_eq!(code, 0, "{what}");
        assert!(
            out.contains(&format!("{blocks} blocks of {block_size} bytes from byte 0, ")),
            "{what}: {out}"
        );
        assert_eq!(out.lines().filter(|line| line.starts_with("1: ")).count(), 1, "{what}: {out}");
        let (code, json, _) = fsck(&["--find-super", "--json"], &image);
        assert_eq!((code, json.lines().count()), (0, 1), "{what}");
        assert!(
            json.contains(&format!(r#""block_size":{block_size},"blocks":{blocks},"fits":true"#)),
            "{json}"
        );
        let unchanged = image.load().unwrap();
        let head = |store: &MemoryStore| {
            let mut bytes = vec![0; 1 << 20];
            store.read_at(0, &mut bytes).unwrap();
            bytes
        };
        assert!(head(&before) == head(&unchanged), "{what}: a list writes nothing");
        let (code, out, errors) = fsck(&["--find-super=rebuild", "-y"], &image);
        assert_eq!(code, 1, "{what}: {out}{errors}");
        assert_eq!(fsck(&["-fn"], &image).0, 0, "{what}");
        oracle::assert_clean(&image.load().unwrap());
    }
}

/// Where there is a choice nobody guesses.
#[test]
fn one_of_several_has_to_be_chosen() {
    let mut other = filesystem::parameters(20_480, 1024, "");
    other.identity.uuid = [7; 16];
    let (second, mut overlay) = filesystem::filesystem(&other);
    filesystem::commit_clean(&second, &mut overlay);
    let first = made(20_480, 1024, "");
    let both = MemoryStore::new(first.size() + second.size());
    let mut bytes = vec![0; usize::try_from(first.size()).unwrap()];
    for (store, at) in [(&first, 0), (&*second, first.size())] {
        store.read_at(0, &mut bytes).unwrap();
        both.write_at(at, &bytes).unwrap();
    }
    both.write_at(first.size(), &vec![0; 16384]).unwrap();
    let image = TempImage::of(&both).unwrap();
    let (code, out, errors) = fsck(&["--find-super=rebuild", "-y"], &image);
    assert_eq!(code, 16);
    assert!(out.starts_with("1: ") && out.contains("\n2: "), "{out}");
    assert!(errors.contains("2 filesystems were found; say which with --choose"), "{errors}");
    let (code, _, errors) = fsck(&["--find-super=rebuild", "-y", "--choose", "3"], &image);
    assert_eq!(code, 16, "{errors}");
    let number = if out.find("07070707").unwrap() > out.find("\n2: ").unwrap() { "2" } else { "1" };
    let (code, out, errors) = fsck(&["--find-super=rebuild", "-y", "--choose", number], &image);
    assert_eq!(code, 1, "{out}{errors}");
    let whole = image.load().unwrap();
    whole.read_at(first.size(), &mut bytes).unwrap();
    let part = MemoryStore::new(second.size());
    part.write_at(0, &bytes).unwrap();
    oracle::assert_clean(&part);
}

#[test]
fn what_cannot_be_is_refused() {
    let empty = TempImage::empty(1 << 20).unwrap();
    let sound = TempImage::of(&made(8192, 1024, "")).unwrap();
    let cases: [(&[&str], &TempImage, i32, &str); 7] = [
        (&["--find-super"], &empty, 8, "holds no superblock"),
        (&["--find-super=rebuild", "-y"], &empty, 8, "holds no superblock"),
        (&["--find-super=rebuild", "-n"], &sound, 16, "nothing can be rebuilt with -n"),
        (&["--find-super=rebuild", "-y", "-z", "x"], &sound, 16, "-z: an undo file"),
        (&["--find-super", "--choose", "1"], &sound, 16, "--choose: it says what"),
        (&["-y", "--choose", "1"], &sound, 16, "--choose: it says what"),
        (&["--find-super", "-b", "1"], &sound, 16, "--find-super: it finds what"),
    ];
    for (options, image, wanted, text) in cases {
        let (code, out, errors) = fsck(options, image);
        assert_eq!((code, out.as_str()), (wanted, ""), "{options:?} {errors}");
        assert!(errors.contains(text), "{options:?}: {errors}");
    }
}
