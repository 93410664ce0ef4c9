//! What developers and CI run: `cargo xtask ci`, `tidy`, `layers`, `interrupt`, `fuzz`, `sweep`, `bench`, `testdata`.

mod bench;
mod layers;
mod oracles;
mod testdata;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci        everything that a submission must pass, cheapest first
  tidy      rules about files that no compiler checks
  layers    the direction of dependencies between crates
  oracles   the tools judged by e2fsck and by images of real kernels (needs the shared data beside the repository)
  interrupt every repair of the corpus stopped at every write (needs the shared data): interrupt [PLACES]
  fuzz      every fuzzing test with more mutants: fuzz [MUTANTS] [SEED]
  sweep     how time grows with size on hostile images: sweep fsck
  testdata  rebuild test data from its recipes and say what differs; testdata --bless writes it
  bench     ratios against e2fsprogs; see `cargo xtask bench --help`
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["ci"] => ci(),
        ["tidy"] => tidy::run(&root()),
        ["layers"] => layers::run(&root()),
        ["oracles"] => oracles::run(&root()),
        ["interrupt", rest @ ..] if rest.len() <= 1 => interrupt(&root(), rest),
        ["fuzz", rest @ ..] if rest.len() <= 2 => fuzz(&root(), rest),
        ["sweep", rest @ ..] => bench::sweep(&root(), rest),
        ["testdata", rest @ ..] => testdata::run(&root(), rest),
        ["bench", rest @ ..] => bench::run(&root(), rest),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Everything that a submission must pass.
fn ci() -> Result<()> {
    let root = root();
    step("format", || cargo(&root, &["fmt", "--all", "--check"]))?;
    step("tidy", || tidy::run(&root))?;
    step("layers", || layers::run(&root))?;
    step("clippy", || cargo(&root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    step("documentation", || {
        let mut command = Command::new("cargo");
        command.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
        run(command.current_dir(&root))
    })?;
    step("tests", || cargo(&root, &["test", "--workspace", "--quiet"]))?;
    step("oracles", || oracles::run(&root))
}

/// Runs the fuzzing tests, whose names all say `mutants`, in release, with a number of mutants each and a seed.
fn fuzz(root: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--release", "--workspace", "mutants", "--", "--nocapture"]).current_dir(root);
    command.env("EXT4KIT_MUTANTS", words.first().unwrap_or(&"200000"));
    if let Some(seed) = words.get(1) {
        command.env("EXT4KIT_SEED", seed);
    }
    run(&mut command)
}

/// Stops every repair of the corpus at every write, or at a number of places in each, and runs it again.
fn interrupt(root: &Path, words: &[&str]) -> Result<()> {
    let corpus = root.join("../shared/corpus");
    if !corpus.is_dir() {
        bail!("there is no corpus beside the repository");
    }
    let mut command = Command::new("cargo");
    command.args(["test", "--release", "--package", "ext4kit-fsck", "--test", "interruption"]);
    command.args(["every_repair_of_the_corpus", "--", "--ignored", "--nocapture"]).current_dir(root);
    command.env("EXT4KIT_CORPUS", corpus);
    if let Some(places) = words.first() {
        command.env("EXT4KIT_MUTANTS", places);
    }
    run(&mut command)
}

fn step(name: &str, action: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("xtask: {name}");
    action().with_context(|| name.to_owned())
}

/// Runs cargo in the root of the repository.
fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    run(Command::new("cargo").args(arguments).current_dir(root))
}

/// Runs a command that must succeed.
fn run(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { bail!("{} ended with {status}", command.get_program().display()) }
}
