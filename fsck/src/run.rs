//! All of it in order: options, device, the rule of when a check may be left out, the check, the last lines.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use ext4kit_cli::device::{Device, DeviceName};
use ext4kit_cli::exit::{Convention, Failure, FailureKind, FsckExit};
use ext4kit_cli::progress::{Completion, Progress, Silent};
use ext4kit_cli::size::parse_number;
use ext4kit_cli::{report as output, time};
use ext4kit_format::BlockNumber;
use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::disk::superblock::{Superblock, state};
use ext4kit_format::image::{Image, OpenOptions};
use ext4kit_format::store::{Access, Store};

use crate::check::{self, Summary, check_with};
use crate::options::Options;
use crate::report::{Answer, Printer, SCHEMA, last_line, say, verbose_lines};

const PROGRAM: &str = "fsck";

/// Runs the program with its arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            let wrong = error.use_stderr();
            // Nothing is left to do where even this cannot be printed.
            let _ = error.print();
            return if wrong { FsckExit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let _ = writeln!(io::stderr(), "ext4kit-fsck {}", env!("CARGO_PKG_VERSION"));
    if options.version {
        return ExitCode::SUCCESS;
    }
    match examine(&options) {
        Ok(exit) => exit.into(),
        Err(failure) if options.json => output::json_failure(SCHEMA, &failure, Convention::Fsck),
        Err(failure) => output::failure(PROGRAM, &failure, Convention::Fsck),
    }
}

/// Refuses what contradicts itself and what is not built yet.
fn check_options(options: &Options) -> Result<(), Failure> {
    let answers = [options.preen, options.no, options.yes].into_iter().filter(|given| *given).count();
    if answers > 1 {
        return Err(Failure::usage("", "only one of -p (or -a), -n and -y may be given"));
    }
    let unbuilt = [
        ("-c", options.bad_blocks > 0, "looking for bad blocks"),
        ("-D", options.rebuild_directories, "rebuilding directories"),
        ("-F", options.flush, "dropping cached blocks"),
        ("-l", options.add_bad_blocks.is_some(), "changing the list of bad blocks"),
        ("-L", options.set_bad_blocks.is_some(), "changing the list of bad blocks"),
        ("-z", options.undo.is_some(), "writing an undo file"),
    ];
    if let Some((option, _, what)) = unbuilt.into_iter().find(|(_, given, _)| *given) {
        return Err(Failure::usage(option, format!("{what} is not built yet")));
    }
    for option in options.extended.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty())
    {
        let name = option.split('=').next().unwrap_or(option);
        match name {
            // A check that writes nothing does these anyway, or has no use for them.
            "nodiscard"
            | "no_optimize_extents"
            | "no_inode_count_fullmap"
            | "inode_count_fullmap"
            | "readahead_kb"
            | "ea_ver" => {}
            "journal_only" | "fragcheck" | "discard" | "optimize_extents" | "bmap2extent" | "fixes_only"
            | "check_encoding" | "unshare_blocks" => {
                return Err(Failure::usage("-E", format!("{name} is not built yet")));
            }
            _ => return Err(Failure::usage("-E", format!("`{name}` is no extended option"))),
        }
    }
    Ok(())
}

fn number(option: &str, value: Option<&String>) -> Result<Option<u64>, Failure> {
    let Some(text) = value else { return Ok(None) };
    parse_number(text).map(Some).map_err(|error| Failure::usage(option, error.to_string()))
}

/// The device of an external journal, to be read only.
fn external_journal(options: &Options) -> Result<Option<Arc<dyn Store>>, Failure> {
    let Some(typed) = &options.journal else { return Ok(None) };
    Ok(Some(DeviceName::parse(typed)?.open(Access::ReadOnly, options.no)?.store))
}

fn check_settings(options: &Options) -> Result<check::Options, Failure> {
    let block_size = number("-B", options.block_size.as_ref())?;
    let allowed = |size: &u64| size.is_power_of_two() && (1024..=65536).contains(size);
    if let Some(size) = block_size.filter(|size| !allowed(size)) {
        return Err(Failure::usage("-B", format!("{size} is no block size")));
    }
    let superblock = number("-b", options.superblock.as_ref())?.map(BlockNumber);
    Ok(check::Options {
        superblock,
        block_size: block_size.and_then(|size| u32::try_from(size).ok()),
        backups: !options.preen && superblock.is_none(),
        journal: external_journal(options)?,
        replay: true,
        threads: options.threads,
    })
}

fn examine(options: &Options) -> Result<FsckExit, Failure> {
    check_options(options)?;
    let settings = check_settings(options)?;
    let Some(typed) = &options.device else { return Err(Failure::usage("", "no device was named")) };
    let begun = Instant::now();
    let device = DeviceName::parse(typed)?.open(Access::ReadOnly, options.no)?;
    let name = device.name.typed.clone();
    if !options.force && settings.superblock.is_none() {
        match reason_to_check(&device)? {
            None => return Ok(skipped(options, &device, &name)),
            Some(reason) if !options.json => say(&format!("{name} {reason}, check forced.")),
            Some(_) => {}
        }
    }
    let progress: Box<dyn Progress> = match &options.completion {
        Some(argument) => {
            let wrong = || Failure::usage("-C", format!("`{argument}` is no descriptor"));
            let completion = Completion::parse(argument).ok_or_else(wrong)?;
            let failed = |error: io::Error| Failure::new(FailureKind::Io, "-C", error.to_string());
            completion.start(&name).map_err(failed)?.0
        }
        None => Box::new(Silent),
    };
    let mut printer = Printer {
        device: &name,
        preen: options.preen,
        json: options.json,
        findings: Vec::new(),
        progress: progress.as_ref(),
    };
    let outcome = check_with(device.store.clone(), &settings, &mut printer);
    progress.clear();
    let summary = outcome.map_err(|error| Failure::from_error(&name, &error))?;
    let exit = exit_of(options, &summary);
    if options.json {
        let answer = Answer {
            device: name.clone(),
            clean: summary.errors == 0,
            skipped: false,
            findings: std::mem::take(&mut printer.findings),
            inodes_used: summary.inodes_used,
            inodes_total: summary.inodes_total,
            blocks_used: summary.blocks_used,
            blocks_total: summary.blocks_total,
            exit_code: exit.bits(),
        };
        output::json(SCHEMA, &answer)
            .map_err(|error| Failure::new(FailureKind::Io, "", error.to_string()))?;
        return Ok(exit);
    }
    conclude(options, &name, &summary);
    if options.timing > 0 {
        say(&format!("elapsed time: {:.2} s", begun.elapsed().as_secs_f64()));
    }
    Ok(exit)
}

/// The last lines of a check.
fn conclude(options: &Options, name: &str, summary: &Summary) {
    if summary.errors > 0 {
        if options.preen {
            say(&format!("\n{name}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY."));
        }
        say(&format!("\n{name}: ********** WARNING: Filesystem still has errors **********\n"));
    }
    say(&last_line(name, summary));
    if options.verbose {
        say(&verbose_lines(summary));
    }
    if must_write(options, summary) {
        let what = if summary.errors > 0 { "repairing" } else { "replaying the journal" };
        let _ = writeln!(io::stderr(), "{PROGRAM}: {name}: {what} is not built yet, nothing was written");
    }
}

/// Whether the caller wants something written that only a repair can write.
fn must_write(options: &Options, summary: &Summary) -> bool {
    !options.no && (summary.errors > 0 || summary.replayed)
}

fn exit_of(options: &Options, summary: &Summary) -> FsckExit {
    if summary.errors > 0 || must_write(options, summary) { FsckExit::UNCORRECTED } else { FsckExit::empty() }
}

/// The filesystem says that it is clean, and no check is due.
fn skipped(options: &Options, device: &Device, name: &str) -> FsckExit {
    let Ok(image) = open(device) else { return FsckExit::OPERATIONAL };
    let superblock = image.superblock();
    let inodes_total = superblock.s_inodes_count.get();
    let inodes_used = inodes_total.saturating_sub(superblock.s_free_inodes_count.get());
    let blocks_total = superblock.blocks_count();
    let blocks_used = blocks_total.saturating_sub(superblock.free_blocks_count());
    if options.json {
        let answer = Answer {
            device: name.to_owned(),
            clean: true,
            skipped: true,
            findings: Vec::new(),
            inodes_used: inodes_used.into(),
            inodes_total: inodes_total.into(),
            blocks_used,
            blocks_total,
            exit_code: 0,
        };
        // A closed pipe leaves only the exit code.
        let _ = output::json(SCHEMA, &answer);
    } else {
        let files = format!("{inodes_used}/{inodes_total} files");
        say(&format!("{name}: clean, {files}, {blocks_used}/{blocks_total} blocks"));
    }
    FsckExit::empty()
}

fn open(device: &Device) -> ext4kit_format::Result<Image> {
    let options = OpenOptions { allow_short: true, ..OpenOptions::default() };
    Image::open_with(device.store.clone(), options)
}

/// Why the check may not be left out; `None` if it may.
fn reason_to_check(device: &Device) -> Result<Option<String>, Failure> {
    let Ok(image) = open(device) else { return Ok(Some("has a superblock that cannot be used".to_owned())) };
    let superblock = image.superblock();
    let features = superblock.features();
    let stored = superblock.s_state.get();
    if features.incompat.contains(Incompat::RECOVER) {
        return Ok(Some("has a journal that waits".to_owned()));
    }
    if stored & state::ERROR != 0 {
        return Ok(Some("contains a file system with errors".to_owned()));
    }
    if stored & state::VALID == 0 || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        return Ok(Some("was not cleanly unmounted".to_owned()));
    }
    due(superblock)
}

/// Mounts and time since the last check.
fn due(superblock: &Superblock) -> Result<Option<String>, Failure> {
    let most = superblock.s_max_mnt_count.get();
    let mounts = superblock.s_mnt_count.get();
    if most > 0 && most < 0x8000 && mounts >= most {
        return Ok(Some(format!("has been mounted {mounts} times without being checked")));
    }
    let interval = i64::from(superblock.s_checkinterval.get());
    let last = i64::from(superblock.s_lastcheck.get()) | i64::from(superblock.s_lastcheck_hi) << 32;
    let now = time::Now::from_environment(time::COMMON_VARIABLES)?.seconds;
    let passed = now.saturating_sub(last);
    if interval > 0 && passed >= interval {
        return Ok(Some(format!("has gone {} days without being checked", passed / 86400)));
    }
    Ok(None)
}
