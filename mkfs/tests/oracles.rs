//! The program judged by others: e2fsck, mke2fs with the same options, the machine's kernel.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ext4kit_testkit::{kernel, oracle};

const UUID: &str = "11111111-2222-3333-4444-555555555555";
const SEED: &str = "hash_seed=11111111-2222-3333-4444-555555555556";
/// Seconds since 1970 that everybody takes for now.
const NOW: u64 = 1_700_000_000;
/// Features of 1.47.4's defaults that distributions' 1.47.0 leaves out; named so that both sides agree.
const SAME: &str = "^orphan_file,^metadata_csum_seed";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn mkfs(options: &[&str], image: &Path, size: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ext4kit-mkfs"));
    command.env("SOURCE_DATE_EPOCH", NOW.to_string());
    command.args(["-q", "-U", UUID, "-E", SEED]).args(options).arg(image).arg(size).output().unwrap()
}

fn made(options: &[&str], image: &Path, size: &str) {
    let output = mkfs(options, image, size);
    assert!(output.status.success(), "{options:?} {size}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The kernel's or e2fsck's word that nothing is wrong; e2fsck says nothing but its passes and the last line.
fn assert_clean(image: &Path, what: &str) {
    let Some(run) = oracle::run_on("e2fsck", &["-fn"], image) else { return };
    let complaints: Vec<&str> = run
        .stdout
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("Pass ") && !line.contains(" files ("))
        .collect();
    assert!(run.code == 0 && complaints.is_empty(), "{what}: exit {}, {complaints:?}", run.code);
}

/// The lines of `dumpe2fs -h`, without what may differ: what was written in all, and checksums over that.
fn header(image: &Path) -> Option<Vec<String>> {
    let run = oracle::run_on("dumpe2fs", &["-h"], image)?;
    let differs = ["Lifetime writes", "Checksum: ", "Journal checksum:"];
    let lines = run.stdout.lines().filter(|line| !differs.iter().any(|name| line.starts_with(name)));
    Some(lines.map(str::to_owned).collect())
}

fn assert_like_mke2fs(options: &[&str], folder: &Folder, ours: &Path, size: &str) {
    let theirs = folder.file("theirs");
    let mut arguments = vec!["-q", "-U", UUID, "-E", SEED];
    arguments.extend(options);
    let path = theirs.to_string_lossy().into_owned();
    arguments.extend([path.as_str(), size]);
    let Some(run) = oracle::run_at("mke2fs", &arguments, Some(NOW)) else { return };
    assert_eq!(run.code, 0, "mke2fs {options:?} {size}: {}", run.stderr);
    assert_eq!(header(ours), header(&theirs), "{options:?} {size}");
    std::fs::remove_file(theirs).unwrap();
}

#[test]
fn every_kind_block_size_and_size_is_what_mke2fs_makes() {
    let folder = Folder::new();
    for kind in ["ext2", "ext3", "ext4"] {
        for block_size in ["1024", "2048", "4096"] {
            for size in ["1M", "8M", "100M", "1G", "20G"] {
                let image = folder.file("ours");
                let options = ["-t", kind, "-b", block_size, "-O", SAME];
                made(&options, &image, size);
                assert_clean(&image, &format!("{options:?} {size}"));
                assert_like_mke2fs(&options, &folder, &image, size);
                std::fs::remove_file(image).unwrap();
            }
        }
    }
}

#[test]
fn options_give_what_they_give_in_mke2fs() {
    let folder = Folder::new();
    for options in [
        &["-t", "ext4", "-O", "^resize_inode"][..],
        &["-t", "ext4", "-O", "meta_bg,^resize_inode"],
        &["-t", "ext4", "-O", "sparse_super2"],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
        &["-t", "ext4", "-O", "^flex_bg"],
        &["-t", "ext4", "-O", "encrypt,verity,stable_inodes,large_dir,ea_inode"],
        &["-t", "ext4", "-O", "casefold"],
        &["-t", "ext4", "-O", "fast_commit"],
        &["-t", "ext4", "-O", "^64bit"],
        &["-t", "ext4", "-O", "^has_journal"],
        &["-t", "ext4", "-I", "128"],
        &["-t", "ext4", "-N", "100"],
        &["-t", "ext4", "-N", "50000"],
        &["-t", "ext4", "-m", "50"],
        &["-t", "ext4", "-g", "8192"],
        &["-t", "ext4", "-G", "4"],
        &["-t", "ext4", "-J", "size=8"],
        &["-t", "ext4", "-T", "largefile"],
        &["-t", "ext4", "-L", "label", "-M", "/mnt", "-e", "panic"],
        &["-t", "ext2", "-O", "none", "-r", "0"],
    ] {
        for size in ["64M", "1G", "1025M", "8195k"] {
            if size == "8195k" && (options.contains(&"-J") || options.contains(&"50000")) {
                continue;
            }
            let image = folder.file("ours");
            let mut all = vec!["-O", SAME];
            all.extend(options);
            made(&all, &image, size);
            assert_clean(&image, &format!("{all:?} {size}"));
            assert_like_mke2fs(&all, &folder, &image, size);
            std::fs::remove_file(image).unwrap();
        }
    }
}

#[test]
fn what_mke2fs_counts_otherwise_is_clean_too() {
    let folder = Folder::new();
    for options in [
        // Defaults of 1.47.4.
        &["-t", "ext4"][..],
        // The bitmaps and the copies of the superblock share clusters here; mke2fs starts new ones.
        &["-t", "ext4", "-O", "bigalloc"],
        &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "16384"],
        // mke2fs makes the root directory inline.
        &["-t", "ext4", "-O", "inline_data"],
        // mke2fs notes who made the filesystem.
        &["-t", "ext4", "-O", "mmp"],
        // mke2fs refuses until 64bit is left out by name.
        &["-t", "ext4", "-O", "^extent"],
        // mke2fs asks for -F where the page size is smaller.
        &["-t", "ext4", "-b", "65536"],
        &["-t", "ext4", "-O", "^resize_inode", "-G", "1048576"],
        &["-t", "ext4", "-i", "2048"],
        // Eight inodes a group: the ten reserved ones reach into the second.
        &["-t", "ext4", "-b", "1024", "-N", "64"],
    ] {
        for size in ["64M", "1G"] {
            let image = folder.file("ours");
            made(options, &image, size);
            assert_clean(&image, &format!("{options:?} {size}"));
            std::fs::remove_file(image).unwrap();
        }
    }
}

/// Whether the superblock says that there is a journal.
fn has_journal(image: &Path) -> bool {
    let mut features = [0; 4];
    std::fs::File::open(image).unwrap().read_exact_at(&mut features, 1024 + 0x5c).unwrap();
    u32::from_le_bytes(features) & 4 != 0
}

/// Neither mkfs nor mke2fs refuses one of the 45; but of fewer than 2048 blocks, which is too few for a journal, both make
/// an ext3 or ext4 without one.
#[test]
fn the_kernel_mounts_them_and_writes() {
    if !kernel::can_mount() {
        return;
    }
    let folder = Folder::new();
    let contents: Vec<u8> = (0..30_000u32).flat_map(u32::to_le_bytes).collect();
    for kind in ["ext2", "ext3", "ext4"] {
        for block_size in [1024, 2048, 4096] {
            for size in ["1M", "8M", "100M", "1G", "20G"] {
                let what = format!("{kind} -b {block_size} {size}");
                let image = folder.file("ours");
                made(&["-t", kind, "-b", &block_size.to_string()], &image, size);
                let blocks = image.metadata().unwrap().len() / block_size;
                assert_eq!(has_journal(&image), kind != "ext2" && blocks >= 2048, "{what}");
                let used = kernel::change(&image, |root| {
                    assert!(root.join("lost+found").is_dir(), "{what}");
                    std::fs::create_dir(root.join("folder")).unwrap();
                    std::fs::write(root.join("folder/file"), &contents).unwrap();
                });
                used.unwrap().unwrap_or_else(|said| panic!("{what}: {said}"));
                assert_clean(&image, &what);
                let file = kernel::look(&image, |root| std::fs::read(root.join("folder/file")).unwrap());
                assert!(file.unwrap().unwrap() == contents, "{what}");
                std::fs::remove_file(image).unwrap();
            }
        }
    }
}

#[test]
fn the_same_inputs_give_the_same_bytes_whatever_was_there() {
    let folder = Folder::new();
    let (first, second) = (folder.file("first"), folder.file("second"));
    made(&["-t", "ext4"], &first, "16M");
    std::fs::write(&second, vec![0xa5; 16 << 20]).unwrap();
    made(&["-t", "ext4", "-F"], &second, "16M");
    assert!(std::fs::read(&first).unwrap() == std::fs::read(&second).unwrap());
    std::fs::write(&second, vec![0xa5; 16 << 20]).unwrap();
    made(&["-t", "ext4", "-F", "-E", "nodiscard,lazy_itable_init=0"], &second, "16M");
    assert_clean(&second, "a used target that may not be discarded");
}

#[test]
fn bad_requests_get_one_line_and_write_nothing() {
    let folder = Folder::new();
    for (options, size, word) in [
        (&["-t", "ext9"][..], "8M", "ext9"),
        (&["-b", "1000"], "8M", "1000"),
        (&["-G", "3", "-t", "ext4"], "64M", "power of 2"),
        (&["-t", "ext4", "-G", "4294967296"], "64M", "power of 2"),
        (&["-O", "nonsense"], "8M", "nonsense"),
        (&["-O", "bigalloc"], "8M", "extent"),
        (&["-m", "51"], "8M", "percentage"),
        (&["-L", "a label of seventeen"], "8M", "longer than 16"),
        (&["-t", "ext4"], "16k", "too few"),
        (&["-O", "quota", "-t", "ext4"], "64M", "not built"),
        (&["-t", "ext4", "-U", "not-a-uuid"], "8M", "UUID"),
        (&["-t", "ext4"], "eight", "number"),
    ] {
        let image = folder.file("refused");
        let output = mkfs(options, &image, size);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{options:?} {size}: {said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{options:?} {size}: {said}");
        assert!(!image.exists(), "{options:?} {size} left a file behind");
    }
    let missing = folder.file("missing");
    let output = Command::new(env!("CARGO_BIN_EXE_ext4kit-mkfs")).arg(&missing).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!missing.exists());
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = Folder::new();
    let image = folder.file("planned");
    let output = mkfs(&["-n", "-t", "ext4", "--json"], &image, "64M");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"inodes\":16384"), "{output:?}");
    assert!(!image.exists());
}
