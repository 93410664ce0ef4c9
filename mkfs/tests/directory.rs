//! `-d`: the kernel's view of the image is the source's tree.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

use ext4kit_testkit::tree::{Tree, data_map};
use ext4kit_testkit::{kernel, oracle, skip};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, makedev, mknodat};

const MIB: u64 = 1 << 20;

fn mkfs(arguments: &[&str], source: &Path, image: &Path, size: &str) -> Output {
    mkfs_at(None, arguments, source, image, size)
}

fn mkfs_at(epoch: Option<u64>, arguments: &[&str], source: &Path, image: &Path, size: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ext4kit-mkfs"));
    command.arg("-q").args(arguments).arg("-d").arg(source).arg(image).arg(size);
    command.env_remove("SOURCE_DATE_EPOCH").env_remove("E2FSPROGS_FAKE_TIME");
    if let Some(epoch) = epoch {
        command.env("SOURCE_DATE_EPOCH", epoch.to_string());
    }
    command.output().unwrap()
}

fn assert_made(output: &Output, image: &Path) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    if let Some(run) = oracle::run_on("e2fsck", &["-fn"], image) {
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    }
}

fn set_modified(path: &Path, seconds: i64, nanoseconds: u32) {
    let duration = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH - duration } else { UNIX_EPOCH + duration };
    let times = FileTimes::new().set_modified(time + Duration::from_nanos(nanoseconds.into()));
    File::open(path).unwrap().set_times(times).unwrap();
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    match lsetxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => {}
        Err(error) => skip::missing(&format!("{name} cannot be set here: {error}")),
    }
}

/// A tree with a file of every kind. What needs root is left out without it.
fn sample(root: &Path) {
    let path = |name: &str| root.join(name);
    fs::create_dir(path("dir")).unwrap();
    fs::create_dir(path("dir/empty")).unwrap();
    fs::create_dir(path("many")).unwrap();
    for number in 0..900 {
        fs::write(path(&format!("many/file-{number}")), format!("{number}\n")).unwrap();
    }
    fs::write(path("dir/small"), b"contents").unwrap();
    fs::hard_link(path("dir/small"), path("a-link")).unwrap();
    fs::hard_link(path("dir/small"), path("dir/empty/another")).unwrap();
    fs::write(path("zeros"), vec![0; 100_000]).unwrap();
    let bytes: Vec<u8> = (0..700_000u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
    fs::write(path("large"), bytes).unwrap();
    fs::write(path("empty"), b"").unwrap();
    let sparse = File::create(path("sparse")).unwrap();
    sparse.set_len(48 * MIB).unwrap();
    sparse.write_all_at(&vec![7; 1 << 20], 40 * MIB).unwrap();
    symlink("dir/small", path("short")).unwrap();
    symlink("x".repeat(59), path("59")).unwrap();
    symlink("x".repeat(60), path("60")).unwrap();
    symlink("y".repeat(1000), path("long")).unwrap();
    fs::write(root.join(OsStr::from_bytes(&[0xff, b'n', 0x80])), b"not utf-8").unwrap();
    fs::write(path(&"n".repeat(255)), b"long name").unwrap();
    mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    UnixListener::bind(path("socket")).unwrap();
    let list = [
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255,
        255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    set_attribute(&path("dir/small"), "system.posix_acl_access", &list);
    set_attribute(&path("dir"), "system.posix_acl_default", &list);
    set_attribute(&path("large"), "user.medium", &[b'm'; 300]);
    set_attribute(&path("zeros"), "user.medium", &[b'm'; 300]);
    set_attribute(&path("zeros"), "user.empty", b"");
    set_attribute(root, "user.of-the-root", b"r");
    if rustix::process::geteuid().is_root() {
        let device = |name: &str, kind, major, minor| {
            if let Err(error) =
                mknodat(CWD, path(name), kind, Mode::from_raw_mode(0o600), makedev(major, minor))
            {
                skip::missing(&format!("{name} cannot be made: {error}"));
            }
        };
        device("character", FileType::CharacterDevice, 1, 3);
        device("block", FileType::BlockDevice, 300, 70_000);
        set_attribute(&path("short"), "trusted.on-a-link", b"t");
        set_attribute(
            &path("large"),
            "security.capability",
            &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        lchown(path("large"), Some(70_000), Some(4_012_300)).unwrap();
        lchown(path("short"), Some(70_000), Some(4_012_300)).unwrap();
        lchown(root, Some(12), Some(34)).unwrap();
    }
    set_modified(&path("large"), 2_208_988_800, 123_456_789);
    set_modified(&path("empty"), -315_619_200, 0);
    set_modified(&path("dir"), 1_000_000_000, 999_999_999);
    fs::set_permissions(path("empty"), fs::Permissions::from_mode(0o6711)).unwrap();
    fs::set_permissions(path("many"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(path("dir"), fs::Permissions::from_mode(0o500)).unwrap();
    set_modified(root, 1_234_567_890, 5);
    fs::set_permissions(root, fs::Permissions::from_mode(0o2751)).unwrap();
}

struct Folder {
    temporary: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        fs::create_dir(temporary.path().join("source")).unwrap();
        Self { temporary }
    }

    fn source(&self) -> PathBuf {
        self.temporary.path().join("source")
    }

    fn image(&self) -> PathBuf {
        self.temporary.path().join("image")
    }
}

#[test]
fn the_kernel_sees_the_source() {
    let folder = Folder::new();
    sample(&folder.source());
    let source = Tree::of(&folder.source()).unwrap();
    for arguments in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-O", "inline_data,ea_inode", "-b", "1024"],
        &["-t", "ext4", "-O", "bigalloc,^resize_inode", "-C", "16384"],
        &["-t", "ext2", "-I", "256"],
        &["-t", "ext3", "-b", "2048", "-I", "256"],
    ] {
        let image = folder.image();
        let _ = fs::remove_file(&image);
        assert_made(&mkfs(arguments, &folder.source(), &image, "128M"), &image);
        let seen = kernel::look(&image, |root| {
            let holes = ["sparse", "zeros"].map(|name| data_map(&root.join(name)).unwrap());
            (Tree::of(root).unwrap().without("lost+found"), holes)
        });
        let Some(seen) = seen else { continue };
        let (seen, [sparse, zeros]) = seen.unwrap();
        assert_eq!(source.differences(&seen), [] as [String; 0], "{arguments:?}");
        assert_eq!(sparse.len(), 1, "{arguments:?}");
        assert!(sparse[0].start >= 40 * MIB - 65_536 && sparse[0].end <= 41 * MIB + 65_536, "{sparse:?}");
        assert_eq!(zeros, [], "blocks of zeros are holes");
    }
}

/// Field case: contents beyond 2 GiB were refused.
#[test]
fn files_beyond_2_gib_keep_their_contents_and_holes() {
    let folder = Folder::new();
    let file = File::create(folder.source().join("large")).unwrap();
    file.set_len(3072 * MIB).unwrap();
    file.write_all_at(&vec![7; 1 << 20], 3000 * MIB).unwrap();
    for arguments in [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024"], &["-t", "ext2", "-b", "4096"]] {
        let image = folder.image();
        let _ = fs::remove_file(&image);
        assert_made(&mkfs(arguments, &folder.source(), &image, "64M"), &image);
        let seen = kernel::look(&image, |root| {
            let mut bytes = vec![0; 3 << 20];
            let path = root.join("large");
            File::open(&path).unwrap().read_exact_at(&mut bytes, 2999 * MIB).unwrap();
            (fs::metadata(&path).unwrap().len(), data_map(&path).unwrap(), bytes)
        });
        let Some((size, data, bytes)) = seen.map(Result::unwrap) else { continue };
        assert_eq!(size, 3072 * MIB);
        assert!(matches!(data.as_slice(), [data] if *data == (3000 * MIB..3001 * MIB)), "{data:?}");
        assert!(
            bytes.chunks(1 << 20).zip([0, 7, 0]).all(|(part, byte)| part.iter().all(|found| *found == byte))
        );
    }
}

/// Field case: blocks of values in inodes of their own were missing from the owner's count.
#[test]
fn large_attributes_go_to_inodes_of_their_own() {
    let folder = Folder::new();
    fs::write(folder.source().join("file"), b"x").unwrap();
    set_attribute(&folder.source().join("file"), "user.big", &[b'v'; 3000]);
    let image = folder.image();
    let arguments = ["-t", "ext4", "-O", "ea_inode", "-b", "1024"];
    assert_made(&mkfs(&arguments, &folder.source(), &image, "48M"), &image);
    let source = Tree::of(&folder.source()).unwrap();
    if let Some(seen) = kernel::look(&image, |root| Tree::of(root).unwrap()) {
        assert_eq!(source.differences(&seen.unwrap().without("lost+found")), [] as [String; 0]);
    }
    fs::remove_file(&image).unwrap();
    let arguments = ["-t", "ext4", "-O", "^ea_inode", "-b", "1024", "-E", "no_copy_xattrs"];
    assert_made(&mkfs(&arguments, &folder.source(), &image, "48M"), &image);
}

/// Field case: a copy of the tree, with other access and change times, gave another image.
#[test]
fn equal_trees_give_equal_bytes() {
    let folder = Folder::new();
    sample(&folder.source());
    let copy = folder.temporary.path().join("copy");
    let copied = Command::new("cp").arg("-a").arg(folder.source()).arg(&copy).status();
    assert!(copied.unwrap().success());
    let touched = Command::new("touch").args(["-a", "-d", "2002-01-01"]).arg(copy.join("large")).status();
    assert!(touched.unwrap().success());
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let seed = format!("hash_seed={uuid}");
    let arguments = ["-t", "ext4", "-U", uuid, "-E", &seed];
    let images = [folder.source(), copy].map(|source| {
        let image = folder.image();
        let _ = fs::remove_file(&image);
        assert_made(&mkfs_at(Some(1_700_000_000), &arguments, &source, &image, "32M"), &image);
        fs::read(&image).unwrap()
    });
    assert!(images[0] == images[1]);
}

#[test]
fn a_failure_leaves_no_filesystem_and_names_the_file() {
    let folder = Folder::new();
    fs::create_dir(folder.source().join("dir")).unwrap();
    fs::write(folder.source().join("dir/file"), vec![1; 20 << 20]).unwrap();
    let image = folder.image();
    let empty = folder.temporary.path().join("nothing");
    fs::create_dir(&empty).unwrap();
    assert_made(&mkfs(&[], &empty, &image, "8M"), &image);
    let output = mkfs(&["-F"], &folder.source(), &image, "8M");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/dir/file: no free block is left"), "{said}");
    assert_eq!(said.lines().count(), 1);
    assert_eq!(fs::read(&image).unwrap()[1024 + 0x38..][..2], [0, 0]);
    let before = fs::metadata(&image).unwrap().modified().unwrap();
    let output = mkfs(&[], Path::new("/nowhere/at/all"), &image, "8M");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/nowhere/at/all"), "{said}");
    assert_eq!(fs::metadata(&image).unwrap().modified().unwrap(), before);
}

#[test]
fn the_image_is_not_copied_into_itself() {
    let folder = Folder::new();
    let image = folder.source().join("image");
    let output = mkfs(&["-t", "ext4"], &folder.source(), &image, "8M");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/image: this is the file"), "{said}");
}

#[test]
fn root_options_win_over_the_source() {
    let folder = Folder::new();
    fs::set_permissions(folder.source(), fs::Permissions::from_mode(0o700)).unwrap();
    let image = folder.image();
    let arguments = ["-E", "root_owner=70000:5,root_perms=1775"];
    assert_made(&mkfs(&arguments, &folder.source(), &image, "8M"), &image);
    let Some(run) = oracle::run_on("debugfs", &["-R", "stat /"], &image) else { return };
    assert!(
        run.stdout.contains("Mode:  01775") && run.stdout.contains("User: 70000   Group:     5"),
        "{}",
        run.stdout
    );
}

/// Deep trees neither run out of descriptors nor of the length of a path.
#[test]
fn trees_deeper_than_any_path_are_copied() {
    let folder = Folder::new();
    let name = "d".repeat(200);
    let mut at = rustix::fs::open(folder.source(), rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..300 {
        rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, name.as_str(), rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let image = folder.image();
    assert_made(&mkfs(&["-t", "ext4"], &folder.source(), &image, "16M"), &image);
    let run = oracle::run_on("dumpe2fs", &["-h"], &image);
    assert!(run.is_none_or(|run| run.stdout.contains("Free inodes:")));
}

/// Field case: the umask, or modes that lock their owner out, came out other than they were. Without root, what cannot
/// be read is an error that names it.
#[test]
fn modes_are_kept_whoever_copies() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let folder = Folder::new();
    let path = |name: &str| folder.source().join(name);
    fs::create_dir(path("d")).unwrap();
    fs::write(path("d/file"), b"x").unwrap();
    // The program's own folder may be closed to others. Another program makes the copy: were it open for writing here, a
    // child that another test starts at that moment would hold it open, and it could not be run.
    let program = folder.temporary.path().join("mkfs");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_ext4kit-mkfs")).arg(&program).status();
    assert!(copied.unwrap().success());
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        fs::set_permissions(folder.temporary.path(), fs::Permissions::from_mode(0o777)).unwrap();
        for name in ["", "d", "d/file"] {
            lchown(path(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    // Last, for a change of owner clears some of it.
    for (name, mode) in [("d/file", 0o4444), ("d", 0o555)] {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let image = folder.image();
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&program).arg(folder.source()).arg(&image);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    };
    let script = "umask 077; exec \"$1\" -q -F -t ext4 -d \"$2\" \"$3\" 8M";
    assert_made(&run(script), &image);
    for (name, mode) in [("/d", "Mode:  0555"), ("/d/file", "Mode:  04444")] {
        let Some(run) = oracle::run_on("debugfs", &["-R", &format!("stat {name}")], &image) else { return };
        assert!(run.stdout.contains(mode), "{}", run.stdout);
    }
    fs::set_permissions(path("d"), fs::Permissions::from_mode(0o0)).unwrap();
    let output = run(script);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/source/d: Permission denied"), "{said}");
    fs::set_permissions(path("d"), fs::Permissions::from_mode(0o700)).unwrap();
}
