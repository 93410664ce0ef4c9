//! Plans: written, applied exactly, refused where anything has changed, and refused where they are none.

use std::process::Command;
use std::sync::Arc;

use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::{GroupNumber, InodeNumber};
use ext4kit_fsck::plan::{Plan, apply};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{filesystem, fixture, seed};

fn damaged(image: &MemoryStore) -> MemoryStore {
    Damage::to(image)
        .inode(InodeNumber::ROOT, |inode| inode.set_links(77))
        .descriptor(GroupNumber(0), |group| group.free_clusters += 1)
        .finish()
}

fn fsck(options: &[&str], image: &TempImage) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ext4kit-fsck"))
        .args(options)
        .arg(image.path())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code().expect("it was not killed"), text)
}

fn bytes(image: &TempImage) -> Vec<u8> {
    std::fs::read(image.path()).unwrap()
}

/// The plan of a repair, in a folder of its own.
fn plan(image: &TempImage) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan").to_str().unwrap().to_owned();
    let before = bytes(image);
    let (code, text) = fsck(&["-f", "--plan", &path], image);
    assert_eq!(code, 4, "{text}");
    assert!(before == bytes(image), "a plan writes nothing to the image");
    (folder, path)
}

fn is_exact(damaged: &MemoryStore) {
    let (planned, repaired) = (TempImage::of(damaged).unwrap(), TempImage::of(damaged).unwrap());
    let (_folder, path) = plan(&planned);
    let (code, text) = fsck(&["--apply", &path], &planned);
    assert_eq!(code, 1, "{text}");
    let (code, text) = fsck(&["-fy"], &repaired);
    assert_eq!(code, 1, "{text}");
    assert!(bytes(&planned) == bytes(&repaired));
    // What was applied is not what the plan was made from any more.
    let (code, text) = fsck(&["--apply", &path], &planned);
    assert_eq!(code, 8, "{text}");
}

#[test]
fn what_was_planned_is_what_a_repair_does() {
    is_exact(&damaged(&fixture::load("images/small-ext4.img.zst")));
    is_exact(&damaged(&filesystem::ext4(8192, 1024)));
    let lost = damaged(&filesystem::ext4(16_384, 1024));
    lost.write_at(1024 + 0x38, &[0; 2]).unwrap();
    is_exact(&lost);
}

#[test]
fn the_header_says_what_would_be_done() {
    let image = TempImage::of(&damaged(&filesystem::ext4(8192, 1024))).unwrap();
    let (_folder, path) = plan(&image);
    let file = std::fs::read(&path).unwrap();
    let line = file.split(|byte| *byte == b'\n').next().unwrap();
    let header: serde_json::Value = serde_json::from_slice(line).unwrap();
    assert_eq!((&header["format"], &header["version"]), (&"ext4kit-plan".into(), &1.into()));
    assert_eq!(header["findings"][0]["code"], 802);
    let kinds: Vec<&str> =
        header["changes"].as_array().unwrap().iter().map(|change| change["what"].as_str().unwrap()).collect();
    for kind in ["superblock", "descriptor of group 0", "inode 2"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    // A plan is no place for something else.
    let (code, text) = fsck(&["-f", "--plan", &path], &image);
    assert_eq!(code, 8, "{text}");
    assert!(file == std::fs::read(&path).unwrap());
}

/// A change anywhere that had a say in the plan: the superblock, a bitmap that stays, an inode, a directory.
#[test]
fn a_changed_image_is_refused_and_not_touched() {
    let image = damaged(&fixture::load("images/small-ext4.img.zst"));
    let (folder, path) = plan(&TempImage::of(&image).unwrap());
    let file = std::fs::read(&path).unwrap();
    let line = file.split(|byte| *byte == b'\n').next().unwrap();
    let header: serde_json::Value = serde_json::from_slice(line).unwrap();
    let runs: Vec<(u64, u64)> = serde_json::from_value(header["read"].clone()).unwrap();
    let size = header["block_size"].as_u64().unwrap();
    let mut tried = 0;
    for block in runs.iter().flat_map(|(first, count)| *first..first + count) {
        let changed = image.clone();
        let mut byte = [0];
        let at = block * size + 700;
        changed.read_at(at, &mut byte).unwrap();
        changed.write_at(at, &[byte[0] ^ 1]).unwrap();
        let store: Arc<dyn Store> = Arc::new(changed.clone());
        let plan = Plan::read(path.as_ref()).unwrap();
        let redo = folder.path().join("redo");
        let refused = apply(&store, &plan, &redo).unwrap_err().to_string();
        assert!(refused.contains(&format!("block {block} is not as it was")), "{refused}");
        assert!(MemoryStore::copy_of(store.as_ref()).unwrap().to_vec() == changed.to_vec());
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
    let other = TempImage::empty(image.size() + 4096).unwrap();
    let (code, text) = fsck(&["--apply", &path], &other);
    assert_eq!(code, 8, "{text}");
}

#[test]
fn hostile_plans_are_refused() {
    let image = TempImage::of(&damaged(&filesystem::ext4(8192, 1024))).unwrap();
    let (folder, path) = plan(&image);
    let whole = std::fs::read(&path).unwrap();
    let before = bytes(&image);
    let mut random = seed::Random::of("hostile plans");
    let hostile = folder.path().join("hostile");
    for round in 0..300 {
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(random.usize(..whole.len())),
            1 => bytes.push(0),
            _ => {
                let end = if random.bool() { 200 } else { whole.len() };
                let at = random.usize(..end);
                bytes[at] ^= 1 << random.u8(..8);
            }
        }
        std::fs::write(&hostile, bytes).unwrap();
        let read = Plan::read(&hostile);
        assert!(read.is_err(), "round {round}");
    }
    let numbers = [
        (r#""block_size":1024"#, r#""block_size":0"#),
        (r#""block_size":1024"#, r#""block_size":65536"#),
        (r#""version":1"#, r#""version":2"#),
        (r#""store_size":8388608"#, r#""store_size":1"#),
        (r#""read":[["#, r#""read":[[18446744073709551615,18446744073709551615],["#),
        (r#""read":[["#, r#""read":[[0,4611686018427387904],["#),
    ];
    for (from, to) in numbers {
        let text = replaced(&whole, from.as_bytes(), to.as_bytes());
        std::fs::write(&hostile, text).unwrap();
        let (code, text) = fsck(&["--apply", hostile.to_str().unwrap()], &image);
        assert_eq!(code, 8, "{to}: {text}");
        assert!(text.contains("is no plan of this version"), "{text}");
    }
    assert!(before == bytes(&image));
}

/// Replaces a text that has to be there.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the header has it");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

#[test]
fn contradicting_options_are_refused() {
    let image = TempImage::of(&filesystem::ext4(8192, 1024)).unwrap();
    for options in
        [&["--apply", "x", "-y"][..], &["--apply", "x", "--plan", "y"], &["--plan", "x", "-z", "y"]]
    {
        let (code, text) = fsck(options, &image);
        assert_eq!(code, 16, "{text}");
    }
}
