//! Thousands of mutants, repaired: no panic, no hang, and a second run finds nothing and writes nothing.

mod common;

use std::sync::Arc;

use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::{busy, filesystem, fixture, mutation, oracle, seed};

use common::mend;

/// Repairs mutants of an image that are damaged anywhere.
fn run(name: &'static str, image: &MemoryStore, rounds: u32, asked: u32) {
    let blocks = mutation::used_blocks(image);
    repair_all(name, rounds, asked, &mut |random| {
        let mutant = image.clone();
        mutation::scribble(random, &mutant, &blocks);
        (mutant, String::new())
    });
}

/// Repairs mutants, and asks e2fsck for its opinion of every `asked`-th.
fn repair_all(
    name: &'static str,
    rounds: u32,
    asked: u32,
    make: &mut dyn FnMut(&mut fastrand::Rng) -> (MemoryStore, String),
) {
    let mut random = seed::Random::of(name);
    let folder = tempfile::tempdir().unwrap();
    let redo = folder.path().join("redo");
    let (mut refused, mut left) = (0, 0);
    for round in 0..rounds {
        let (mutant, damage) = make(&mut random);
        let before = mutant.clone();
        let mutant = Arc::new(mutant);
        let store: Arc<dyn Store> = Arc::clone(&mutant) as Arc<dyn Store>;
        let Ok(first) = mend(&store, &redo) else {
            refused += 1;
            assert!(!redo.exists());
            continue;
        };
        if first.outcome.stopped || first.outcome.left > 0 {
            left += 1;
            continue;
        }
        let after = mutant.to_vec();
        let second = mend(&store, &redo);
        let second =
            second.unwrap_or_else(|error| panic!("round {round}, {damage}: {error}\n{:#?}", first.found));
        let unchanged = second.outcome.repaired == 0 && after == mutant.to_vec();
        if !unchanged {
            keep(&before, &mutant);
        }
        assert!(
            unchanged,
            "round {round}, {damage}: a second run found {:#?}\nafter {:#?}",
            second.found, first.found
        );
        if round % asked == 0
            && let Some(answer) = oracle::e2fsck(&MemoryStore::clone(&mutant))
            && answer.code != 0
        {
            keep(&before, &mutant);
            panic!("round {round}, {damage}: {}\nafter {:#?}", answer.stdout, first.found);
        }
    }
    eprintln!("{name}: {refused} refused, {left} left of {rounds}");
    assert!(refused + left < rounds / 5, "{refused} were refused, {left} were left");
}

#[test]
fn repaired_mutants_are_clean() {
    run("repaired mutants", &fixture::load("images/small-ext4.img.zst"), seed::mutants(2_000), 100);
}

#[test]
fn repaired_mutants_without_checksums_are_clean() {
    let image = Damage::to(&fixture::load("images/small-ext4.img.zst"))
        .superblock(|superblock| {
            let mut features = superblock.features();
            features.ro_compat.remove(RoCompat::METADATA_CSUM);
            features.incompat.remove(Incompat::CSUM_SEED);
            superblock.set_features(features);
        })
        .finish();
    run("repaired mutants without checksums", &image, seed::mutants(2_000), 100);
}

/// Keeps a mutant and what became of it in the folder that `EXT4KIT_KEEP` names.
fn keep(before: &MemoryStore, after: &MemoryStore) {
    if let Some(folder) = std::env::var_os("EXT4KIT_KEEP").map(std::path::PathBuf::from) {
        std::fs::write(folder.join("before.img"), before.to_vec()).unwrap();
        std::fs::write(folder.join("after.img"), after.to_vec()).unwrap();
    }
}

#[test]
fn mutants_of_every_kind_of_filesystem_are_clean_after_a_repair() {
    let only = std::env::var("EXT4KIT_KIND").ok();
    for (what, blocks, size, changes) in busy::KINDS {
        if only.as_ref().is_some_and(|only| only != what) {
            continue;
        }
        let image = busy::busy(&filesystem::parameters(blocks, size, changes));
        let targets = mutation::targets(&image);
        let rounds = seed::mutants(60);
        repair_all(what, rounds, 15, &mut |random| mutation::mutant(random, &image, &targets));
    }
}
