//! `ext4kit tour`: every main job once, on a small image in a temporary folder.
//!
//! Makes an image from an embedded tree, changes it and cuts the power in the middle, replays the journal, checks the
//! result and looks inside. Each step is a command that the reader can repeat; the tour succeeds only if every step
//! did what it should.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use ext4kit_format::disk::inode::Timestamp;
use ext4kit_format::image::Image;
use ext4kit_format::journal::{JournalCommit, commit_through_journal};
use ext4kit_format::store::{self, Access, MemoryStore, Recorder, Store};
use ext4kit_format::tree::namespace::{NewInode, NewKind};
use ext4kit_format::tree::{file, inode, namespace};
use ext4kit_format::txn::OverlayOptions;
use ext4kit_format::{InodeNumber, Result};

/// The tree that the image is made from.
const TREE: [(&str, &str); 3] = [
    ("readme.txt", "An ext4 image made without root, without a mount and without a kernel.\n"),
    ("poems/storm.txt", "The lamps went out, the disk ran down,\nthe journal kept what we had sown.\n"),
    ("poems/calm.txt", "Nothing to do.\n"),
];
/// What the change adds.
const ADDED: &str = "logbook";
const ENTRIES: u32 = 40;
/// Size of the image.
const SIZE: &str = "24M";
/// The time of the change, so that every tour is the same.
const TIME: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

/// Walks the tour.
pub fn run() -> ExitCode {
    match tour() {
        Ok(()) => {
            tell("\nEverything was as it should be.\n");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "ext4kit tour: {error}");
            ExitCode::FAILURE
        }
    }
}

type Step<T> = std::result::Result<T, String>;

fn tour() -> Step<()> {
    let folder = Folder::new()?;
    let tree = folder.0.join("tree");
    let image = folder.0.join("image");
    plant(&tree)?;

    title("Make a filesystem from a folder");
    command(&["mkfs", "-q", "-t", "ext4", "-d", &text(&tree), &text(&image), SIZE], 0)?;

    title("Change it, and cut the power in the middle");
    let (cut, writes) = change_and_cut(&image)?;
    tell(&format!(
        "  (no command: {ENTRIES} files were added through the library, and of its {writes} writes only {cut} arrived)\n"
    ));

    title("What waits in the journal?");
    command(&["replay", "--list", &text(&image)], 0)?;
    title("Replay it");
    command(&["replay", &text(&image)], 1)?;
    title("Once more: nothing is left to do");
    command(&["replay", &text(&image)], 0)?;

    title("Check the whole filesystem, changing nothing");
    command(&["fsck", "-fn", &text(&image)], 0)?;

    title("Look inside");
    command(&["debugfs", "-R", "ls -l /", &text(&image)], 0)?;
    command(&["debugfs", "-R", &format!("stat /{ADDED}/entry-7"), &text(&image)], 0)?;
    command(&["debugfs", "-R", "cat /poems/storm.txt", &text(&image)], 0)?;
    compare(&image)
}

/// A temporary folder that goes away at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Step<Self> {
        let path = std::env::temp_dir().join(format!("ext4kit-tour-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn plant(tree: &Path) -> Step<()> {
    for (name, contents) in TREE {
        let path = tree.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, contents));
        made.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn tell(text: &str) {
    // A reader who left needs nothing more.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn title(text: &str) {
    tell(&format!("\n== {text}\n"));
}

/// Prints a command of this program and runs it; its exit code has to be the one that is expected.
fn command(arguments: &[&str], expected: i32) -> Step<()> {
    let shown: Vec<String> = arguments.iter().map(|word| quote(word)).collect();
    tell(&format!("$ ext4kit {}\n", shown.join(" ")));
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let status = Command::new(program).args(arguments).status().map_err(|error| error.to_string())?;
    if status.code() == Some(expected) {
        Ok(())
    } else {
        Err(format!("`ext4kit {}` ended with {status}, not with exit code {expected}", shown.join(" ")))
    }
}

fn quote(word: &str) -> String {
    if word.contains(' ') { format!("'{word}'") } else { word.to_owned() }
}

/// Adds files to the image in one transaction, records its writes, and lets only the first of them arrive: those up to
/// the middle of the writing in place. How many those are, and of how many.
fn change_and_cut(image: &Path) -> Step<(usize, usize)> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
    let disk = store::open(image, Access::ReadWrite, false).map_err(|error| failed(&error))?;
    let recorder = Recorder::new(MemoryStore::copy_of(disk.as_ref()).map_err(|error| failed(&error))?);
    let record = recorder.record();
    let done = add_files(Arc::new(recorder)).map_err(|error| failed(&error))?;
    if let JournalCommit::Unfit(why) = done {
        return Err(failed(&why));
    }
    let writes = record.len();
    // Three quarters of the way lie behind the commit and before the end of the writing in place.
    let cut = writes * 3 / 4;
    record.replay_prefix(cut, disk.as_ref()).and_then(|()| disk.flush()).map_err(|error| failed(&error))?;
    Ok((cut, writes))
}

fn contents(number: u32) -> String {
    format!("entry {number}: all well\n").repeat(usize::try_from(number % 50).unwrap_or(0) + 1)
}

fn add_files(store: Arc<dyn Store>) -> Result<JournalCommit> {
    let image = Image::open(store)?;
    let mut overlay = image.overlay(OverlayOptions::default());
    let mut root = inode::read(&overlay, InodeNumber::ROOT)?;
    let new = |permissions| NewInode { permissions, time: TIME, ..NewInode::default() };
    let mut folder =
        namespace::create(&mut overlay, &mut root, ADDED.as_bytes(), NewKind::Directory, new(0o755))?;
    for number in 0..ENTRIES {
        let name = format!("entry-{number}");
        let kind = NewKind::Regular;
        let mut made = namespace::create(&mut overlay, &mut folder, name.as_bytes(), kind, new(0o644))?;
        file::write(&mut overlay, &mut made, 0, contents(number).as_bytes())?;
        inode::write(&mut overlay, &made)?;
    }
    commit_through_journal(&image, &mut overlay, TIME.seconds.unsigned_abs())
}

/// Reads every file of the image and compares it with what was put in.
fn compare(path: &Path) -> Step<()> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let disk = store::open(path, Access::ReadOnly, false).map_err(|error| failed(&error))?;
    let image = Image::open(disk).map_err(|error| failed(&error))?;
    let overlay = image.overlay(OverlayOptions::default());
    let planted = TREE.iter().map(|(name, contents)| ((*name).to_owned(), (*contents).to_owned()));
    let added = (0..ENTRIES).map(|number| (format!("{ADDED}/entry-{number}"), contents(number)));
    for (name, wanted) in planted.chain(added) {
        let read = namespace::resolve(&overlay, InodeNumber::ROOT, name.as_bytes())
            .and_then(|found| file::read_all(&overlay, &found, 1 << 20));
        if read.map_err(|error| failed(&error))? != wanted.as_bytes() {
            return Err(format!("/{name} does not hold what was written to it"));
        }
    }
    Ok(())
}
