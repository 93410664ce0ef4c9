//! The program as its callers see it: exit codes, last lines, one line for each failure, nothing written.

use std::process::{Command, Output};

use ext4kit_format::InodeNumber;
use ext4kit_format::store::MemoryStore;
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::fixture;
use ext4kit_testkit::image::TempImage;

fn small() -> MemoryStore {
    fixture::load("images/small-ext4.img.zst")
}

fn damaged() -> MemoryStore {
    Damage::to(&small()).inode(InodeNumber::ROOT, |inode| inode.set_links(77)).finish()
}

fn fsck(options: &[&str], image: &TempImage) -> (i32, String, String) {
    output(
        Command::new(env!("CARGO_BIN_EXE_ext4kit-fsck")).args(options).arg(image.path()).output().unwrap(),
        image,
    )
}

fn output(output: Output, image: &TempImage) -> (i32, String, String) {
    let text =
        |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&*image.path().to_string_lossy(), "IMAGE");
    (output.status.code().expect("it was not killed"), text(output.stdout), text(output.stderr))
}

#[test]
fn a_clean_filesystem_is_told_so() {
    let image = TempImage::of(&small()).unwrap();
    for options in [&["-n"][..], &["-p"], &["-a"], &["-y"], &["--policy", "safe"]] {
        let (code, out, _) = fsck(options, &image);
        assert_eq!(code, 0);
        assert!(out.starts_with("IMAGE: clean, ") && out.ends_with(" blocks\n"), "{out}");
        assert_eq!(out.lines().count(), 1);
    }
    let (code, out, errors) = fsck(&["-fn"], &image);
    assert_eq!(code, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "Pass 1: Checking inodes, blocks, and sizes");
    assert_eq!(lines[4], "Pass 5: Checking group summary information");
    assert!(lines[5].contains("% non-contiguous), "), "{out}");
    assert!(errors.starts_with("ext4kit-fsck "), "{errors}");
}

#[test]
fn nothing_is_written_with_n_and_everything_is_repaired_with_y() {
    let image = TempImage::of(&damaged()).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let (code, out, _) = fsck(&["-fn"], &image);
    assert_eq!(code, 4);
    assert!(
        out.contains("inode 2: link count is 77, should be 4 [802] (set i_links_count to 4? no)"),
        "{out}"
    );
    assert!(out.contains("IMAGE: ********** WARNING: Filesystem still has errors **********"), "{out}");
    assert!(before == std::fs::read(image.path()).unwrap());
    let (code, out, _) = fsck(&["-fy"], &image);
    assert_eq!(code, 1);
    assert!(
        out.contains("inode 2: link count is 77, should be 4 [802] (set i_links_count to 4? yes)"),
        "{out}"
    );
    assert!(out.contains("IMAGE: ***** FILE SYSTEM WAS MODIFIED *****"), "{out}");
    let repaired = std::fs::read(image.path()).unwrap();
    let (code, out, _) = fsck(&["-fy"], &image);
    assert_eq!(code, 0, "{out}");
    assert!(repaired == std::fs::read(image.path()).unwrap(), "a clean check writes nothing");
}

/// Preening repairs what is safe, and gives up at the first problem that is not, with nothing written.
#[test]
fn preening_repairs_what_is_safe_or_nothing() {
    let image = TempImage::of(&damaged()).unwrap();
    let (code, out, _) = fsck(&["-fp"], &image);
    assert_eq!(code, 1, "{out}");
    assert!(out.starts_with("IMAGE: inode 2: link count is 77, should be 4 [802]"), "{out}");
    let worse = Damage::to(&damaged()).inode(InodeNumber::ROOT, |inode| inode.set_mode(0)).finish();
    let image = TempImage::of(&worse).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let (code, out, _) = fsck(&["-fp"], &image);
    assert_eq!(code, 4, "{out}");
    assert!(out.contains("IMAGE: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY."), "{out}");
    assert!(before == std::fs::read(image.path()).unwrap());
}

/// Where nobody can be asked, a repair that needs an answer is not begun.
#[test]
fn without_a_terminal_somebody_has_to_decide_before() {
    let image = TempImage::of(&damaged()).unwrap();
    let (code, out, errors) = fsck(&["-f"], &image);
    assert_eq!((code, out.as_str()), (8, ""));
    assert!(errors.contains("this is no terminal; give -p, -n, -y or --policy"), "{errors}");
}

#[test]
fn findings_are_data() {
    let image = TempImage::of(&damaged()).unwrap();
    let (code, out, _) = fsck(&["-fn", "--json"], &image);
    assert_eq!((code, out.lines().count()), (4, 1));
    assert!(out.contains(r#""code":802,"grade":"preen","place":"inode 2""#), "{out}");
    assert!(out.contains(r#""exit_code":4"#), "{out}");
}

#[test]
fn wrong_calls_and_what_is_no_filesystem() {
    let image = TempImage::of(&small()).unwrap();
    let empty = TempImage::empty(1 << 16).unwrap();
    let cases: [(&[&str], &TempImage, i32, &str); 14] = [
        (&["-n", "-p"], &image, 16, "only one of -p (or -a), -n and -y may be given"),
        (&["-n", "-D"], &image, 16, "-n: it writes nothing"),
        (
            &["--policy", "bold"],
            &image,
            16,
            "--policy: `bold` is no policy; there are safe, no-data-loss and all",
        ),
        (&["-n", "-c"], &image, 16, "-c: the list of bad blocks cannot be changed with -n"),
        (&["-n", "-E", "check_encoding"], &image, 16, "-E: check_encoding is not built yet"),
        (&["-n", "-E", "ea_ver=3"], &image, 16, "-E: ea_ver is 1 or 2"),
        (&["-n", "-E", "readahead_kb=much"], &image, 16, "-E: readahead_kb needs a number"),
        (&["-n", "-E", "discard=1"], &image, 16, "-E: discard takes no value"),
        (&["-y", "-l", "a", "-L", "b"], &image, 16, "-L: only one of -l and -L may be given"),
        (&["-y", "-l", "/nonexistent"], &image, 8, "/nonexistent: "),
        (&["-n", "-E", "nonsense"], &image, 16, "-E: `nonsense` is no extended option"),
        (&["-n", "-B", "1000", "-b", "1"], &image, 16, "-B: 1000 is no block size"),
        (&["-fn"], &empty, 8, "magic number is 0x0, not 0xef53"),
        (&["-fn", "-b", "8193"], &image, 8, "too few for a superblock"),
    ];
    for (options, image, wanted, text) in cases {
        let (code, out, errors) = fsck(options, image);
        assert_eq!((code, out.as_str()), (wanted, ""), "{options:?}");
        // The version, then one line.
        assert_eq!(errors.lines().count(), 2, "{errors}");
        assert!(errors.contains(text), "{options:?}: {errors}");
    }
}

#[test]
fn progress_lines_name_the_device_as_typed() {
    let image = TempImage::of(&small()).unwrap();
    let (code, out, _) = fsck(&["-fn", "-C", "1"], &image);
    assert_eq!(code, 0);
    assert!(out.lines().any(|line| line == "1 1 1 IMAGE"), "{out}");
    assert!(out.lines().any(|line| line == "5 1 1 IMAGE"), "{out}");
}
