//! Ten thousand mutants of a small image: no panic, no hang, and the same findings each time.

use std::sync::Arc;

use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_fsck::{Options, check};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::{fixture, seed};

/// Where the metadata of the image lies that is worth damaging: blocks that are not all zero.
fn interesting(image: &MemoryStore) -> Vec<u64> {
    let bytes = image.to_vec();
    let blocks = bytes.chunks(1024).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
    blocks.map(|(at, _)| at as u64 * 1024).collect()
}

fn mutate(random: &mut fastrand::Rng, image: &MemoryStore, blocks: &[u64]) {
    for _ in 0..random.usize(1..6) {
        let block = blocks[random.usize(..blocks.len())];
        let at = block + random.u64(..1024);
        match random.u8(..4) {
            0 => {
                let mut byte = [0];
                image.read_at(at, &mut byte).unwrap();
                image.write_at(at, &[byte[0] ^ (1 << random.u8(..8))]).unwrap();
            }
            1 => image.write_at(at, &[random.u8(..)]).unwrap(),
            2 => {
                let word = [0, 1, u32::MAX, 0x7fff_ffff, random.u32(..)][random.usize(..5)];
                let at = (at & !3).min(image.size() - 4);
                image.write_at(at, &word.to_le_bytes()).unwrap();
            }
            _ => {
                let other = blocks[random.usize(..blocks.len())];
                let mut copy = [0; 64];
                image.read_at(other, &mut copy).unwrap();
                image.write_at((at & !63).min(image.size() - 64), &copy).unwrap();
            }
        }
    }
}

fn findings(image: &MemoryStore) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let result =
        check(Arc::new(image.clone()), &Options::default(), &mut |finding| found.push(finding.to_string()));
    result.map(|_| found).map_err(|error| error.to_string())
}

/// Runs mutants of an image; how many could not be opened, and how many had findings.
fn run(name: &'static str, image: &MemoryStore, rounds: u32) -> (u32, u32) {
    let blocks = interesting(image);
    let mut random = seed::Random::of(name);
    let (mut refused, mut damaged) = (0, 0);
    for round in 0..rounds {
        let mutant = image.clone();
        mutate(&mut random, &mutant, &blocks);
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
