//! All of it in order: options, device, the rule of when a check may be left out, the check, the last lines.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ext4kit_cli::device::{Device, DeviceName};
use ext4kit_cli::exit::{Convention, Failure, FailureKind, FsckExit};
use ext4kit_cli::progress::{self, Completion, FSCK_PASS_ENDS, Progress, Silent, Step, Switch};
use ext4kit_cli::{arguments, report as output};
use ext4kit_format::disk::superblock::state;
use ext4kit_format::store::Access;
use ext4kit_format::tree::{inode, map};
use ext4kit_format::{InodeNumber, LogicalBlock};

use crate::after;
use crate::bad_blocks::{self, Change};
use crate::due::{open, reason_to_check};
use crate::lint;
use crate::lost::Report;
use crate::names::{self, Before, Changed, Names};
use crate::opening::{self, Opened};
use crate::options::{FindSuper, Options};
use crate::plan::{self, Witness};
use crate::planning;
use crate::policy::Policy;
use crate::repairs::{self, Judge, Repaired};
use crate::report::{Answer, FindingObject, Printer, SCHEMA, last_line, say, verbose_lines};
use crate::request::Request;
use crate::root::is_read_only_root;
use crate::search;
use crate::signals::Watch;
use crate::timing::Stopwatch;
use crate::writing::{self, Recovery};

const PROGRAM: &str = "fsck";
/// A backup that is of no use, a missing `lost+found`, wrong totals: put right by the way, and oddities to `--lint`.
const NOTES_THAT_LINT: [u16; 4] = [129, 705, 912, 913];

/// Runs the program with its arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match arguments::parse::<Options>(arguments, Convention::Fsck) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let _ = writeln!(io::stderr(), "ext4kit-fsck {}", env!("CARGO_PKG_VERSION"));
    if options.version {
        return ExitCode::SUCCESS;
    }
    match examine(options) {
        Ok(exit) => exit.into(),
        Err((failure, json)) => output::failure(PROGRAM, &failure, Convention::Fsck, json.then_some(SCHEMA)),
    }
}

fn examine(options: Options) -> Result<FsckExit, (Failure, bool)> {
    let json = options.json;
    examine_device(options).map_err(|failure| (failure, json))
}

fn examine_device(mut options: Options) -> Result<FsckExit, Failure> {
    let request = Request::new(&options)?;
    options.verbose |= request.config.report_verbose;
    options.timing = options.timing.max(request.config.report_time.into());
    for what in &request.config.ignored {
        let _ = writeln!(io::stderr(), "{PROGRAM}: e2fsck.conf: {what} has no effect here");
    }
    if let Some(path) = &options.apply {
        return planning::apply(&options, Path::new(path));
    }
    let Some(typed) = &options.device else { return Err(Failure::usage("", "no device was named")) };
    let reads = request.policy == Policy::No || options.plan.is_some();
    let list = options.find_super == Some(FindSuper::List);
    let access = if reads || list { Access::ReadOnly } else { Access::ReadWrite };
    let watch = Stopwatch::start();
    let name = DeviceName::parse(typed)?;
    let is_root = access == Access::ReadWrite && is_read_only_root(&name.path);
    let device = name.open(access, options.no || is_root)?;
    let name = device.name.typed.clone();
    if options.flush {
        let failed = |error: io::Error| Failure::new(FailureKind::Io, &*name, error.to_string());
        device.store.drop_cache().map_err(failed)?;
    }
    let (progress, switch) = show_progress(&options, request.policy, &name)?;
    let signals = watch_signals(&options, &request, (&device, Arc::clone(&progress), switch))?;
    let device = match options.find_super {
        None => device,
        Some(FindSuper::List) => {
            let report = search::scan(&device, progress.as_ref())?;
            list_superblocks(&options, &report)?;
            return Ok(FsckExit::empty());
        }
        Some(FindSuper::Rebuild) => {
            let report = search::scan(&device, progress.as_ref())?;
            signals.begin_writing();
            let device = search::rebuild(&options, &device, &report)?;
            if signals.end_writing() {
                say_cancelled(&name, options.json);
                return Ok(FsckExit::CANCELLED | FsckExit::CORRECTED);
            }
            options.force = true;
            device
        }
    };
    let mut device = device;
    let witness = options.plan.is_some().then(|| Arc::new(Witness::new(Arc::clone(&device.store))));
    if let Some(witness) = &witness {
        device.store = Arc::<Witness>::clone(witness);
    }
    let (options, request, device) = (&options, &request, &device);
    let run = Run { options, request, device, name, progress, signals, is_root, witness };
    let exit = run.all()?;
    if options.timing > 0 && !options.json {
        say(&watch.lines(""));
    }
    Ok(exit)
}

fn list_superblocks(options: &Options, report: &Report) -> Result<(), Failure> {
    if options.json {
        return output::json(SCHEMA, report)
            .map_err(|error| Failure::new(FailureKind::Io, "", error.to_string()));
    }
    say(search::list(report).trim_end());
    Ok(())
}

/// Who shows how far the check is, and what turns it on and off.
fn show_progress(
    options: &Options,
    policy: Policy,
    name: &str,
) -> Result<(Arc<dyn Progress>, Option<Switch>), Failure> {
    let Some(argument) = &options.completion else {
        // A bar is in the way of what is read line by line: of boot messages, and of questions.
        let silent = options.json || matches!(policy, Policy::Preen | Policy::Ask);
        let shown = if silent { Box::new(Silent) } else { progress::on_terminal(name, FSCK_PASS_ENDS) };
        return Ok((shown.into(), None));
    };
    let wrong = || Failure::usage("-C", format!("`{argument}` is no descriptor"));
    let completion = Completion::parse(argument).ok_or_else(wrong)?;
    let failed = |error: io::Error| Failure::new(FailureKind::Io, "-C", error.to_string());
    let (progress, switch) = completion.start(name).map_err(failed)?;
    Ok((progress.into(), Some(switch)))
}

/// Has signals end the check.
fn watch_signals(
    options: &Options,
    request: &Request,
    (device, progress, switch): (&Device, Arc<dyn Progress>, Option<Switch>),
) -> Result<Watch, Failure> {
    let has_errors = open(device).map_or(true, |image| image.superblock().s_state.get() & state::ERROR != 0);
    let code = if request.config.allow_cancellation && !has_errors { 0 } else { FsckExit::CANCELLED.bits() };
    let (name, json) = (device.name.typed.clone(), options.json);
    let end = move || {
        progress.clear();
        say_cancelled(&name, json);
        code
    };
    Watch::start(switch, end).map_err(|error| Failure::new(FailureKind::Io, "", error.to_string()))
}

fn say_cancelled(name: &str, json: bool) {
    if json {
        let failure = Failure::new(FailureKind::Cancelled, name, "cancelled");
        output::failure(PROGRAM, &failure, Convention::Fsck, Some(SCHEMA));
    } else {
        say(&format!("{name}: fsck canceled."));
    }
}

/// One run of the program over one device.
struct Run<'a> {
    options: &'a Options,
    request: &'a Request,
    device: &'a Device,
    name: String,
    progress: Arc<dyn Progress>,
    signals: Watch,
    /// Whether the device is the running system's root.
    is_root: bool,
    /// Remembers what was read, for a plan.
    witness: Option<Arc<Witness>>,
}

impl Run<'_> {
    fn failed(&self, error: &ext4kit_format::Error) -> Failure {
        Failure::from_error(&self.name, error)
    }

    /// Whether the device may be changed.
    fn writes(&self) -> bool {
        self.request.policy != Policy::No && self.witness.is_none()
    }

    fn all(&self) -> Result<FsckExit, Failure> {
        let Self { options, request, device, name, .. } = self;
        let redo_log = device.name.redo_log();
        let mut recovered = false;
        if self.writes() {
            self.signals.begin_writing();
            recovered = self.finish_what_waits()?;
            if self.signals.end_writing() {
                say_cancelled(name, options.json);
                return Ok(FsckExit::CANCELLED);
            }
        }
        if request.wishes.journal_only && !options.force {
            return Ok(FsckExit::empty());
        }
        let lists = options.add_bad_blocks.is_some() || options.set_bad_blocks.is_some();
        let asked = options.force || options.lint || self.witness.is_some();
        let forced = asked || request.wishes.jobs.unshare || request.wishes.trial.is_some() || lists;
        if !forced && request.settings.superblock.is_none() {
            match reason_to_check(device, request.clock) {
                None => return Ok(skipped(options, device, name)),
                Some(reason) if !options.json => say(&format!("{name} {reason}, check forced.")),
                Some(_) => {}
            }
        }
        self.check(recovered, &redo_log)
    }

    /// Tells of an interrupted repair that was finished, and replays the journal in place; whether it was.
    fn finish_what_waits(&self) -> Result<bool, Failure> {
        let store = &self.device.store;
        if self.device.finished > 0 {
            self.note("an interrupted repair was finished");
        }
        // An undo file has to hold all that is changed: then the journal is replayed with the repairs, not before.
        let in_place = self.options.undo.is_none() && self.request.settings.superblock.is_none();
        let recovered = in_place
            && writing::recover_journal(store).map_err(|error| self.failed(&error))? == Recovery::Done;
        if recovered {
            self.note("recovering journal");
        }
        Ok(recovered)
    }

    /// A line about something that was done unasked.
    fn note(&self, text: &str) {
        if !self.options.json {
            say(&format!("{}: {text}", self.name));
        }
    }

    fn check(&self, recovered: bool, redo_log: &Path) -> Result<FsckExit, Failure> {
        let Self { options, request, device, name, .. } = self;
        let writes = self.writes();
        let before = Before::new(Arc::clone(&device.store), request.settings.clone());
        let mut printer = Printer::new(name, request.policy, options.json, self.progress.as_ref())
            .with(request.standing(), &before);
        if options.timing > 1 && !options.json {
            printer.time_passes();
        }
        let wait: &dyn Fn(Duration) = &std::thread::sleep;
        let wait = Some(wait).filter(|_| writes);
        let mut opened = opening::open_waiting(Arc::clone(&device.store), &request.settings, wait)
            .map_err(|error| self.failed(&error))?;
        let in_memory = opened.replayed;
        opened.replayed |= recovered;
        self.list_bad_blocks(&mut opened)?;
        let outcome = repairs::repair(&mut opened, request.seconds(), request.wishes.jobs, &mut printer);
        self.progress.clear();
        let outcome = outcome.map_err(|error| self.failed(&error))?;
        printer.end_pass(0);
        for (inode, block) in &outcome.unreadable {
            let path = before.path(*inode).unwrap_or_else(|| format!("inode {inode}"));
            self.note(&format!("{path}: bad block {block} could not be read, zeros are in its place"));
        }
        if let Some(path) = &options.report {
            let changes = if outcome.stopped {
                Vec::new()
            } else {
                names::changes(before.names(), &Names::read(&opened.source), &printer.losses)
            };
            write_report(Path::new(path), &changes)?;
        }
        let has_lint = options.lint && self.lint(&opened, &outcome, &mut printer);
        let mut cancelled = false;
        if writes && !outcome.stopped {
            self.signals.begin_writing();
            if in_memory {
                opened.empty_log_inside(&request.settings).map_err(|error| self.failed(&error))?;
            }
            self.write(&mut opened, &outcome, redo_log)?;
            if in_memory {
                opened.empty_log_outside(&request.settings).map_err(|error| self.failed(&error))?;
            }
            cancelled = self.signals.end_writing();
        }
        if let Some(witness) = self.witness.as_ref().filter(|_| !outcome.stopped) {
            self.plan(&mut opened, (witness, &printer.findings), &outcome)?;
        }
        self.afterwards(&opened, &outcome)?;
        let written = writes && !outcome.stopped && (outcome.repaired > 0 || outcome.changed > 0);
        let mut exit = exit_of(if writes { request.policy } else { Policy::No }, &outcome);
        exit.set(FsckExit::LINT, has_lint);
        let rebuilt = options.find_super == Some(FindSuper::Rebuild);
        exit.set(FsckExit::CORRECTED, exit.contains(FsckExit::CORRECTED) || rebuilt);
        exit.set(FsckExit::REBOOT, written && self.is_root);
        exit.set(FsckExit::CANCELLED, cancelled);
        if options.json {
            let answer = Answer::new(name, std::mem::take(&mut printer.findings), &outcome, exit.bits());
            output::json(SCHEMA, &answer)
                .map_err(|error| Failure::new(FailureKind::Io, "", error.to_string()))?;
            return Ok(exit);
        }
        self.last_lines(&opened, &outcome, exit);
        Ok(exit)
    }

    /// Brings bad blocks into the list, where that is asked for.
    fn list_bad_blocks(&self, opened: &mut Opened) -> Result<(), Failure> {
        let Self { options, request, device, .. } = self;
        let mut change = Change { add: BTreeSet::new(), keep: request.wishes.keep_bad_blocks };
        let files = [&options.add_bad_blocks, &options.set_bad_blocks];
        for path in files.into_iter().flatten() {
            change.add.extend(bad_blocks::read_file(Path::new(path))?);
        }
        if let Some(trial) = request.wishes.trial {
            let geometry = opened.source.layout().geometry.clone();
            let found = bad_blocks::find(device.store.as_ref(), &geometry, trial, &mut |current, maximum| {
                self.progress.update(Step { pass: 1, current, maximum });
            });
            self.progress.clear();
            let found = found.map_err(|error| self.failed(&error))?;
            self.note(&format!("{} bad blocks were found", found.len()));
            change.add.extend(found);
        } else if files.iter().all(|path| path.is_none()) {
            return Ok(());
        }
        let listed = bad_blocks::change(opened, &change, request.seconds());
        let listed = listed.map_err(|error| self.failed(&error))?;
        for block in listed.in_metadata {
            self.note(&format!(
                "block {block} holds the filesystem's own metadata, and is not listed as bad"
            ));
        }
        Ok(())
    }

    /// What is done with a filesystem that has nothing wrong any more.
    fn afterwards(&self, opened: &Opened, outcome: &Repaired) -> Result<(), Failure> {
        let wishes = self.request.wishes;
        let sound = outcome.left == 0 && !outcome.stopped;
        // With `-n` the repairs are not in the image, and there was no discard to ask for.
        if !sound || !(wishes.discard || wishes.fragments) {
            return Ok(());
        }
        let knowledge = after::learn(opened);
        if wishes.fragments && !self.options.json {
            let told = after::fragments(opened, &knowledge, &mut |gap| say(&gap.to_string()));
            told.map_err(|error| self.failed(&error))?;
        }
        if wishes.discard {
            match after::discard(opened, &knowledge).map_err(|error| self.failed(&error))? {
                Some(bytes) if self.options.verbose => {
                    self.note(&format!("{bytes} free bytes were discarded"));
                }
                Some(_) => {}
                None => self.note("the device cannot discard"),
            }
        }
        Ok(())
    }

    /// What callers look for at the end.
    fn last_lines(&self, opened: &Opened, outcome: &Repaired, exit: FsckExit) {
        let Self { options, request, name, .. } = self;
        let preen = request.policy == Policy::Preen;
        if outcome.stopped && preen {
            say(&format!("\n{name}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY."));
        }
        if exit.contains(FsckExit::CORRECTED) && !preen {
            say(&format!("\n{name}: ***** FILE SYSTEM WAS MODIFIED *****"));
        }
        if exit.contains(FsckExit::REBOOT) {
            say(&format!("{name}: ***** REBOOT SYSTEM *****"));
        }
        if exit.contains(FsckExit::UNCORRECTED) {
            say(&format!("\n{name}: ********** WARNING: Filesystem still has errors **********\n"));
        }
        if exit.contains(FsckExit::CANCELLED) {
            say_cancelled(name, false);
        }
        if options.verbose && !preen {
            say(&verbose_lines(&outcome.summary, bad_blocks(opened)));
        } else {
            say(&last_line(name, &outcome.summary));
            if options.verbose {
                say(&verbose_lines(&outcome.summary, bad_blocks(opened)));
            }
        }
    }

    /// Tells the oddities of what the repairs made, if they left no error; whether there are any.
    fn lint(&self, opened: &Opened, outcome: &Repaired, printer: &mut Printer<'_>) -> bool {
        if outcome.stopped || outcome.left > 0 {
            self.note("errors are left, so that nothing is said about oddities");
            return false;
        }
        // Notes that a check tells as well.
        let noted = |told: &FindingObject| NOTES_THAT_LINT.contains(&told.code);
        let mut any = !self.writes() && printer.findings.iter().any(noted);
        lint::lint(opened, &mut |finding| {
            any = true;
            printer.judge(&finding);
        });
        any
    }

    /// Writes what would be done to a file.
    fn plan(
        &self,
        opened: &mut Opened,
        (witness, findings): (&Witness, &[FindingObject]),
        outcome: &Repaired,
    ) -> Result<(), Failure> {
        let failed = |error| self.failed(&error);
        let settings = &self.request.settings;
        if settings.journal.is_some() && opened.superblock.journal_inode().is_none() && opened.replayed {
            let text = "a plan cannot hold the replay of an external journal; replay it first";
            return Err(Failure::new(FailureKind::Unsupported, self.name.clone(), text));
        }
        opened.empty_log_inside(settings).map_err(failed)?;
        let now = self.request.seconds();
        if self.has_work(opened, outcome) {
            writing::record(opened, outcome.left == 0, now).map_err(failed)?;
        }
        let planned = plan::Outcome {
            findings: findings.to_vec(),
            left: outcome.left,
            journal_stays: !outcome.journal_given_up,
            time: now,
        };
        let plan = plan::make(opened, witness, planned).map_err(failed)?;
        let path = Path::new(self.options.plan.as_deref().unwrap_or_default());
        plan.write(path).map_err(|error| Failure::from_error(&path.display().to_string(), &error))
    }

    /// Whether there is something to commit.
    fn has_work(&self, opened: &Opened, outcome: &Repaired) -> bool {
        let due = reason_to_check(self.device, self.request.clock).is_some();
        !opened.source.overlay.is_unchanged() || outcome.left == 0 && due
    }

    /// Commits what was repaired. A clean check writes nothing, unless the superblock says that the filesystem is not
    /// clean or that a check is due.
    fn write(&self, opened: &mut Opened, outcome: &Repaired, redo_log: &Path) -> Result<(), Failure> {
        let now = self.request.seconds();
        let clean = outcome.left == 0;
        if !self.has_work(opened, outcome) {
            return Ok(());
        }
        let store = &self.device.store;
        let commit = |opened: &mut Opened| {
            writing::record(opened, clean, now)?;
            if let Some(path) = &self.options.undo {
                let path = Path::new(path);
                let log = (redo_log, self.device.name.offset);
                return writing::commit_with_undo(opened, path, log);
            }
            let how = (redo_log, !outcome.journal_given_up);
            writing::commit(store, &mut opened.source.overlay, how, now).map(|_| ())
        };
        commit(opened).map_err(|error| self.failed(&error))
    }
}

/// Writes what became of files, before anything else is written: a repair that cannot be told is not made.
fn write_report(path: &Path, changes: &[Changed]) -> Result<(), Failure> {
    let write = |file| names::write_lines(changes, &mut io::BufWriter::new(file));
    let written = std::fs::File::create(path).and_then(write);
    written.map_err(|error| Failure::new(FailureKind::Io, path.display().to_string(), error.to_string()))
}

/// How many blocks the list of bad blocks has.
fn bad_blocks(opened: &Opened) -> u64 {
    let overlay = &opened.source.overlay;
    let Ok(list) = inode::read_unverified(overlay, InodeNumber::BAD_BLOCKS) else { return 0 };
    let segments = map::segments(overlay, &list, LogicalBlock(0));
    let runs = segments.map_while(Result::ok).filter_map(|segment| segment.run());
    runs.fold(0, |sum, run| sum.saturating_add(run.length))
}

fn exit_of(policy: Policy, outcome: &Repaired) -> FsckExit {
    let mut exit = FsckExit::empty();
    let left = outcome.left > 0 || outcome.stopped;
    if policy == Policy::No {
        exit.set(FsckExit::UNCORRECTED, left || outcome.repaired > 0);
        return exit;
    }
    let changed = outcome.repaired > 0 || outcome.changed > 0;
    exit.set(FsckExit::CORRECTED, changed && !outcome.stopped);
    exit.set(FsckExit::UNCORRECTED, left);
    exit.set(FsckExit::OPERATIONAL, outcome.fatal);
    exit
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
            repaired: 0,
            left: 0,
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
