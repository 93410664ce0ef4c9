//! Commands on a small filesystem in memory, and on damaged ones.

use std::fs;
use std::sync::Arc;

use ext4kit_format::disk::inode::Inode;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::{dir, inode, namespace};
use ext4kit_format::txn::{BlockKind, modify};
use ext4kit_format::{InodeNumber, LogicalBlock};
use ext4kit_testkit::fixture;
use ext4kit_testkit::seed::Random;
use insta::assert_snapshot;

use crate::prompt::paths_from;
use crate::run::{Done, Runner};
use crate::testing::{CHECKSUMMED, PLAIN, ask, commit, filesystem, runner, text};

fn small(features: &[&str], json: bool) -> Runner {
    let (store, mut txn) = filesystem(features);
    commit(&mut txn);
    runner(store, true, json).unwrap()
}

#[test]
fn lists_are_those_that_scripts_read() {
    let mut runner = small(CHECKSUMMED, false);
    assert_snapshot!(text(&mut runner, "ls -l"), @"");
    assert_snapshot!(text(&mut runner, "ls -p folder"), @"");
    assert_snapshot!(text(&mut runner, "ls folder"), @"");
    assert_snapshot!(text(&mut runner, "tree"), @"");
    assert_snapshot!(text(&mut runner, "find / -type l"), @"");
    assert_snapshot!(text(&mut runner, "find -name h* -size +5k"), @"");
    assert_eq!(text(&mut runner, "find folder -name h* -size -5k"), "");
}

#[test]
fn an_inode_is_shown_with_what_hangs_from_it() {
    let mut runner = small(CHECKSUMMED, false);
    assert_snapshot!(text(&mut runner, "stat folder/hello"), @"");
    assert_snapshot!(text(&mut runner, "stat link"), @"");
    assert_snapshot!(text(&mut runner, "ex folder/hello"), @"");
    assert_snapshot!(text(&mut runner, "imap <12>"), @"");
    let mut plain = small(PLAIN, false);
    assert_snapshot!(text(&mut plain, "stat /up/hello"), @"");
    assert_snapshot!(text(&mut plain, "stat disk"), @"");
}

#[test]
fn blocks_and_inodes_are_found_both_ways() {
    let mut runner = small(CHECKSUMMED, false);
    let blocks = text(&mut runner, "blocks folder/hello");
    let first = blocks.split(' ').next().unwrap();
    assert_eq!(text(&mut runner, "bmap folder/hello 0"), format!("{first}\n"));
    assert_eq!(text(&mut runner, "bmap folder/hello 2"), "0\n");
    assert_eq!(text(&mut runner, &format!("icheck {first}")), format!("Block\tInode number\n{first}\t13\n"));
    assert_eq!(text(&mut runner, &format!("testb {first}")), format!("Block {first} marked in use\n"));
    assert_eq!(text(&mut runner, "ncheck 13"), "Inode\tPathname\n13\t/folder/hello\n");
    assert_eq!(text(&mut runner, "testi <40>"), "Inode 40 is not in use\n");
    assert_eq!(text(&mut runner, "ffi"), "Free inode found: 18\n");
}

#[test]
fn contents_come_whole_with_their_holes() {
    let mut runner = small(CHECKSUMMED, false);
    let mut wanted = vec![0; 5003];
    wanted[..6].copy_from_slice(b"hello\n");
    wanted[5000..].copy_from_slice(b"far");
    assert_eq!(text(&mut runner, "cat folder/hello").as_bytes(), wanted);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out");
    assert_eq!(text(&mut runner, &format!("dump -p folder/hello {}", target.display())), "");
    assert_eq!(fs::read(&target).unwrap(), wanted);
    let modified = fs::metadata(&target).unwrap().modified().unwrap();
    assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos(), 1_700_000_000_000_000_007);
}

#[test]
fn the_user_stands_where_cd_and_chroot_say() {
    let mut runner = small(CHECKSUMMED, false);
    assert_eq!(text(&mut runner, "cd up/."), "");
    assert_snapshot!(text(&mut runner, "pwd"), @"");
    assert!(text(&mut runner, "stat hello").starts_with("Inode: 13 "));
    assert_eq!(text(&mut runner, "chroot /folder"), "");
    assert!(text(&mut runner, "stat /hello").starts_with("Inode: 13 "));
    assert!(text(&mut runner, "stat ../hello").starts_with("Inode: 13 "), "the root has nothing above it");
    let open = runner.session.open.as_ref().unwrap();
    assert_eq!(paths_from(open, "/he"), ["/hello"]);
    assert_eq!(text(&mut runner, "quit"), "");
    assert!(runner.session.done);
}

#[test]
fn answers_are_data_too() {
    let mut runner = small(CHECKSUMMED, true);
    assert_snapshot!(text(&mut runner, "bmap folder/hello 0"), @"");
    assert_snapshot!(text(&mut runner, "ls folder"), @"");
    assert_snapshot!(text(&mut runner, "pwd"), @"");
    // Every command gives one line with its own schema's name, or a failure with one.
    for command in crate::table::COMMANDS.iter().filter(|command| command.name != "rdump") {
        let (_, text) = ask(&mut runner, &format!("{} <2>", command.name));
        let data: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(data["schema"], command.schema, "{text}");
        assert!(data.get("result").is_some() != data.get("error").is_some(), "{text}");
    }
}

#[test]
fn failures_are_told_apart_from_unknown_commands() {
    let mut runner = small(CHECKSUMMED, false);
    assert_eq!(ask(&mut runner, "stat /nope"), (Done::Failed, String::new()));
    assert_eq!(ask(&mut runner, "stat <0>").0, Done::Failed);
    assert_eq!(ask(&mut runner, "stat").0, Done::Failed);
    assert_eq!(ask(&mut runner, "cat folder").0, Done::Well);
    assert_eq!(ask(&mut runner, "cd link").0, Done::Failed);
    assert_eq!(ask(&mut runner, "bogus").0, Done::Unknown);
    assert_eq!(ask(&mut runner, "write a b").0, Done::Unknown);
    assert_eq!(ask(&mut runner, "ls \"a").0, Done::Failed);
    assert_eq!(ask(&mut runner, "  ").0, Done::Well);
    runner.session.open = None;
    assert_eq!(ask(&mut runner, "ls").0, Done::Failed);
}

#[test]
fn the_fixture_is_read() {
    let store = Arc::new(fixture::load("images/small-ext4.img.zst"));
    let mut runner = runner(store, true, false).unwrap();
    assert_eq!(text(&mut runner, "cat /hello"), "hello\n");
    assert!(
        text(&mut runner, "stats").contains("Filesystem UUID:          01234567-89ab-cdef-0123-456789abcdef")
    );
}

/// A name that debugfs 1.47 follows out of the target, put over a harmless one of the same length.
fn with_name(features: &[&str], evil: &[u8]) -> Arc<MemoryStore> {
    let (store, mut txn) = filesystem(features);
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let new = namespace::NewInode { permissions: 0o644, ..namespace::NewInode::default() };
    let harmless = vec![b'A'; evil.len()];
    namespace::create(&mut txn, &mut root, &harmless, namespace::NewKind::Regular, new).unwrap();
    rename_over(&mut txn, &root, &harmless, evil);
    commit(&mut txn);
    store
}

fn rename_over(txn: &mut ext4kit_format::txn::Overlay, root: &Inode, old: &[u8], new: &[u8]) {
    let place = dir::lookup(txn, root, old).unwrap().unwrap().location;
    let kind = BlockKind::DirectoryLeaf(root.owner(), LogicalBlock(0));
    modify(txn, place.block, kind, |bytes| {
        bytes[place.offset + 8..place.offset + 8 + new.len()].copy_from_slice(new);
    })
    .unwrap();
}

#[test]
fn rdump_copies_and_never_leaves_its_target() {
    let folder = tempfile::tempdir().unwrap();
    for (number, evil) in [&b"../pwn"[..], b"..", b"/tmp/pwn", b"a/b", b"a\0b"].iter().enumerate() {
        for features in [PLAIN, CHECKSUMMED] {
            let mut runner = runner(with_name(features, evil), true, false).unwrap();
            let target = folder.path().join(format!("{number}-{}", features.len()));
            fs::create_dir(&target).unwrap();
            let before = fs::read_dir(folder.path()).unwrap().count();
            let (done, _) = ask(&mut runner, &format!("rdump / {}", target.display()));
            assert_eq!(done, Done::Failed, "the refusal of {evil:?} counts");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "{evil:?}");
            assert!(!std::path::Path::new("/tmp/pwn").exists());
            let copied = fs::read(target.join("folder/hello")).unwrap();
            assert_eq!((copied.len(), &copied[5000..]), (5003, &b"far"[..]));
            assert_eq!(fs::read_link(target.join("link")).unwrap().to_str(), Some("folder/hello"));
            assert!(!target.join("null").exists(), "devices are not made");
        }
    }
}

/// A link comes first and a folder of the same name after it: the link must not be followed.
#[test]
fn rdump_does_not_follow_a_link_that_it_made() {
    let outside = tempfile::tempdir().unwrap();
    let (store, mut txn) = filesystem(PLAIN);
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let path = outside.path().to_str().unwrap().as_bytes();
    let new = namespace::NewInode { permissions: 0o777, ..namespace::NewInode::default() };
    namespace::create(&mut txn, &mut root, b"trap", namespace::NewKind::Symlink(path), new).unwrap();
    let mut inner =
        namespace::create(&mut txn, &mut root, b"AAAA", namespace::NewKind::Directory, new).unwrap();
    namespace::create(&mut txn, &mut inner, b"pwn", namespace::NewKind::Regular, new).unwrap();
    rename_over(&mut txn, &root, b"AAAA", b"trap");
    let mut file = namespace::create(&mut txn, &mut root, b"BBBB", namespace::NewKind::Regular, new).unwrap();
    file.set_size(10);
    inode::write(&mut txn, &file).unwrap();
    rename_over(&mut txn, &root, b"BBBB", b"trap");
    commit(&mut txn);
    let target = tempfile::tempdir().unwrap();
    let mut runner = runner(store, true, false).unwrap();
    assert_eq!(ask(&mut runner, &format!("rdump / {}", target.path().display())).0, Done::Failed);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_wrong_checksum_is_told_and_can_be_passed_over() {
    let (store, mut txn) = filesystem(CHECKSUMMED);
    commit(&mut txn);
    let (block, offset) = inode::locate(&txn, InodeNumber::new(13).unwrap()).unwrap();
    // The link count.
    store.write_at(block.0 * 1024 + offset as u64 + 0x1a, &[5]).unwrap();
    let mut strict = runner(Arc::clone(&store) as Arc<dyn Store>, true, true).unwrap();
    let (done, text) = ask(&mut strict, "stat folder/hello");
    assert_eq!(done, Done::Failed);
    assert!(text.contains("inode 13: checksum is"), "{text}");
    let mut lenient = runner(store, false, false).unwrap();
    assert!(ask(&mut lenient, "stat folder/hello").1.contains("Links: 5"));
}

/// Ten thousand mutants: whatever lies on the disk, the commands end, and none panics.
#[test]
fn mutants_are_harmless() {
    let mut random = Random::of("debugfs-mutants");
    for features in [CHECKSUMMED, PLAIN] {
        let (store, mut txn) = filesystem(features);
        commit(&mut txn);
        let whole = store.to_vec();
        let used: Vec<usize> =
            (0..whole.len()).step_by(32).filter(|at| whole[*at..at + 32].iter().any(|b| *b != 0)).collect();
        for mutant in 0..5000 {
            let mut places = Vec::new();
            for _ in 0..random.usize(1..6) {
                let at = used[random.usize(..used.len())] + random.usize(..32);
                let byte = [0, 0xff, whole[at].wrapping_add(1), random.u8(..)][random.usize(..4)];
                store.write_at(at as u64, &[byte]).unwrap();
                places.push(at);
            }
            look_at(&store, mutant % 2 == 0);
            for at in places {
                store.write_at(at as u64, &whole[at..=at]).unwrap();
            }
        }
    }
}

fn look_at(store: &Arc<MemoryStore>, json: bool) {
    // Checksums would stop nearly every mutant at the door.
    let Some(mut runner) = runner(Arc::clone(store) as Arc<dyn Store>, false, json) else { return };
    for request in ["ls -l", "ls -d folder", "find /", "stats -h", "ncheck 13", "cat folder/hello", "htree /"]
    {
        ask(&mut runner, request);
    }
    for number in 1..=18 {
        ask(&mut runner, &format!("stat <{number}>"));
        ask(&mut runner, &format!("ex <{number}>"));
    }
}
