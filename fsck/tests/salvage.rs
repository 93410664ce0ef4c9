//! What survives: seeded damage to a busy filesystem, repaired here and by e2fsck, and the files that have kept path and
//! contents counted.

mod common;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use ext4kit_format::InodeNumber;
use ext4kit_format::disk::inode::FileKind;
use ext4kit_format::image::{Image, OpenOptions};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::{dir, file, inode};
use ext4kit_format::txn::{Overlay, OverlayOptions};
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{busy, filesystem, mutation, oracle, seed};

use common::mend;

/// Every path with a digest of what it names: kind, permissions, contents.
fn listing(image: &MemoryStore) -> BTreeMap<Vec<u8>, u64> {
    let mut found = BTreeMap::new();
    let options = OpenOptions { allow_short: true, ..OpenOptions::default() };
    let Ok(opened) = Image::open_with(Arc::new(image.clone()) as Arc<dyn Store>, options) else {
        return found;
    };
    let txn = opened.overlay(OverlayOptions { verify: false, ..OverlayOptions::default() });
    let mut open = vec![(Vec::new(), InodeNumber::ROOT)];
    while let Some((path, number)) = open.pop() {
        if found.len() > 10_000 {
            break;
        }
        let Ok(directory) = inode::read(&txn, number) else { continue };
        let _ = dir::for_each(&txn, &directory, &mut |listed| {
            if listed.name != b"." && listed.name != b".." {
                let mut below: Vec<u8> = path.clone();
                below.push(b'/');
                below.extend_from_slice(listed.name);
                if let Some((digest, directory)) = digest(&txn, listed.found.inode) {
                    if directory && path.len() < 2000 {
                        open.push((below.clone(), listed.found.inode));
                    }
                    found.insert(below, digest);
                }
            }
            Ok(ControlFlow::Continue(()))
        });
    }
    found
}

fn digest(txn: &Overlay, number: InodeNumber) -> Option<(u64, bool)> {
    let read = inode::read(txn, number).ok()?;
    let view = read.view();
    let mut hasher = DefaultHasher::new();
    view.mode().hash(&mut hasher);
    match view.kind()? {
        FileKind::Regular => {
            view.size().hash(&mut hasher);
            file::read_all(txn, &read, 16 << 20).ok()?.hash(&mut hasher);
        }
        FileKind::Symlink => file::read_symlink(txn, &read).ok()?.hash(&mut hasher),
        FileKind::CharacterDevice | FileKind::BlockDevice => view.device().hash(&mut hasher),
        _ => {}
    }
    Some((hasher.finish(), view.is_directory()))
}

/// How many of the files that there were are there still.
fn survivors(before: &BTreeMap<Vec<u8>, u64>, image: &MemoryStore) -> usize {
    let after = listing(image);
    before.iter().filter(|(path, digest)| after.get(*path) == Some(*digest)).count()
}

#[test]
fn never_fewer_files_survive_than_with_e2fsck() {
    let Some(e2fsck) = oracle::find("e2fsck") else { return };
    let folder = tempfile::tempdir().unwrap();
    let redo = folder.path().join("redo");
    let kinds = [&busy::KINDS[0], &busy::KINDS[2], &busy::KINDS[4], &busy::KINDS[6]];
    let (mut worse, mut better, mut cases) = (Vec::new(), 0, 0u32);
    println!("{:<28} {:>6} {:>8} {:>8} {:>8}", "filesystem", "cases", "files", "ours", "e2fsck");
    for (what, blocks, size, changes) in kinds {
        let image = busy::busy(&filesystem::parameters(*blocks, *size, changes));
        let before = listing(&image);
        assert!(before.len() > 170, "{} files", before.len());
        let targets = mutation::targets(&image);
        let mut random = seed::Random::of(what);
        let (mut ours_all, mut theirs_all) = (0usize, 0usize);
        let rounds = seed::mutants(15);
        for _ in 0..rounds {
            let (mutant, damage) = mutation::mutant(&mut random, &image, &targets);
            let theirs = TempImage::of(&mutant).unwrap();
            // On some damage it never ends; what it has written by then counts.
            let image = theirs.path();
            let arguments = ["20".as_ref(), e2fsck.as_os_str(), "-fy".as_ref(), image.as_os_str()];
            let answer = oracle::run("timeout", &arguments).unwrap();
            assert!(answer.code != 127, "{answer:?}");
            let theirs = survivors(&before, &theirs.load().unwrap());
            let damaged = mutant.clone();
            let mutant = Arc::new(mutant);
            // What is refused stays as it is.
            let _ = mend(&(Arc::clone(&mutant) as Arc<dyn Store>), &redo);
            let ours = survivors(&before, &mutant);
            cases += 1;
            better += u32::from(ours > theirs);
            if ours < theirs {
                if let Some(folder) = std::env::var_os("EXT4KIT_KEEP") {
                    let name = format!("worse-{}.img", worse.len());
                    std::fs::write(std::path::Path::new(&folder).join(name), damaged.to_vec()).unwrap();
                }
                worse.push(format!("{what}: {damage}: {ours} against {theirs}"));
            }
            ours_all += ours;
            theirs_all += theirs;
        }
        let files = before.len() * usize::try_from(rounds).unwrap();
        println!("{what:<28} {rounds:>6} {files:>8} {ours_all:>8} {theirs_all:>8}");
        assert!(ours_all >= theirs_all, "{what}: {ours_all} against {theirs_all}: {worse:#?}");
    }
    println!("better in {better}, worse in {} of {cases}: {worse:#?}", worse.len());
    assert!(worse.len() * 100 <= cases as usize * 2, "{worse:#?}");
}
