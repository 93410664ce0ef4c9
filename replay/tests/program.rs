//! The program as its callers see it: exit codes and what it leaves behind, on journals that a real kernel left.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ext4kit_format::image::Image;
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{fixture, image, oracle};

fn replay(arguments: &[&str], image: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ext4kit-replay"));
    command.args(arguments).arg(image).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A small image that a kernel left with a journal to replay.
fn dirty() -> (TempImage, PathBuf) {
    let image = TempImage::of(&fixture::load("images/dirty-churn-4k.img.zst")).unwrap();
    let path = image.path();
    (image, path)
}

#[test]
fn a_dirty_image_is_recovered_once() {
    let (_keep, path) = dirty();
    let first = replay(&[], &path);
    assert_eq!(first.status.code(), Some(1), "{}", text(&first));
    let recovered = image::load(&path).unwrap();
    assert!(!Image::open(std::sync::Arc::new(recovered.clone())).unwrap().needs_recovery());
    let second = replay(&[], &path);
    assert_eq!(second.status.code(), Some(0), "{}", text(&second));
    assert!(text(&second).contains("clean, nothing to do"));
    assert!(image::load(&path).unwrap().to_vec() == recovered.to_vec(), "the second run changed nothing");
}

#[test]
fn the_journal_of_the_kernel_is_replayed_as_e2fsck_does() {
    let (_keep, ours) = dirty();
    let (_keep_too, theirs) = dirty();
    assert_eq!(replay(&["-q"], &ours).status.code(), Some(1));
    // Without -f, e2fsck only replays; orphans and counts are then put right by both in the same way.
    let Some(_) = oracle::run_on("e2fsck", &["-fy"], &theirs) else { return };
    let Some(run) = oracle::run_on("e2fsck", &["-fy"], &ours) else { return };
    assert!((0..=1).contains(&run.code), "{run:?}");
    let [ours, theirs] = [ours, theirs].map(|path| {
        let tree = ext4kit_testkit::kernel::read_tree(&image::load(&path).unwrap())?;
        Some(tree.unwrap())
    });
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
    assert_eq!(ours.differences(&theirs), Vec::<String>::new());
}

#[test]
fn looking_changes_nothing() {
    let (_keep, path) = dirty();
    let before = image::load(&path).unwrap().to_vec();
    let listed = replay(&["--list", "-v"], &path);
    assert_eq!(listed.status.code(), Some(0), "{}", text(&listed));
    assert!(text(&listed).contains("inode table of group 0"), "{}", text(&listed));
    let planned = replay(&["--dry-run", "--json"], &path);
    assert_eq!(planned.status.code(), Some(1));
    assert!(text(&planned).contains("\"dry_run\":true"), "{}", text(&planned));
    assert!(image::load(&path).unwrap().to_vec() == before);
}

#[test]
fn a_copy_is_recovered_and_the_input_left_alone() {
    let (_keep, path) = dirty();
    let before = image::load(&path).unwrap().to_vec();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("recovered.img");
    let run = replay(&["--to", target.to_str().unwrap()], &path);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(image::load(&path).unwrap().to_vec() == before);
    assert_eq!(replay(&["-q"], &target).status.code(), Some(0));
}

#[test]
fn what_is_no_filesystem_gets_one_line() {
    let image = TempImage::empty(1 << 20).unwrap();
    let run = replay(&[], &image.path());
    assert_eq!(run.status.code(), Some(8));
    assert_eq!(text(&run).lines().count(), 1, "{}", text(&run));
    let missing = replay(&[], Path::new("no-such-image"));
    assert_eq!(missing.status.code(), Some(8));
    assert_eq!(replay(&["--no-such-option"], &image.path()).status.code(), Some(16));
}
