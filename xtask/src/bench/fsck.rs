//! A check of sound filesystems beside e2fsck, and of hostile ones of doubling size.
//!
//! Both sides read the same warm image in turn. Besides time, the peak of memory that is the process's own is taken, by
//! looking while it runs: what the system keeps of the image itself can be had back at any time.

#![expect(clippy::cast_precision_loss, reason = "figures that people read have fewer digits")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::synthetic::Tree;
use super::{hostile, text};

/// What a run of a program cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Seconds on the clock.
    pub wall: f64,
    /// Seconds of processors, of the program and of the system for it.
    pub cpu: f64,
    /// The most memory of its own, in bytes.
    pub memory: u64,
}

/// A filesystem to check: its name, how it is made, and how many inodes it has in use.
struct Case {
    name: &'static str,
    make: Make,
    inodes: u64,
}

enum Make {
    Tree(Tree),
    Empty(&'static str),
}

/// The filesystems, so many times smaller than the full ones.
fn cases(shrink: u64) -> Vec<Case> {
    let tree =
        |directories, files, extents| Make::Tree(Tree { directories, files, extents, ..Tree::default() });
    let (small, names, extents) = (2_000_000 / shrink, 1_000_000 / shrink, 10_000_000 / shrink);
    let directories = 1_600_000 / shrink;
    vec![
        Case { name: "small files", make: tree(small / 100, 100, 1), inodes: small },
        Case { name: "one directory", make: tree(1, names, 0), inodes: names },
        Case { name: "directories", make: tree(directories, 3, 0), inodes: directories * 4 },
        Case { name: "extents", make: tree(20, 5, extents / 100), inodes: 100 },
        Case { name: "empty 1 TiB", make: Make::Empty("1T"), inodes: 12 },
    ]
}

/// Prints the table. Sizes are a tenth of the full ones if not asked for.
pub fn compare(tool: &Path, rounds: usize, full: bool) -> Result<()> {
    let folder = tempfile::tempdir()?;
    println!(
        "{:14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>11}",
        "filesystem", "e2fsck s", "MiB", "1: s", "2: s", "MiB", "1: x", "2: x", "bytes/inode"
    );
    for case in cases(if full { 1 } else { 10 }) {
        let image = folder.path().join("image");
        match case.make {
            Make::Tree(tree) => tree.make(&image)?,
            Make::Empty(size) => {
                super::quietly(&super::words(&[
                    &text(tool),
                    "mkfs",
                    "-q",
                    "-t",
                    "ext4",
                    &text(&image),
                    size,
                ]))?;
            }
        }
        line(tool, &image, &case, rounds)?;
        std::fs::remove_file(&image)?;
    }
    Ok(())
}

fn line(tool: &Path, image: &Path, case: &Case, rounds: usize) -> Result<()> {
    let mut costs: [Vec<Cost>; 3] = Default::default();
    for round in 0..=rounds {
        let commands = [theirs(image), ours(tool, image, 1), ours(tool, image, 2)];
        for (costs, command) in costs.iter_mut().zip(commands) {
            let cost = run(command, 0)?;
            // The first round warms the caches.
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    let [theirs, one, two] = costs.map(|costs| median(&costs));
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{:14} {:9.3} {:9.1} {:9.3} {:9.3} {:9.1} {:7.1} {:7.1} {:11.1}   cpu {:.3} {:.3} {:.3}",
        case.name,
        theirs.wall,
        mebibytes(theirs.memory),
        one.wall,
        two.wall,
        mebibytes(two.memory),
        theirs.wall / one.wall,
        theirs.wall / two.wall,
        two.memory as f64 / case.inodes as f64,
        theirs.cpu,
        one.cpu,
        two.cpu,
    );
    Ok(())
}

/// Checks each family of hostile filesystems at doubling sizes, and prints how time grows with size.
pub fn sweep(tool: &Path, rounds: u32) -> Result<()> {
    let folder = tempfile::tempdir()?;
    println!("{:18} {:>36}   exponent", "family", "processor s at sizes 1, 2, 4, 8");
    let mut steep = Vec::new();
    for family in hostile::FAMILIES {
        let mut seconds = Vec::new();
        for scale in [1u32, 2, 4, 8] {
            let image = folder.path().join("hostile");
            (family.make)(&image, scale)?;
            seconds.push(processor_seconds(|| ours(tool, &image, 1), rounds)?);
            std::fs::remove_file(&image)?;
        }
        let exponent = exponent(&seconds);
        let columns: Vec<String> = seconds.iter().map(|seconds| format!("{seconds:8.3}")).collect();
        println!("{:18} {:>36}   {exponent:.2}", family.name, columns.join(" "));
        if exponent > 1.15 {
            steep.push(family.name);
        }
    }
    if steep.is_empty() { Ok(()) } else { bail!("steeper than 1.15: {}", steep.join(", ")) }
}

/// The mean of what a warm run takes of processors. The system counts in hundredths of a second over all runs, so a quick
/// one is repeated until enough of these add up.
fn processor_seconds(command: impl Fn() -> Command, rounds: u32) -> Result<f64> {
    run(command(), 4)?;
    let (mut sum, mut runs) = (0.0, 0);
    while runs < rounds || (sum < 0.3 && runs < 100) {
        sum += run(command(), 4)?.cpu;
        runs += 1;
    }
    Ok(sum.max(0.01) / f64::from(runs))
}

/// The slope of time over size, both as logarithms, of sizes that double.
fn exponent(seconds: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> =
        (0u32..).map(f64::from).zip(seconds.iter().map(|time| time.log2())).collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    over / under
}

fn theirs(image: &Path) -> Command {
    let mut command = Command::new("e2fsck");
    command.arg("-fn").arg(image);
    command
}

fn ours(tool: &Path, image: &Path, threads: usize) -> Command {
    let mut command = Command::new(tool);
    command.args(["fsck", "-fn", "--threads", &threads.to_string()]).arg(image);
    command
}

/// Runs a command whose exit code is at most this, its output thrown away.
fn run(mut command: Command, most: i32) -> Result<Cost> {
    let program = command.get_program().to_owned();
    let before = children_cpu()?;
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut cost = Cost::default();
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let own = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kibibytes = own.and_then(|own| own.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        cost.memory = cost.memory.max(kibibytes << 10);
        std::thread::sleep(Duration::from_micros(500));
    };
    cost.wall = start.elapsed().as_secs_f64();
    cost.cpu = children_cpu()? - before;
    if ended.code().is_some_and(|code| code <= most) {
        Ok(cost)
    } else {
        bail!("{} ended with {ended}", program.display())
    }
}

/// Seconds of processors that all children took that have ended.
fn children_cpu() -> Result<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    let words: Vec<&str> = fields.split_whitespace().collect();
    // The 16th and 17th field; the first of these is the 3rd.
    let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok()).context("no such field");
    Ok((ticks(13)? + ticks(14)?) / TICKS_A_SECOND)
}

/// The median of each figure.
fn median(costs: &[Cost]) -> Cost {
    let middle = |of: fn(&Cost) -> f64| {
        let mut figures: Vec<f64> = costs.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(0.0)
    };
    let memory = costs.iter().map(|cost| cost.memory).max().unwrap_or(0);
    Cost { wall: middle(|cost| cost.wall), cpu: middle(|cost| cost.cpu), memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_slopes() {
        assert!((exponent(&[1.0, 2.0, 4.0, 8.0]) - 1.0).abs() < 1e-9);
        assert!((exponent(&[1.0, 4.0, 16.0, 64.0]) - 2.0).abs() < 1e-9);
    }
}
