//! Ratios against e2fsprogs, both sides in one run, their rounds interleaved.
//!
//! Figures are the medians of wall-clock time; seconds depend on the machine, ratios much less so. Nothing here gates
//! a submission.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cargo;

mod fsck;
mod hostile;
mod journal;
mod synthetic;

const USAGE: &str = "\
usage: cargo xtask bench [NAME …] [--rounds N] [--full]

  mkfs-empty   an empty ext4 filesystem in a sparse file of 100 GiB
  mkfs-tree    an ext4 filesystem from a directory of 20,000 small files
  replay       a full journal of 64 MiB
  fsck         a read-only check of clean filesystems on one thread and two: many files, one directory, many directories,
               many extents, an empty terabyte; a tenth of 2 million files, 1 million names, 1.6 million directories and
               10 million extents, or with --full all
";

/// One thing to measure: a command of ours and one of e2fsprogs that do the same, and what to do before each.
struct Duel {
    name: &'static str,
    ours: Vec<String>,
    theirs: Vec<String>,
    /// Image that is copied afresh before each round, and the copy that the commands work on.
    fresh: Option<(PathBuf, PathBuf)>,
    /// File that is removed before each round.
    remove: Option<PathBuf>,
}

/// Runs the benchmarks that are named, or all.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let (mut rounds, mut full) = (5, false);
    let mut names = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--help" | "-h" => {
                eprint!("{USAGE}");
                return Ok(());
            }
            "--full" => full = true,
            "--rounds" => rounds = rest.next().context("--rounds needs a number")?.parse()?,
            name => names.push(name),
        }
    }
    let tool = build(root)?;
    let folder = tempfile::tempdir()?;
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    for (name, prepare) in BENCHES {
        if wanted(name) {
            duel(&prepare(&tool, folder.path())?, rounds)?;
        }
    }
    if wanted(FSCK) {
        fsck::compare(&tool, rounds, full)?;
    }
    let known = |name: &str| name == FSCK || BENCHES.iter().any(|(known, _)| *known == name);
    match names.iter().find(|name| !known(name)) {
        Some(name) => bail!("`{name}` is no benchmark\n{USAGE}"),
        None => Ok(()),
    }
}

/// Checks hostile filesystems of doubling size, and fails where time grows faster than size.
pub fn sweep(root: &Path, words: &[&str]) -> Result<()> {
    let tool = build(root)?;
    match words {
        ["fsck"] => fsck::sweep(&tool, 2),
        _ => bail!("usage: cargo xtask sweep fsck"),
    }
}

/// Builds our side; gives its path.
fn build(root: &Path) -> Result<PathBuf> {
    cargo(root, &["build", "--release", "--bin", "ext4kit"])?;
    Ok(root.join("target/release/ext4kit"))
}

/// The benchmark that has a table of its own.
const FSCK: &str = "fsck";

type Prepare = fn(&Path, &Path) -> Result<Duel>;
const BENCHES: [(&str, Prepare); 3] =
    [("mkfs-empty", mkfs_empty), ("mkfs-tree", mkfs_tree), ("replay", replay)];

fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[expect(clippy::unnecessary_wraps, reason = "all preparations look the same")]
fn mkfs_empty(tool: &Path, folder: &Path) -> Result<Duel> {
    let image = folder.join("empty.img");
    let (tool, target) = (text(tool), text(&image));
    Ok(Duel {
        name: "mkfs-empty",
        ours: words(&[&tool, "mkfs", "-q", "-t", "ext4", &target, "100G"]),
        theirs: words(&["mke2fs", "-q", "-t", "ext4", &target, "100G"]),
        fresh: None,
        remove: Some(image),
    })
}

/// Makes a tree of small files, a hundred to a directory.
fn small_files(folder: &Path, count: u32) -> Result<PathBuf> {
    let tree = folder.join(format!("tree-{count}"));
    for number in 0..count {
        let directory = tree.join(format!("d{:04}", number / 100));
        if number.is_multiple_of(100) {
            std::fs::create_dir_all(&directory)?;
        }
        let length = usize::try_from(number % 3000)?;
        std::fs::write(directory.join(format!("file-{number:06}")), vec![b'x'; length])?;
    }
    Ok(tree)
}

fn mkfs_tree(tool: &Path, folder: &Path) -> Result<Duel> {
    let tree = small_files(folder, 20_000)?;
    let image = folder.join("tree.img");
    let (tool, target, tree) = (text(tool), text(&image), text(&tree));
    Ok(Duel {
        name: "mkfs-tree",
        ours: words(&[&tool, "mkfs", "-q", "-t", "ext4", "-d", &tree, &target, "512M"]),
        theirs: words(&["mke2fs", "-q", "-t", "ext4", "-d", &tree, &target, "512M"]),
        fresh: None,
        remove: Some(image),
    })
}

fn replay(tool: &Path, folder: &Path) -> Result<Duel> {
    let dirty = folder.join("dirty.img");
    let image = folder.join("replay.img");
    let (tool, target) = (text(tool), text(&image));
    quietly(&words(&[
        &tool,
        "mkfs",
        "-q",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-J",
        "size=64",
        &text(&dirty),
        "1G",
    ]))?;
    journal::fill(&dirty)?;
    Ok(Duel {
        name: "replay",
        ours: words(&[&tool, "replay", "-q", &target]),
        theirs: words(&["e2fsck", "-y", "-E", "journal_only", &target]),
        fresh: Some((dirty, image)),
        remove: None,
    })
}

/// Runs both sides in turn and prints their medians and the ratio.
fn duel(duel: &Duel, rounds: usize) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        for (times, command) in [(&mut ours, &duel.ours), (&mut theirs, &duel.theirs)] {
            if let Some((from, to)) = &duel.fresh {
                std::fs::copy(from, to)?;
            }
            if let Some(file) = &duel.remove {
                let _ = std::fs::remove_file(file);
            }
            let time = quietly(command)?;
            // The first round warms the caches.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let [ours, theirs] = [median(ours), median(theirs)].map(|time| time.as_secs_f64());
    println!(
        "{:12} ours {ours:8.3} s   e2fsprogs {theirs:8.3} s   {:6.1} times as fast",
        duel.name,
        theirs / ours
    );
    Ok(())
}

/// Runs a command that must not fail worse than a repair (exit 1), its output thrown away; how long it took.
fn quietly(words: &[String]) -> Result<Duration> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let start = Instant::now();
    let mut command = Command::new(program);
    let status = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| program.clone())?;
    if status.code().is_some_and(|code| code <= 1) {
        Ok(start.elapsed())
    } else {
        bail!("{} ended with {status}", words.join(" "))
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
