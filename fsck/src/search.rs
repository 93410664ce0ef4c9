//! `--find-super`: the superblocks of a device, listed, and a filesystem rebuilt from them.

use std::fmt::Write as _;
use std::sync::Arc;

use ext4kit_cli::device::{Device, DeviceName};
use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_cli::progress::{Progress, Step};
use ext4kit_cli::time;
use ext4kit_format::txn::commit_with_redo_log;

use crate::lost::{self, Lost, Report};
use crate::options::{FindSuper, Options};
use crate::report::say;

/// Looks for superblocks; the answer is a list of filesystems, the likeliest first.
pub fn scan(device: &Device, progress: &dyn Progress) -> Result<Report, Failure> {
    let name = &device.name.typed;
    let report = lost::find_superblocks(device.store.as_ref(), &mut |current, maximum| {
        progress.update(Step { pass: 1, current, maximum });
    });
    progress.clear();
    let report = report.map_err(|error| Failure::from_error(name, &error))?;
    if report.filesystems.is_empty() {
        return Err(Failure::new(
            FailureKind::NotFilesystem,
            name,
            "holds no superblock of ext2, ext3 or ext4",
        ));
    }
    Ok(report)
}

/// The list as text.
pub fn list(report: &Report) -> String {
    let zone = time::local_zone();
    let mut text = String::new();
    for (number, lost) in (1u64..).zip(&report.filesystems) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{number}: {} {:?}, {} blocks of {} bytes from byte {}, {} of {} superblocks, {}{}",
            lost.uuid,
            lost.label,
            lost.blocks,
            lost.block_size,
            lost.start,
            lost.found.len(),
            lost.expected,
            if lost.has_checksums { "checksums right" } else { "no checksums" },
            if lost.fits { "" } else { ", larger than the device" }
        );
        for found in &lost.found {
            let written = i64::try_from(found.written).unwrap_or(i64::MAX);
            let written = time::classic_text(written, &zone);
            let (offset, group, block) = (found.offset, found.group, found.block);
            let _ = writeln!(text, "   byte {offset}: group {group}, block {block}, written {written}");
        }
    }
    if report.truncated {
        text.push_str("there are more superblocks than are kept\n");
    }
    text
}

/// The filesystem that is meant: the one that was chosen, or the only one.
fn choose<'r>(options: &Options, report: &'r Report) -> Result<&'r Lost, Failure> {
    let count = report.filesystems.len();
    let number = match options.choose {
        Some(number) => number,
        None if count == 1 => 1,
        None => {
            say(list(report).trim_end());
            let text = format!("{count} filesystems were found; say which with --choose");
            return Err(Failure::usage("--find-super", text));
        }
    };
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let missing =
        || Failure::usage("--choose", format!("there is no filesystem {number}; there are {count}"));
    index.and_then(|index| report.filesystems.get(index)).ok_or_else(missing)
}

/// Refuses what does not go together, before anything is read.
pub fn check_options(options: &Options) -> Result<(), Failure> {
    if options.choose.is_some() && options.find_super != Some(FindSuper::Rebuild) {
        return Err(Failure::usage("--choose", "it says what --find-super=rebuild rebuilds"));
    }
    if options.find_super.is_none() {
        return Ok(());
    }
    if options.superblock.is_some() || options.block_size.is_some() {
        return Err(Failure::usage("--find-super", "it finds what -b and -B would say"));
    }
    let rebuild = options.find_super == Some(FindSuper::Rebuild);
    if rebuild && options.no {
        return Err(Failure::usage(
            "--find-super",
            "nothing can be rebuilt with -n; without =rebuild it lists",
        ));
    }
    if rebuild && options.undo.is_some() {
        return Err(Failure::usage("-z", "an undo file cannot hold what --find-super=rebuild changes"));
    }
    Ok(())
}

/// Rebuilds superblock, descriptors and their copies, and commits that; the filesystem as a device of its own, to be
/// checked.
pub fn rebuild(options: &Options, device: &Device, report: &Report) -> Result<Device, Failure> {
    let lost = choose(options, report)?;
    let failed = |error: &ext4kit_format::Error| Failure::from_error(&device.name.typed, error);
    let mut rebuilt = lost::rebuild(Arc::clone(&device.store), lost).map_err(|error| failed(&error))?;
    let offset = device.name.offset.saturating_add(lost.start);
    let name = DeviceName { offset, ..device.name.clone() };
    commit_with_redo_log(rebuilt.overlay(), &name.redo_log()).map_err(|error| failed(&error))?;
    if !options.json {
        for finding in &rebuilt.findings {
            say(&finding.to_string());
        }
    }
    Ok(Device { name, store: Arc::clone(rebuilt.source.store()), finished: 0 })
}
