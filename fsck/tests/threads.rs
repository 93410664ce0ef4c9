//! However many threads check an image, they find the same in the same order.

use std::sync::Arc;

use ext4kit_format::disk::dirent::FileType;
use ext4kit_format::disk::inode::{Inode, InodeFlags};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::{dir, inode, map};
use ext4kit_format::txn::{BlockKind, Transaction};
use ext4kit_format::{InodeNumber, LogicalBlock};
use ext4kit_fsck::{Finding, Options, Summary, check};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::{filesystem, fixture, seed};

const DOT_WRONG: u16 = 606;
const SECOND_NAME: u16 = 612;
const NAME_TWICE: u16 = 617;
const HASH_OUT_OF_RANGE: u16 = 625;

fn findings(store: &MemoryStore, threads: usize) -> Result<(Vec<Finding>, Summary), String> {
    let mut found = Vec::new();
    let options = Options { threads: Some(threads), ..Options::default() };
    let summary = check(Arc::new(store.clone()), &options, &mut |finding| found.push(finding));
    summary.map(|summary| (found, summary)).map_err(|error| error.to_string())
}

/// The codes that one thread finds, after several were compared with it.
fn codes(store: &MemoryStore, what: &str) -> Vec<u16> {
    let one = findings(store, 1);
    for threads in [2, 4, 4, 7] {
        let many = findings(store, threads);
        assert!(one == many, "{what}: one thread finds {one:#?}, {threads} find {many:#?}");
    }
    one.map(|(found, _)| found.iter().map(Finding::code).collect()).unwrap_or_default()
}

#[test]
fn mutants_look_the_same_to_one_thread_and_to_many() {
    let image = fixture::load("images/small-ext4.img.zst");
    let size = image.size();
    let mut random = seed::Random::of("threads");
    let mut damaged = 0;
    for round in 0..seed::mutants(4000) / 10 {
        let mutant = image.clone();
        for _ in 0..random.usize(1..12) {
            // Tables and directories lie in the first part of the image; copies make owners quarrel.
            let [from, to] = [0; 2].map(|_| random.u64(..size / 256) * 64);
            let mut bytes = [0; 64];
            mutant.read_at(from, &mut bytes).unwrap();
            mutant.write_at(to, &bytes).unwrap();
        }
        damaged += u32::from(!codes(&mutant, &format!("mutant {round}")).is_empty());
    }
    assert!(damaged > 0);
}

/// Which of two directories names a third one first is for their order to say, also where two threads come to them at
/// once. (Without noticing that parts of a pass met, this fails.)
#[test]
fn the_first_name_of_a_directory_is_the_same_whoever_comes_first() {
    const COUNT: usize = 600;
    /// About as many directories as four threads do in one part.
    const APART: usize = 19;
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(20_000, 1024, ""));
    let txn = &mut overlay;
    let mut directory = |parent| {
        let mut made = filesystem::fresh(txn, 0o040_755);
        dir::create(txn, &mut made, parent).unwrap();
        made
    };
    let mut naming: Vec<_> = (0..COUNT).map(|_| directory(InodeNumber::ROOT)).collect();
    let named: Vec<_> =
        naming.iter().map(Inode::number).collect::<Vec<_>>().into_iter().map(directory).collect();
    for (at, from) in naming.iter_mut().enumerate() {
        for (name, to) in
            [("own", named.get(at)), ("other", at.checked_sub(APART).and_then(|at| named.get(at)))]
        {
            if let Some(to) = to {
                dir::insert(txn, from, name.as_bytes(), to.number(), FileType::DIRECTORY).unwrap();
            }
        }
        filesystem::put_in_root(txn, &format!("d{at}"), from);
    }
    for inode in &named {
        inode::write_over(txn, inode).unwrap();
    }
    ext4kit_format::create::write_backups(&mut overlay).unwrap();
    ext4kit_format::txn::commit_new(&mut overlay).unwrap();
    let second = codes(&store, "second names").into_iter().filter(|code| *code == SECOND_NAME).count();
    assert_eq!(second, COUNT - APART);
}

/// Under which of two directories that have the same blocks these are looked at is for the order of the directories to say.
/// (Without noticing that a block comes again, this fails.)
#[test]
fn blocks_of_two_directories_are_looked_at_under_the_first() {
    const COUNT: usize = 608;
    /// About as many directories as four threads do in one part.
    const APART: usize = 19;
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(20_000, 1024, ""));
    let txn = &mut overlay;
    let mut made: Vec<Inode> = Vec::new();
    for at in 0..COUNT {
        let mut directory = filesystem::fresh(txn, 0o040_755);
        dir::create(txn, &mut directory, InodeNumber::ROOT).unwrap();
        // Each second stretch of directories takes the blocks of the stretch before.
        if at / APART % 2 == 1 {
            *directory.map_mut() = *made[at - APART].view().map();
        }
        filesystem::put_in_root(txn, &format!("d{at}"), &directory);
        made.push(directory);
    }
    for directory in &made {
        inode::write_over(txn, directory).unwrap();
    }
    ext4kit_format::create::write_backups(&mut overlay).unwrap();
    ext4kit_format::txn::commit_new(&mut overlay).unwrap();
    for round in 0..8 {
        let codes = codes(&store, &format!("shared blocks, round {round}"));
        assert!(!codes.contains(&DOT_WRONG), "the second owner's number is not asked for: {codes:?}");
    }
}

/// A filesystem whose root has many names of one file, enough for the directory to be split.
fn large_directory() -> (MemoryStore, InodeNumber) {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(20_000, 1024, ""));
    let txn = &mut overlay;
    let mut file = filesystem::fresh(txn, 0o100_644);
    let mut root = inode::read(txn, InodeNumber::ROOT).unwrap();
    let names = 12_000;
    for name in 0..names {
        let name = format!("a name that takes some room {name}");
        dir::insert(txn, &mut root, name.as_bytes(), file.number(), FileType::REGULAR).unwrap();
    }
    file.set_links(names);
    inode::write_over(txn, &file).unwrap();
    inode::write_over(txn, &root).unwrap();
    filesystem::commit_clean(&store, &mut overlay);
    (MemoryStore::clone(&store), file.number())
}

#[test]
fn a_large_directory_is_split_without_losing_a_double_name() {
    let (image, _) = large_directory();
    assert_eq!(codes(&image, "sound"), [0u16; 0]);
    let mut damage = Damage::to(&image);
    let root = inode::read(damage.transaction(), InodeNumber::ROOT).unwrap();
    assert!(root.view().flags().contains(InodeFlags::INDEX));
    assert!(root.view().size() >> 10 > 256);
    let found = [7, 300].map(|logical| {
        let logical = LogicalBlock(logical);
        let lookup = map::lookup(damage.transaction(), &root, logical).unwrap();
        (logical, lookup.run().unwrap().start)
    });
    let first = damage.transaction().read(found[0].1, BlockKind::Plain).unwrap();
    let name = first[8..8 + usize::from(first[6])].to_vec();
    // The first entry of one leaf takes the name of the first entry of another; both are of the same length or shorter.
    let image = damage
        .block(found[1].1, BlockKind::DirectoryLeaf(root.owner(), found[1].0), |leaf| {
            leaf[6] = u8::try_from(name.len()).unwrap();
            leaf[8..8 + name.len()].copy_from_slice(&name);
        })
        .finish();
    let found = codes(&image, "a double name in another leaf");
    assert!(found.contains(&NAME_TWICE) && found.contains(&HASH_OUT_OF_RANGE), "{found:?}");
}
