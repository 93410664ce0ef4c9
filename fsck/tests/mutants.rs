//! Ten thousand mutants of a small image: no panic, no hang, and the same findings each time.

use std::sync::Arc;

use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::store::MemoryStore;
use ext4kit_fsck::{Options, check};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::{fixture, mutation, seed};

fn findings(image: &MemoryStore) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let result =
        check(Arc::new(image.clone()), &Options::default(), &mut |finding| found.push(finding.to_string()));
    result.map(|_| found).map_err(|error| error.to_string())
}

/// Runs mutants of an image; how many could not be opened, and how many had findings.
fn run(name: &'static str, image: &MemoryStore, rounds: u32) -> (u32, u32) {
    let blocks = mutation::used_blocks(image);
    let mut random = seed::Random::of(name);
    let (mut refused, mut damaged) = (0, 0);
    for round in 0..rounds {
        let mutant = image.clone();
        mutation::scribble(&mut random, &mutant, &blocks);
        let found = findings(&mutant);
        refused += u32::from(found.is_err());
        damaged += u32::from(found.as_ref().is_ok_and(|found| !found.is_empty()));
        if round % 100 == 0 {
            assert_eq!(found, findings(&mutant), "the order of findings depends on the image alone");
        }
    }
    (refused, damaged)
}

#[test]
fn mutants_neither_panic_nor_hang() {
    let image = fixture::load("images/small-ext4.img.zst");
    let rounds = seed::mutants(10_000);
    let (refused, damaged) = run("fsck mutants", &image, rounds);
    // Checksums catch nearly everything but changes to file contents, and few mutants lose their superblock.
    assert!(
        refused < rounds / 10 * 3 && damaged > rounds / 10 * 3,
        "{refused} were refused, {damaged} had findings"
    );
}

#[test]
fn mutants_without_checksums_neither_panic_nor_hang() {
    let image = Damage::to(&fixture::load("images/small-ext4.img.zst"))
        .superblock(|superblock| {
            let mut features = superblock.features();
            features.ro_compat.remove(RoCompat::METADATA_CSUM);
            features.incompat.remove(Incompat::CSUM_SEED);
            superblock.set_features(features);
        })
        .finish();
    let rounds = seed::mutants(10_000);
    let (refused, damaged) = run("fsck mutants without checksums", &image, rounds);
    assert!(
        refused < rounds / 10 * 3 && damaged > rounds / 10 * 2,
        "{refused} were refused, {damaged} had findings"
    );
}
