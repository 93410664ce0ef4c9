//! The tools judged from outside: by e2fsprogs on damaged images and on a kernel's images, and by trees that real
//! kernels recovered.
//!
//! The images and their judges lie in a folder `shared` beside the repository. Where it is absent this step is skipped
//! and says so. What must hold is written here as counts that may only rise.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Of the crash images, those whose replay must succeed, be idempotent, and give the tree that the kernel saw.
const REPLAYED: [(&str, usize); 3] = [("replay-exit", 26), ("replay-again", 36), ("tree", 26)];
/// Of the same, those that a kernel in a virtual machine then mounts, finishes and sees as it should; and their quotas.
const MOUNTED: [(&str, usize); 2] = [("guest", 26), ("quota", 2)];
/// The kernel that runs as a program.
const GUEST_KERNEL: &str = "/usr/bin/linux";
/// Of the same, those that e2fsck calls clean after replay and repair, and whose tree is then the kernel's.
const REPAIRED_AFTER_CRASH: [(&str, usize); 2] = [("checked", 33), ("tree", 27)];
/// Of the damaged and clean images, those that a read-only check must judge rightly, leave alone and survive; and those
/// that one repair must put right, with a second run that finds and writes nothing, with e2fsck's consent, and with
/// everything kept that e2fsck keeps.
const CHECKED: [(&str, usize); 12] = [
    ("check-exit", 246),
    ("check-ro", 248),
    ("no-crash", 248),
    ("repair-exit", 238),
    ("second-exit", 236),
    ("second-ro", 240),
    ("oracle-clean", 237),
    ("state", 238),
    ("kept", 238),
    ("meta", 234),
    ("lostfound", 242),
    ("refuse", 5),
];

/// Runs all judges whose data is there.
pub fn run(root: &Path) -> Result<()> {
    let shared = root.join("../shared");
    if !shared.join("tools").is_dir() {
        eprintln!("xtask: no shared data beside the repository, the oracles are skipped");
        return Ok(());
    }
    let mut compare = Command::new("cargo");
    compare.args(["test", "--quiet", "--package", "ext4kit-debugfs", "--test", "same_as_debugfs"]);
    super::run(compare.env("EXT4KIT_IMAGES", shared.join("kernel-images")).current_dir(root))?;
    super::cargo(root, &["build", "--release", "--bin", "ext4kit"])?;
    let program = root.join("target/release/ext4kit");
    let program = program.display();
    let replay = format!("{program} replay {{img}} -j {{jnl}}");
    let mut arguments = vec!["--replay", &replay];
    let mut least = REPLAYED.to_vec();
    if std::env::var_os("CI").is_some() || Path::new(GUEST_KERNEL).exists() {
        arguments.push("--guest");
        least.extend(MOUNTED);
    } else {
        eprintln!("xtask: no guest kernel (Debian's user-mode-linux), what it would say is skipped");
    }
    judge(&shared, "run_crash.py", "crash", &arguments, &least)?;
    let repair = format!("{program} fsck -fy {{img}} -j {{jnl}}");
    let arguments = ["--replay", &replay, "--fsck", &repair];
    judge(&shared, "run_crash.py", "crash", &arguments, &REPAIRED_AFTER_CRASH)?;
    let check = format!("{program} fsck -fn {{img}}");
    let repair = format!("{program} fsck -fy {{img}}");
    judge(&shared, "run_corpus.py", "corpus", &["--fsck", &repair, "--fsck-n", &check], &CHECKED)
}

/// Runs a judge and compares its counts with those that must hold.
fn judge(shared: &Path, tool: &str, pack: &str, arguments: &[&str], least: &[(&str, usize)]) -> Result<()> {
    let output = Command::new("python3")
        .arg(shared.join("tools").join(tool))
        .arg("--pack")
        .arg(shared.join(pack))
        .args(arguments)
        .output()
        .with_context(|| tool.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut faults = Vec::new();
    for (criterion, wanted) in least {
        let Some(found) = count(&text, criterion) else {
            bail!("{tool} says nothing of {criterion}: {text}{}", String::from_utf8_lossy(&output.stderr));
        };
        eprintln!("xtask: {tool}: {criterion} holds for {found} (at least {wanted})");
        if found < *wanted {
            faults.push(format!("{criterion} holds for {found}, not {wanted}"));
        }
    }
    if faults.is_empty() { Ok(()) } else { bail!("{tool}: {}\n{text}", faults.join(", ")) }
}

/// The count in the judge's line `criterion  17/36`.
fn count(text: &str, criterion: &str) -> Option<usize> {
    let mut counts = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, count) = (words.next()?, words.next()?);
        (name == criterion).then(|| count.split_once('/')?.0.parse().ok())?
    });
    counts.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_what_a_judge_prints() {
        let text = "12-async tree 3 differences\nreplay-exit    26/36\ntree           25/36\n";
        assert_eq!(count(text, "tree"), Some(25));
        assert_eq!(count(text, "checked"), None);
    }
}
