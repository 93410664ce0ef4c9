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
//! - `logdump -i` where inodes are not of 128 bytes: debugfs looks for them as if they were;
//! - `logdump -O`: debugfs prints an area of fast commits also where there is none, names the sequence that it expects
//!   instead of the one that is there with each descriptor, and may go round the log without end;
//! - `logdump -s` where the journal's inode has extents: debugfs cannot read it;
//! - `logdump -f` of a journal with blocks of another size than the filesystem's, which debugfs misreads;
//! - `logdump` of a fast commit's names (debugfs prints a byte too many) and of the area's default size (it prints 0);
//! - `find_free_block` with clusters, where debugfs tells of the first block only;
//! - blocks outside of the filesystem: an error here;
//! - messages on standard error, but for the most common ones.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{MemoryStore, fixture, kernel, oracle};

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

const LOGDUMPS: &[&str] = &[
    "logdump",
    "logdump -a",
    "logdump -ca",
    "logdump -c",
    "logdump -aS",
    "logdump -s",
    "logdump -Sas",
    "logdump -O",
    "logdump -On 2",
    "logdump -On 1000",
    "logdump -n 1",
    "logdump -b 100",
    "logdump -ab 100",
    "logdump -cb 100",
    "logdump -i <2>",
    "logdump -i <12>",
    "logdump -i <13>",
    "logdump -ai <12>",
    "logdump -ci <14>",
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

/// A journal that a kernel left, seen in every way that `logdump` has.
#[test]
fn journals_of_the_kernel_read_the_same() {
    let options = ["-t", "ext3", "-I", "128", "-b", "1024", "-O", "^dir_index"];
    let Some(store) = oracle::mke2fs(16 << 20, &options) else { return };
    let image = TempImage::of(&store).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let used = kernel::change(&image.path(), |root| {
        for (name, size) in [("small", 10), ("large", 300_000), ("other", 5000)] {
            let path = root.join(name);
            std::fs::write(&path, vec![b'x'; size]).unwrap();
            std::os::unix::fs::symlink("/nope", root.join(format!("to-{name}"))).unwrap();
            File::open(path).unwrap().sync_all().unwrap();
        }
        // While it is mounted: afterwards nothing of the journal waits any more.
        std::fs::copy(image.path(), &live).unwrap();
    });
    let Some(used) = used else { return };
    used.unwrap();
    let journal = folder.path().join("journal");
    let dumped = ours(&format!("dump <8> {}", journal.display()), &live);
    assert_eq!(String::from_utf8_lossy(&dumped), "");
    let device = folder.path().join("device");
    let path = device.to_string_lossy().into_owned();
    let made = oracle::run("mke2fs", &["-q", "-O", "journal_dev", "-b", "1024", &path, "4M"]).unwrap();
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mut requests: Vec<String> = LOGDUMPS.iter().map(|request| (*request).to_owned()).collect();
    requests.push(format!("logdump -aSf {}", journal.display()));
    requests.push(format!("logdump -aSf {}", device.display()));
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let different = differences(&live, &requests).unwrap();
    assert!(different.is_empty(), "{}", different.join("\n"));
    let inode = String::from_utf8(ours("logdump -i <13>", &live)).unwrap();
    assert!(inode.contains("(inode block for inode 13):") && inode.contains("Fast link dest"), "{inode}");
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
