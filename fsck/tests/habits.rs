//! What init systems, scripts and other programs rely on when they call `fsck.ext4`.

mod calls;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use calls::{answered, command, fsck, told};
use ext4kit_format::InodeNumber;
use ext4kit_format::image::Image;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{filesystem, fixture, oracle};

fn small() -> MemoryStore {
    fixture::load("images/small-ext4.img.zst")
}

fn damaged() -> MemoryStore {
    Damage::to(&small()).inode(InodeNumber::ROOT, |inode| inode.set_links(77)).finish()
}

fn last_check(image: &TempImage) -> u32 {
    let store = image.load().unwrap();
    Image::open(std::sync::Arc::new(store)).unwrap().superblock().s_lastcheck.get()
}

/// Boot messages are of many devices: each line says of which it is, and nothing is said twice.
#[test]
fn preening_names_the_device_in_each_line() {
    let image = TempImage::of(&damaged()).unwrap();
    let (code, out, _) = fsck(&["-a", "-f", "-C0"], &image);
    assert_eq!(code, 1);
    assert!(out.lines().all(|line| line.starts_with("IMAGE: ")), "{out}");
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(!out.contains("MODIFIED"), "{out}");
}

/// `-T`, `-l` and `-M` are those of the wrapper fsck(8); what it hands on is this.
#[test]
fn a_descriptor_that_the_caller_left_open_gets_progress_lines() {
    let image = TempImage::of(&small()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = format!("exec \"$0\" -a -f -C9 \"$1\" 9>\"{}\"", file.path().display());
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_ext4kit-fsck")])
        .arg(image.path())
        .output()
        .unwrap();
    assert_eq!(told(output, &image).0, 0);
    let lines = std::fs::read_to_string(file.path()).unwrap();
    let wanted = format!(" {}", image.path().display());
    assert!(lines.lines().all(|line| line.ends_with(&wanted)), "{lines}");
    let passes: Vec<&str> = lines.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(passes.is_sorted() && passes.first() == Some(&"1") && passes.last() == Some(&"5"), "{lines}");
    // A negative number is silent until SIGUSR1.
    let script = script.replace("-C9", "-C-9");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_ext4kit-fsck")])
        .arg(image.path())
        .output()
        .unwrap();
    assert_eq!(told(output, &image).0, 0);
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "");
}

#[test]
fn time_and_memory_are_told_for_the_whole_and_for_each_pass() {
    let image = TempImage::of(&small()).unwrap();
    let (_, out, _) = fsck(&["-fnt"], &image);
    assert_eq!(out.lines().filter(|line| line.starts_with("Memory used: ")).count(), 1, "{out}");
    assert!(!out.contains("Pass 1: Memory"), "{out}");
    let (_, out, _) = fsck(&["-fntt"], &image);
    for pass in 1..=5 {
        assert!(out.contains(&format!("\nPass {pass}: Memory used: ")), "{out}");
        assert!(out.contains(&format!("\nPass {pass}: I/O read: ")), "{out}");
    }
}

#[test]
fn the_long_answer_adds_up_as_that_of_e2fsck() {
    let image = TempImage::of(&small()).unwrap();
    let (code, out, _) = fsck(&["-fnv"], &image);
    assert_eq!(code, 0);
    let Some(theirs) = oracle::run_on("e2fsck", &["-fnv"], &image.path()) else { return };
    // What e2fsck knows of maps is not counted here.
    let known = |line: &&str| {
        !line.contains("ind/dind") && !line.contains("histogram") && !line.contains("large files")
    };
    let theirs: Vec<&str> = theirs.stdout.lines().filter(known).filter(|line| !line.is_empty()).collect();
    let ours: Vec<&str> = out.lines().filter(|line| !line.is_empty()).collect();
    // Second names of files are counted by theirs alone, and are in its sum.
    let shared = |line: &&&str| !line.ends_with(" link");
    let theirs = &theirs[..theirs.len() - 1];
    assert!(ours.last().unwrap().ends_with(" 6 files"), "{out}");
    assert_eq!(ours[..ours.len() - 1], theirs.iter().filter(shared).copied().collect::<Vec<_>>()[..]);
}

#[test]
fn the_version_is_told_without_a_device() {
    let output = Command::new(env!("CARGO_BIN_EXE_ext4kit-fsck")).arg("-V").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("ext4kit-fsck "));
}

#[test]
fn dropping_the_cache_harms_nothing() {
    let image = TempImage::of(&small()).unwrap();
    for options in [&["-F", "-fn"], &["-F", "-fy"]] {
        assert_eq!(fsck(options, &image).0, 0);
    }
}

#[test]
fn questions_come_through_pipes_where_they_are_wanted() {
    let image = TempImage::of(&damaged()).unwrap();
    let mut refusing = command(&["-f"], &image);
    refusing.env("E2FSCK_FORCE_INTERACTIVE", "1");
    let (code, out, _) = answered(refusing, "n\n", &image);
    assert_eq!(code, 4, "{out}");
    assert!(out.contains("set i_links_count to 4? [y]es"), "{out}");
    let mut agreeing = command(&["-f"], &image);
    agreeing.env("E2FSCK_FORCE_INTERACTIVE", "1");
    assert_eq!(answered(agreeing, "y\n", &image).0, 1);
    assert_eq!(fsck(&["-fn"], &image).0, 0);
}

#[test]
fn the_time_of_a_check_is_the_one_that_is_given() {
    for (variable, time) in [
        ("E2FSCK_TIME", "1711111111"),
        ("SOURCE_DATE_EPOCH", "1722222222"),
        ("E2FSPROGS_FAKE_TIME", "0x66666666"),
    ] {
        let image = TempImage::of(&damaged()).unwrap();
        let output = command(&["-fy"], &image).env(variable, time).output().unwrap();
        assert_eq!(told(output, &image).0, 1);
        let wanted =
            time.strip_prefix("0x").map_or_else(|| time.parse(), |digits| u32::from_str_radix(digits, 16));
        assert_eq!(last_check(&image), wanted.unwrap());
    }
    let image = TempImage::of(&damaged()).unwrap();
    let output = command(&["-fy"], &image).env("E2FSCK_TIME", "noon").output().unwrap();
    assert_eq!(told(output, &image).0, 16);
}

/// A machine without a battery for its clock wakes up in 1970: nothing that was written later is an error.
#[test]
fn times_in_the_future_are_no_errors() {
    let future = |interval: u32| {
        Damage::to(&small())
            .superblock(|to| {
                to.s_mtime.set(0x83aa_7e80);
                to.s_wtime.set(0x83aa_7e80);
                to.s_lastcheck.set(0x83aa_7e80);
                to.s_checkinterval.set(interval);
            })
            .finish()
    };
    let image = TempImage::of(&future(0)).unwrap();
    let (code, out, _) = fsck(&["-p"], &image);
    assert_eq!(code, 0);
    assert!(out.starts_with("IMAGE: clean, "), "{out}");
    assert_eq!(fsck(&["-fp"], &image).0, 0);
    assert_eq!(fsck(&["-fn"], &image).0, 0);
    // Where checks are wanted from time to time, the time of the last one is put right, without a question.
    let image = TempImage::of(&future(30 * 86400)).unwrap();
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "[options]\nbroken_system_clock = true\n").unwrap();
    let broken = command(&["-p"], &image).env("E2FSCK_CONFIG", config.path()).output().unwrap();
    assert!(told(broken, &image).1.starts_with("IMAGE: clean, "));
    let output = command(&["-p"], &image).env("E2FSCK_TIME", "1700000000").output().unwrap();
    let (code, out, _) = told(output, &image);
    assert_eq!(code, 0);
    assert!(out.contains("last checked time in the future, check forced."), "{out}");
    assert_eq!(last_check(&image), 1_700_000_000);
}

#[test]
fn the_configuration_decides_what_is_safe() {
    // 0x040003 is a wrong count of links, which is safe unasked.
    let config = tempfile::NamedTempFile::new().unwrap();
    let with = |options: &[&str], text: &str, image: &TempImage| {
        std::fs::write(config.path(), text).unwrap();
        told(command(options, image).env("E2FSCK_CONFIG", config.path()).output().unwrap(), image)
    };
    let image = TempImage::of(&damaged()).unwrap();
    let (code, out, errors) =
        with(&["-fp"], "[problems]\n0x040003 = {\n preen_ok = false\n max_count = 3\n}\n", &image);
    assert_eq!(code, 4, "{out}");
    assert!(out.contains("UNEXPECTED INCONSISTENCY"), "{out}");
    assert!(errors.contains("e2fsck.conf: [problems] 0x040003: max_count has no effect here"), "{errors}");
    let (code, out, _) = with(&["-fy"], "[problems]\n0x040003 = {\n force_no = true\n}\n", &image);
    assert_eq!(code, 4, "{out}");
    assert!(out.contains("? no)"), "{out}");
    let (_, out, _) = with(&["-fy"], "[options]\nreport_time = 1\nreport_verbose = 1\n", &image);
    assert!(out.contains("Memory used: ") && out.contains(" fifos\n"), "{out}");
}

/// Cancelled in the middle: the code says so, and what was wrong still is, all of it.
#[test]
fn a_signal_ends_a_check_and_nothing_is_half_written() {
    let sound = filesystem::ext4(8192 * 3000, 1024);
    let damaged = Damage::to(&sound).inode(InodeNumber::ROOT, |inode| inode.set_links(77)).finish();
    for (signal, config, wanted) in
        [("INT", "", 32), ("TERM", "", 32), ("INT", "[options]\nallow_cancellation = true\n", 0)]
    {
        let image = TempImage::of(&damaged).unwrap();
        let changed = || std::fs::metadata(image.path()).unwrap().modified().unwrap();
        let before = changed();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        // The pipe is full long before all progress is told: the program waits in the middle of the check.
        let mut child = command(&["-fy", "-C", "1"], &image)
            .env("E2FSCK_CONFIG", file.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("1 ") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended early");
        }
        let kill = format!("kill -{signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(wanted), "{signal} {config}");
        assert!(rest.contains(": fsck canceled.\n"), "{signal}");
        assert!(!rest.contains("MODIFIED"));
        assert_eq!(changed(), before, "it was not written");
        let mut links = [0; 2];
        let store = image.load().unwrap();
        let root = Image::open(std::sync::Arc::new(store.clone())).unwrap();
        let size = usize::from(root.superblock().s_inode_size.get());
        let mut damage = Damage::to(&store);
        let (block, at) =
            ext4kit_format::tree::inode::locate(damage.transaction(), InodeNumber::ROOT).unwrap();
        assert!(at + size <= 1024);
        store.read_at(block.0 * 1024 + at as u64 + 26, &mut links).unwrap();
        assert_eq!(u16::from_le_bytes(links), 77);
    }
}

/// Free blocks go back to the device, and nothing else does.
#[test]
fn free_blocks_are_given_back() {
    use std::os::unix::fs::MetadataExt;
    let store = small();
    // Whatever free blocks held takes room.
    let image = TempImage::of(&store).unwrap();
    let mut bytes = std::fs::read(image.path()).unwrap();
    let size = bytes.len();
    let opened =
        ext4kit_fsck::opening::open(std::sync::Arc::new(store.clone()), &ext4kit_fsck::Options::default())
            .unwrap();
    let knowledge = ext4kit_fsck::after::learn(&opened);
    let block = opened.source.layout().geometry.block_length();
    let bits = opened.source.layout().geometry.cluster_bits();
    let mut free = 0;
    for at in 0..size / block {
        let cluster = at as u64 >> bits;
        if at as u64 >= opened.source.layout().geometry.first_data_block().0
            && !knowledge.claims.used.contains(cluster)
        {
            bytes[at * block..][..block].fill(0x5a);
            free += 1;
        }
    }
    assert!(free > 100);
    std::fs::write(image.path(), &bytes).unwrap();
    let full = std::fs::metadata(image.path()).unwrap().blocks();
    let (code, _, errors) = fsck(&["-n", "-E", "discard"], &image);
    assert_eq!(code, 16, "{errors}");
    let (code, out, _) = fsck(&["-fyv", "-E", "discard"], &image);
    assert_eq!(code, 0);
    if out.contains("the device cannot discard") {
        eprintln!("SKIPPED: the temporary folder's filesystem has no holes");
        return;
    }
    assert!(out.contains(" free bytes were discarded"), "{out}");
    assert!(std::fs::metadata(image.path()).unwrap().blocks() < full);
    let after = std::fs::read(image.path()).unwrap();
    for at in 0..size / block {
        let (old, new) = (&bytes[at * block..][..block], &after[at * block..][..block]);
        assert!(old == new || old.iter().all(|byte| *byte == 0x5a), "block {at}");
    }
    oracle::assert_clean(&image.load().unwrap());
}

/// The same lines as e2fsck: one for each place where a file goes on somewhere else.
#[test]
fn breaks_in_files_are_told_as_by_e2fsck() {
    let image = TempImage::of(&fixture::load("images/dirty-churn-4k.img.zst")).unwrap();
    assert!(fsck(&["-fy"], &image).0 <= 1);
    let (code, out, _) = fsck(&["-fn", "-E", "fragcheck"], &image);
    assert_eq!(code, 0);
    let Some(theirs) = oracle::run_on("e2fsck", &["-fn", "-E", "fragcheck"], &image.path()) else { return };
    let lines = |text: &str| -> std::collections::BTreeSet<String> {
        text.lines().filter(|line| line.contains("expecting")).map(str::to_owned).collect()
    };
    assert_eq!(lines(&out), lines(&theirs.stdout));
    assert!(!lines(&out).is_empty(), "{out}");
}
