//! What commands print, against the debugfs of e2fsprogs, to the byte.
//!
//! Runs where debugfs and mke2fs are installed. Besides images made here, every file `*.img.zst` in the folder that
//! `EXT4KIT_IMAGES` names is taken, if it names one.
//!
//! Known differences, not compared here:
//! - times that 32 bits do not hold: `ls -l` and the times of removed files are wrong in debugfs before 1970 and after
//!   2105;
//! - `supported_features` names what ext4kit reads;
//! - `ls -d` where a removed entry's bytes are no entry any more: debugfs goes on reading them;
//! - `logdump` of a fast commit's names (debugfs prints a byte too many) and of the area's default size (it prints 0);
//! - `find_free_block` with clusters, where debugfs tells of the first block only;
//! - blocks outside of the filesystem: an error here;
//! - messages on standard error, but for the most common ones.

use std::path::{Path, PathBuf};
use std::process::Command;

use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{MemoryStore, fixture, oracle};

/// Requests that make sense on every image.
const REQUESTS: &[&str] = &[
    "stats",
    "stats -h",
    "features",
    "params",
    "pwd",
    "ls",
    "ls -l",
    "ls -p",
    "ls -c",
    "ls -l lost+found",
    "ls lost+found",
    "ls -p lost+found",
    "stat <1>",
    "stat <2>",
    "stat <5>",
    "stat <7>",
    "stat <8>",
    "stat <11>",
    "stat <12>",
    "stat <13>",
    "blocks <2>",
    "blocks <7>",
    "blocks <8>",
    "ex <8>",
    "ex -n <8>",
    "ex -l <8>",
    "bmap <2> 0",
    "bmap <8> 3",
    "imap <2>",
    "imap <12>",
    "testi <12>",
    "testi <13>",
    "testb 100 3",
    "ffi",
    "ncheck 11 12 13",
    "icheck 1 9 50 100",
    "bdump 0",
    "bdump 1",
    "bdump -f <2> 0",
    "idump <2>",
    "idump -b <8>",
    "ea_list <12>",
    "logdump",
    "logdump -a",
    "logdump -S",
    "dirsearch / lost+found",
    "dx_hash -h half_md4 foo",
    "dx_hash -h tea foo",
    "dx_hash foo",
    "cat <12>",
];

fn ours(request: &str, image: &Path) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ext4kit-debugfs"));
    command.args(["-R", request]).arg(image).env("TZ", "GMT0").env("LC_ALL", "C");
    command.output().unwrap().stdout
}

/// The requests whose answers differ.
fn differences(image: &Path, requests: &[&str]) -> Option<Vec<String>> {
    let mut different = Vec::new();
    let fast_commits = oracle::run_on("debugfs", &["-R", "features"], image)?.stdout.contains("fast_commit");
    // See above for what debugfs prints of fast commits.
    let compared = requests.iter().filter(|request| !(fast_commits && request.starts_with("logdump")));
    for request in compared {
        let theirs = oracle::run_on("debugfs", &["-R", request], image)?;
        let ours = String::from_utf8_lossy(&ours(request, image)).into_owned();
        if ours != theirs.stdout {
            different.push(format!("{request}\n--- debugfs\n{}\n--- ours\n{ours}", theirs.stdout));
        }
    }
    Some(different)
}

fn assert_same(store: &MemoryStore, name: &str) {
    let image = TempImage::of(store).unwrap();
    if let Some(different) = differences(&image.path(), REQUESTS) {
        assert!(different.is_empty(), "{name}: {}", different.join("\n"));
    }
}

#[test]
fn the_fixture_reads_the_same() {
    assert_same(&fixture::load("images/small-ext4.img.zst"), "small-ext4");
}

#[test]
fn new_filesystems_read_the_same() {
    let cases: [(u64, &[&str]); 7] = [
        (8 << 20, &["-t", "ext2", "-b", "1024"]),
        (32 << 20, &["-t", "ext3", "-I", "128", "-b", "1024"]),
        (64 << 20, &["-t", "ext4"]),
        (64 << 20, &["-t", "ext4", "-O", "quota,project,^resize_inode,meta_bg"]),
        (64 << 20, &["-t", "ext4", "-O", "bigalloc,^has_journal"]),
        (64 << 20, &["-t", "ext4", "-O", "uninit_bg,^metadata_csum,^64bit", "-E", "lazy_itable_init=1"]),
        (64 << 20, &["-t", "ext4", "-O", "orphan_file,mmp,sparse_super2", "-L", "label", "-M", "/mnt/x"]),
    ];
    for (size, options) in cases {
        if let Some(store) = oracle::mke2fs(size, options) {
            assert_same(&store, &options.join(" "));
        }
    }
}

#[test]
fn images_of_a_folder_read_the_same() {
    let Some(folder) = std::env::var_os("EXT4KIT_IMAGES") else { return };
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<PathBuf> =
        files.filter(|path| path.to_string_lossy().ends_with(".img.zst")).collect();
    images.sort();
    for path in images {
        assert_same(&fixture::unpack(&path).unwrap(), &path.to_string_lossy());
    }
}

#[test]
fn failures_are_told_in_the_words_that_scripts_look_for() {
    let store = fixture::load("images/small-ext4.img.zst");
    let image = TempImage::of(&store).unwrap();
    let run = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ext4kit-debugfs"));
        std::os::unix::process::CommandExt::arg0(&mut command, name);
        let output = command.args(arguments).arg(image.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run("debugfs", &["-R", "stat /nope"]);
    assert_eq!(code, Some(0), "scripts of debugfs rely on it");
    assert!(text.contains("/nope: File not found by ext2_lookup"), "{text}");
    assert_eq!(run("ext4kit-debugfs", &["-R", "stat /nope"]).0, Some(1));
    assert_eq!(run("debugfs", &["--strict", "-R", "stat /nope"]).0, Some(1));
    assert_eq!(run("debugfs", &["-R", "bogus"]).0, Some(1));
    assert_eq!(run("ext4kit-debugfs", &["-R", "pwd"]).0, Some(0));
    assert!(run("debugfs", &["-w", "-R", "pwd"]).1.contains("writing is not built yet"));
    assert!(run("debugfs", &["-c", "-R", "testb 100"]).1.contains("Filesystem bitmaps not loaded"));
}
