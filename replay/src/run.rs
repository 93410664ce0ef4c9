//! All of it in order: open, list or replay, say what came of it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ext4kit_cli::exit::{Convention, Failure, FailureKind, FsckExit};
use ext4kit_cli::json::Schema;
use ext4kit_cli::{arguments, device, report};
use ext4kit_format::TransactionId;
use ext4kit_format::journal::{ReplayPlan, recover};
use ext4kit_format::store::{self, Access, Store};
use serde::Serialize;

use crate::listing::Listing;
use crate::open::{Opened, open};
use crate::options::Options;
use crate::outcome::{LISTING, OUTCOME, Outcome};

const PROGRAM: &str = "replay";

/// Runs the program with its arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match arguments::parse::<Options>(arguments, Convention::Fsck) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let schema = if options.list { LISTING } else { OUTCOME };
    let done = if options.list { list(&options) } else { replay(&options) };
    match done {
        Ok(code) => code,
        Err(failure) => {
            // A journal that cannot be opened is no damage that was replayed around: it is 8 alone.
            let failure = match failure.kind {
                FailureKind::Corrupt => Failure { kind: FailureKind::Invalid, ..failure },
                _ => failure,
            };
            report::failure(PROGRAM, &failure, Convention::Fsck, options.json.then_some(schema))
        }
    }
}

/// Prints an answer, as JSON or as text.
fn answer<T: Serialize>(options: &Options, schema: Schema, result: &T, text: &str) -> Result<(), Failure> {
    let printed = if options.json {
        report::json(schema, result)
    } else if options.quiet {
        Ok(())
    } else {
        io::stdout().write_all(text.as_bytes())
    };
    match printed {
        // Whoever stopped reading has what they wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(FailureKind::Io, "standard output", error.to_string()))
        }
        _ => Ok(()),
    }
}

fn list(options: &Options) -> Result<ExitCode, Failure> {
    let device = device::open(&options.device, Access::ReadOnly, options.force)?;
    let name = device.name.typed.clone();
    let failed = |error: &ext4kit_format::Error| Failure::from_error(&name, error);
    let opened = open(&name, device.store, options.journal.as_deref(), Access::ReadOnly)?;
    let Some(Opened { image, journal, .. }) = opened else {
        return Err(Failure::new(FailureKind::Invalid, name, "the filesystem has no journal"));
    };
    let blocks = image.layout().geometry.blocks_count();
    let scan = journal.scan(blocks).map_err(|error| failed(&error))?;
    let listing = Listing::new(&image, &journal, &scan, options.verbose).map_err(|error| failed(&error))?;
    answer(options, LISTING, &listing, &listing.text())?;
    Ok(if listing.damaged { FsckExit::UNCORRECTED.into() } else { ExitCode::SUCCESS })
}

fn replay(options: &Options) -> Result<ExitCode, Failure> {
    let access = if options.dry_run || options.to.is_some() { Access::ReadOnly } else { Access::ReadWrite };
    let device = device::open(&options.device, access, options.force)?;
    let name = device.name.typed.clone();
    let store = match &options.to {
        Some(target) => copy(device.store.as_ref(), target)?,
        None => device.store,
    };
    let outcome = match open(&name, Arc::clone(&store), options.journal.as_deref(), access)? {
        None => Outcome { dry_run: options.dry_run, ..Outcome::default() },
        Some(opened) => replay_opened(options, &name, store.as_ref(), opened)?,
    };
    answer(options, OUTCOME, &outcome, &outcome.text(&name))?;
    Ok(outcome.exit().into())
}

fn replay_opened(
    options: &Options,
    name: &str,
    store: &dyn Store,
    opened: Opened,
) -> Result<Outcome, Failure> {
    let failed = |error: &ext4kit_format::Error| Failure::from_error(name, error);
    let Opened { image, journal, warning } = opened;
    let until = options.until.map(TransactionId);
    let scan = journal.scan(image.layout().geometry.blocks_count()).map_err(|error| failed(&error))?;
    let pending = image.needs_recovery() || !scan.is_empty();
    let mut outcome = if options.dry_run {
        let plan = ReplayPlan::new(&scan, until).map_err(|error| failed(&error))?;
        let mut outcome = Outcome::of_plan(&scan, &plan, pending);
        // A replay meets damaged copies as it writes; a dry run has to look for them to come to the same.
        outcome.note_bad_copies(&journal.check_copies(&scan).map_err(|error| failed(&error))?);
        outcome
    } else {
        let recovered = recover(store, &journal, until).map_err(|error| failed(&error))?;
        Outcome::of_recovery(&recovered, pending)
    };
    if let Some(until) = until {
        outcome.last_transaction = Some(until.0);
        let last = scan.transactions().iter().position(|transaction| transaction.id == until);
        outcome.transactions = last.map_or(outcome.transactions, |last| last + 1);
    }
    outcome.warnings.extend(warning);
    Ok(outcome)
}

/// Copies an image to a new file, holes as holes.
fn copy(from: &dyn Store, target: &Path) -> Result<Arc<dyn Store>, Failure> {
    let place = target.display().to_string();
    let failed = |error: io::Error| Failure::new(FailureKind::Io, place.clone(), error.to_string());
    let to = store::create_sparse_file(target, from.size())
        .map_err(|error| Failure::from_error(&place, &error))?;
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    while let Some(data) = from.next_data(offset).map_err(failed)? {
        let mut at = data.start;
        while at < data.end {
            let length = usize::try_from(data.end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let (piece, _) = buffer.split_at_mut(length);
            from.read_at(at, piece).map_err(failed)?;
            to.write_at(at, piece).map_err(failed)?;
            at += u64::try_from(length).unwrap_or(u64::MAX);
        }
        offset = data.end;
    }
    Ok(Arc::new(to))
}
