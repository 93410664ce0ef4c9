//! Commands on a small filesystem in memory, and on damaged ones.

use std::fs;
use std::sync::Arc;

use ext4kit_format::disk::inode::Inode;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::namespace::{self, NewInode, NewKind};
use ext4kit_format::tree::{dir, inode};
use ext4kit_format::txn::{BlockKind, Overlay, modify};
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

fn assert_answers(runner: &mut Runner, answers: &[(&str, &str)]) {
    for (request, answer) in answers {
        assert_eq!(text(runner, request), *answer, "{request}");
    }
}

/// What `stat` says of a path, with a mark for the times, which are those of every file of the small filesystem.
fn stat(runner: &mut Runner, path: &str) -> String {
    const TIMES: &str = "\
Fragment:  Address: 0    Number: 0    Size: 0
 ctime: 0x6553f100:0000001c -- Tue Nov 14 22:13:20 2023
 atime: 0x6553f100:0000001c -- Tue Nov 14 22:13:20 2023
 mtime: 0x6553f100:0000001c -- Tue Nov 14 22:13:20 2023
crtime: 0x6553f100:0000001c -- Tue Nov 14 22:13:20 2023
Size of extra inode fields: 32
";
    text(runner, &format!("stat {path}")).replace(TIMES, "(the usual times)\n")
}

#[test]
fn lists_are_those_that_scripts_read() {
    let mut runner = small(CHECKSUMMED, false);
    assert_snapshot!(text(&mut runner, "ls -l"), @r#"
     2   40755 (2)      0      0    1024 14-Nov-2023 22:13 .
     2   40755 (2)      0      0    1024 14-Nov-2023 22:13 ..
    11   40700 (2)      0      0   12288 14-Nov-2023 22:13 lost+found
    12   40750 (2)   1000    100    1024 14-Nov-2023 22:13 folder
    14  120777 (7)   1000    100      12 14-Nov-2023 22:13 link
    15  120777 (7)   1000    100       7 14-Nov-2023 22:13 up
    16   20666 (3)   1000    100       0 14-Nov-2023 22:13 null
    17   60660 (4)   1000    100       0 14-Nov-2023 22:13 disk
    "#);
    assert_snapshot!(text(&mut runner, "ls -p folder"), @r#"
    /12/040750/1000/100/.//
    /2/040755/0/0/..//
    /13/100644/1000/100/hello/5003/
    "#);
    assert_snapshot!(text(&mut runner, "ls folder"), @r#" 12  (12) .    2  (12) ..    13  (988) hello"#);
    assert_snapshot!(text(&mut runner, "tree"), @r#"
    .
    ├── lost+found/
    ├── folder/
    │   └── hello
    ├── link
    ├── up
    ├── null
    └── disk
    "#);
    assert_snapshot!(text(&mut runner, "find / -type l"), @r#"
    /link
    /up
    "#);
    let found = [("find -name h* -size +4k", "./folder/hello\n"), ("find folder -name h* -size -5k", "")];
    assert_answers(&mut runner, &found);
}

#[test]
fn an_inode_is_shown_with_what_hangs_from_it() {
    let mut runner = small(CHECKSUMMED, false);
    assert_snapshot!(stat(&mut runner, "folder/hello"), @r#"
    Inode: 13   Type: regular    Mode:  0644   Flags: 0x80000
    Generation: 9    Version: 0x00000000:00000000
    User:  1000   Group:   100   Project:     0   Size: 5003
    File ACL: 0
    Links: 1   Blockcount: 4
    (the usual times)
    Inode checksum: 0x7e5df5c1
    EXTENTS:
    (0):35, (4):36
    "#);
    assert_snapshot!(stat(&mut runner, "link"), @r#"
    Inode: 14   Type: symlink    Mode:  0777   Flags: 0x0
    Generation: 9    Version: 0x00000000:00000000
    User:  1000   Group:   100   Project:     0   Size: 12
    File ACL: 0
    Links: 1   Blockcount: 0
    (the usual times)
    Inode checksum: 0x704544b8
    Fast link dest: "folder/hello"
    "#);
    assert_snapshot!(text(&mut runner, "ex folder/hello"), @r#"
    Level Entries       Logical      Physical Length Flags
     0/ 0   1/  2     0 -     0    35 -    35      1 
     0/ 0   2/  2     4 -     4    36 -    36      1
    "#);
    assert_snapshot!(text(&mut runner, "imap <12>"), @r#"
    Inode 12 is part of block group 0
    	located at block 7, offset 0x0300
    "#);
    let mut plain = small(PLAIN, false);
    assert_snapshot!(stat(&mut plain, "/up/hello"), @r#"
    Inode: 13   Type: regular    Mode:  0644   Flags: 0x0
    Generation: 9    Version: 0x00000000:00000000
    User:  1000   Group:   100   Project:     0   Size: 5003
    File ACL: 0
    Links: 1   Blockcount: 4
    (the usual times)
    BLOCKS:
    (0):35, (4):36
    TOTAL: 2
    "#);
    assert_snapshot!(stat(&mut plain, "disk"), @r#"
    Inode: 17   Type: block special    Mode:  0660   Flags: 0x0
    Generation: 9    Version: 0x00000000:00000000
    User:  1000   Group:   100   Project:     0   Size: 0
    File ACL: 0
    Links: 1   Blockcount: 0
    (the usual times)
    (New-style) Device major/minor number: 259:70000 (hex 103:11170)
    "#);
}

#[test]
fn blocks_and_inodes_are_found_both_ways() {
    let mut runner = small(CHECKSUMMED, false);
    let blocks = text(&mut runner, "blocks folder/hello");
    let first = blocks.split(' ').next().unwrap();
    assert_answers(
        &mut runner,
        &[
            ("bmap folder/hello 0", &format!("{first}\n")),
            ("bmap folder/hello 2", "0\n"),
            (&format!("icheck {first}"), &format!("Block\tInode number\n{first}\t13\n")),
            (&format!("testb {first}"), &format!("Block {first} marked in use\n")),
            ("ncheck 13", "Inode\tPathname\n13\t/folder/hello\n"),
            ("testi <40>", "Inode 40 is not in use\n"),
            ("ffi", "Free inode found: 18\n"),
        ],
    );
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
    assert_snapshot!(text(&mut runner, "pwd"), @r#"
    [pwd]   INODE:     12  PATH: /folder
    [root]  INODE:      2  PATH: /
    "#);
    assert!(text(&mut runner, "stat hello").starts_with("Inode: 13 "));
    assert_eq!(text(&mut runner, "chroot /folder"), "");
    assert!(text(&mut runner, "stat /hello").starts_with("Inode: 13 "));
    assert!(text(&mut runner, "pwd").ends_with("[root]  INODE:     12  PATH: /folder\n"));
    assert!(text(&mut runner, "stat ../hello").starts_with("Inode: 13 "), "the root has nothing above it");
    let open = runner.session.open.as_ref().unwrap();
    assert_eq!(paths_from(open, "/he"), ["/hello"]);
    assert_eq!(text(&mut runner, "quit"), "");
    assert!(runner.session.done);
}

#[test]
fn answers_are_data_too() {
    let mut runner = small(CHECKSUMMED, true);
    assert_snapshot!(text(&mut runner, "bmap folder/hello 0"), @r#"{"tool":"debugfs","version":"0.1.0","schema":"debugfs-bmap","schema_version":1,"result":{"block":35,"logical":0,"unwritten":false}}"#);
    assert_snapshot!(text(&mut runner, "ls folder"), @r#"{"tool":"debugfs","version":"0.1.0","schema":"debugfs-list_directory","schema_version":1,"result":{"entries":[{"details":{"group":100,"kind":"directory","mode":16872,"modified":1700000000,"size":1024,"user":1000},"file_type":2,"inode":12,"name":".","record_length":12,"removed":false},{"details":{"group":0,"kind":"directory","mode":16877,"modified":1700000000,"size":1024,"user":0},"file_type":2,"inode":2,"name":"..","record_length":12,"removed":false},{"details":{"group":100,"kind":"regular","mode":33188,"modified":1700000000,"size":5003,"user":1000},"file_type":1,"inode":13,"name":"hello","record_length":988,"removed":false}]}}"#);
    assert_snapshot!(text(&mut runner, "pwd"), @r#"{"tool":"debugfs","version":"0.1.0","schema":"debugfs-print_working_directory","schema_version":1,"result":{"current":{"inode":2,"path":"/"},"root":{"inode":2,"path":"/"}}}"#);
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
    for (request, done) in [
        ("stat /nope", Done::Failed),
        ("stat <0>", Done::Failed),
        ("stat", Done::Failed),
        ("cat folder", Done::Well),
        ("cd link", Done::Failed),
        ("bogus", Done::Unknown),
        ("write a b", Done::Unknown),
        ("ls \"a", Done::Failed),
        ("  ", Done::Well),
    ] {
        let (found, text) = ask(&mut runner, request);
        assert_eq!(found, done, "{request}");
        assert!(found == Done::Well || text.is_empty(), "{request}: {text}");
    }
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
    let harmless = vec![b'A'; evil.len()];
    add(&mut txn, &mut root, &harmless, NewKind::Regular);
    rename_over(&mut txn, &root, &harmless, evil);
    commit(&mut txn);
    store
}

fn add(txn: &mut Overlay, directory: &mut Inode, name: &[u8], kind: NewKind<'_>) -> Inode {
    let new = NewInode { permissions: 0o777, ..NewInode::default() };
    namespace::create(txn, directory, name, kind, new).unwrap()
}

fn rename_over(txn: &mut Overlay, root: &Inode, old: &[u8], new: &[u8]) {
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
    add(&mut txn, &mut root, b"trap", NewKind::Symlink(path));
    let mut inner = add(&mut txn, &mut root, b"AAAA", NewKind::Directory);
    add(&mut txn, &mut inner, b"pwn", NewKind::Regular);
    rename_over(&mut txn, &root, b"AAAA", b"trap");
    let mut file = add(&mut txn, &mut root, b"BBBB", NewKind::Regular);
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
        for mutant in 0..5000u32 {
            let mut places = Vec::new();
            for _ in 0..random.usize(1..6) {
                let at = used[random.usize(..used.len())] + random.usize(..32);
                let byte = [0, 0xff, whole[at].wrapping_add(1), random.u8(..)][random.usize(..4)];
                store.write_at(at as u64, &[byte]).unwrap();
                places.push(at);
            }
            look_at(&store, mutant);
            for at in places {
                store.write_at(at as u64, &whole[at..=at]).unwrap();
            }
        }
    }
}

fn look_at(store: &Arc<MemoryStore>, number: u32) {
    // Checksums would stop nearly every mutant at the door.
    let Some(mut runner) = runner(Arc::clone(store) as Arc<dyn Store>, false, number.is_multiple_of(2))
    else {
        return;
    };
    ask(&mut runner, "ls -l");
    for number in 1..=18 {
        ask(&mut runner, &format!("stat <{number}>"));
    }
    if number % 8 < 2 {
        for request in
            ["ls -d folder", "find /", "stats", "ncheck 13", "ex folder/hello", "htree /", "icheck 600"]
        {
            ask(&mut runner, request);
        }
    }
}
