//! All of it in order: options, device, the rule of when a check may be left out, the check, the last lines.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ext4kit_cli::device::{Device, DeviceName};
use ext4kit_cli::exit::{Convention, Failure, FailureKind, FsckExit};
use ext4kit_cli::progress::{Completion, Progress, Silent};
use ext4kit_cli::size::parse_number;
use ext4kit_cli::{arguments, report as output, time};
use ext4kit_format::BlockNumber;
use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::disk::superblock::{Superblock, state};
use ext4kit_format::image::{Image, OpenOptions};
use ext4kit_format::store::{Access, Store};

use crate::check;
use crate::lint;
use crate::opening::{self, Opened};
use crate::options::Options;
use crate::plan::{self, Plan, Witness};
use crate::policy::Policy;
use crate::repairs::jobs::Jobs;
use crate::repairs::{self, Judge, Repaired};
use crate::report::{
    Answer, Applied, FindingObject, Printer, SCHEMA, SCHEMA_APPLIED, last_line, say, verbose_lines,
};
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
    match examine(&options) {
        Ok(exit) => exit.into(),
        Err(failure) => output::failure(PROGRAM, &failure, Convention::Fsck, options.json.then_some(SCHEMA)),
    }
}

/// Refuses what contradicts itself and what is not built yet.
fn check_options(options: &Options) -> Result<(), Failure> {
    let answers = [options.preen, options.no, options.yes].into_iter().filter(|given| *given).count();
    if answers > 1 {
        return Err(Failure::usage("", "only one of -p (or -a), -n and -y may be given"));
    }
    let decides = answers > 0 || options.policy.is_some();
    if options.apply.is_some() && (decides || options.plan.is_some() || options.undo.is_some()) {
        return Err(Failure::usage(
            "--apply",
            "it does what the plan says, so that no other option says what to do",
        ));
    }
    if options.plan.is_some() && options.undo.is_some() {
        return Err(Failure::usage("--plan", "it changes nothing, so that -z has no use"));
    }
    let unbuilt = [
        ("-c", options.bad_blocks > 0, "looking for bad blocks"),
        ("-F", options.flush, "dropping cached blocks"),
        ("-l", options.add_bad_blocks.is_some(), "changing the list of bad blocks"),
        ("-L", options.set_bad_blocks.is_some(), "changing the list of bad blocks"),
    ];
    if let Some((option, _, what)) = unbuilt.into_iter().find(|(_, given, _)| *given) {
        return Err(Failure::usage(option, format!("{what} is not built yet")));
    }
    Ok(())
}

/// What is asked for besides a check.
struct Wishes {
    jobs: Jobs,
    journal_only: bool,
}

fn wishes(options: &Options) -> Result<Wishes, Failure> {
    let jobs = Jobs { pack_directories: options.rebuild_directories, ..Jobs::default() };
    let mut wishes = Wishes { jobs, journal_only: false };
    let mut fixes_only = false;
    for option in options.extended.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty())
    {
        match option.split('=').next().unwrap_or(option) {
            // Extent trees are left alone unless asked for, whole counts are always kept, and reading ahead is the
            // system's.
            "nodiscard"
            | "no_optimize_extents"
            | "no_inode_count_fullmap"
            | "inode_count_fullmap"
            | "readahead_kb"
            | "ea_ver" => {}
            "optimize_extents" => wishes.jobs.narrow_extents = true,
            "bmap2extent" => wishes.jobs.to_extents = true,
            "unshare_blocks" => wishes.jobs.unshare = true,
            "journal_only" => wishes.journal_only = true,
            "fixes_only" => fixes_only = true,
            name @ ("fragcheck" | "discard" | "check_encoding") => {
                return Err(Failure::usage("-E", format!("{name} is not built yet")));
            }
            name => return Err(Failure::usage("-E", format!("`{name}` is no extended option"))),
        }
    }
    if fixes_only {
        wishes.jobs = Jobs { unshare: wishes.jobs.unshare, ..Jobs::default() };
    }
    if options.no && wishes.jobs != Jobs::default() {
        return Err(Failure::usage(
            "-n",
            "it writes nothing, so that -D and options of -E that change files have no use",
        ));
    }
    Ok(wishes)
}

fn number(option: &str, value: Option<&String>) -> Result<Option<u64>, Failure> {
    let Some(text) = value else { return Ok(None) };
    parse_number(text).map(Some).map_err(|error| Failure::usage(option, error.to_string()))
}

/// The device of an external journal, which is emptied after a replay.
fn external_journal(options: &Options) -> Result<Option<Arc<dyn Store>>, Failure> {
    let Some(typed) = &options.journal else { return Ok(None) };
    let access = if options.no { Access::ReadOnly } else { Access::ReadWrite };
    Ok(Some(DeviceName::parse(typed)?.open(access, options.no)?.store))
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
    if let Some(path) = &options.apply {
        return apply(options, Path::new(path));
    }
    let policy = policy(options)?;
    let settings = check_settings(options)?;
    let wishes = wishes(options)?;
    let Some(typed) = &options.device else { return Err(Failure::usage("", "no device was named")) };
    let reads = policy == Policy::No || options.plan.is_some();
    let access = if reads { Access::ReadOnly } else { Access::ReadWrite };
    let begun = Instant::now();
    let mut device = DeviceName::parse(typed)?.open(access, options.no)?;
    let witness = options.plan.is_some().then(|| Arc::new(Witness::new(Arc::clone(&device.store))));
    if let Some(witness) = &witness {
        device.store = Arc::<Witness>::clone(witness);
    }
    let name = device.name.typed.clone();
    let run = Run { options, policy, wishes, device: &device, name, settings, witness };
    let exit = run.all()?;
    if options.timing > 0 && !options.json {
        say(&format!("elapsed time: {:.2} s", begun.elapsed().as_secs_f64()));
    }
    Ok(exit)
}

/// Does what a plan says.
fn apply(options: &Options, path: &Path) -> Result<FsckExit, Failure> {
    let Some(typed) = &options.device else { return Err(Failure::usage("", "no device was named")) };
    let of_plan = |error| Failure::from_error(&path.display().to_string(), &error);
    let plan = Plan::read(path).map_err(of_plan)?;
    let device = DeviceName::parse(typed)?.open(Access::ReadWrite, false)?;
    let name = &device.name.typed;
    let changed = plan::apply(&device.store, &plan, &device.name.redo_log())
        .map_err(|error| Failure::from_error(name, &error))?;
    if !options.json && changed > 0 {
        say(&format!("{name}: ***** FILE SYSTEM WAS MODIFIED *****"));
    }
    let mut exit = FsckExit::empty();
    exit.set(FsckExit::CORRECTED, changed > 0);
    exit.set(FsckExit::UNCORRECTED, plan.outcome.left > 0);
    if options.json {
        let applied = Applied {
            device: name,
            changed_blocks: changed,
            left: plan.outcome.left,
            exit_code: exit.bits(),
        };
        output::json(SCHEMA_APPLIED, &applied)
            .map_err(|error| Failure::new(FailureKind::Io, "", error.to_string()))?;
    }
    Ok(exit)
}

/// Who decides about repairs.
fn policy(options: &Options) -> Result<Policy, Failure> {
    let named = match options.policy.as_deref() {
        None => None,
        Some("safe") => Some(Policy::Safe),
        Some("no-data-loss") => Some(Policy::NoDataLoss),
        Some("all") => Some(Policy::Yes),
        Some(other) => {
            let text = format!("`{other}` is no policy; there are safe, no-data-loss and all");
            return Err(Failure::usage("--policy", text));
        }
    };
    if named.is_some() && (options.preen || options.yes || options.no) {
        return Err(Failure::usage("--policy", "it takes the place of -p, -n and -y"));
    }
    Ok(match named {
        Some(policy) => policy,
        None if options.no => Policy::No,
        None if options.preen => Policy::Preen,
        None if options.yes => Policy::Yes,
        // A plan without more holds all that -y would do.
        None if options.plan.is_some() => Policy::No,
        None if io::stdin().is_terminal() && io::stdout().is_terminal() && !options.json => Policy::Ask,
        None => {
            let text = "somebody has to be asked, but this is no terminal; give -p, -n, -y or --policy";
            return Err(Failure::new(FailureKind::Invalid, "", text));
        }
    })
}

/// One run of the program over one device.
struct Run<'a> {
    options: &'a Options,
    policy: Policy,
    wishes: Wishes,
    device: &'a Device,
    name: String,
    settings: check::Options,
    /// Remembers what was read, for a plan.
    witness: Option<Arc<Witness>>,
}

impl Run<'_> {
    /// Whether the device may be changed.
    fn writes(&self) -> bool {
        self.policy != Policy::No && self.witness.is_none()
    }

    fn failed(&self, error: &ext4kit_format::Error) -> Failure {
        Failure::from_error(&self.name, error)
    }

    fn all(&self) -> Result<FsckExit, Failure> {
        let Self { options, device, name, .. } = self;
        let writes = self.writes();
        let redo_log = device.name.redo_log();
        let mut recovered = false;
        // An undo file has to hold all that is changed: then the journal is replayed with the repairs, not before.
        let in_place = self.options.undo.is_none();
        if writes {
            if device.finished > 0 {
                self.note("an interrupted repair was finished");
            }
            if in_place && self.settings.superblock.is_none() {
                let recovery =
                    writing::recover_journal(&device.store).map_err(|error| self.failed(&error))?;
                recovered = recovery == Recovery::Done;
            }
            if recovered {
                self.note("recovering journal");
            }
        }
        if self.wishes.journal_only && !options.force {
            return Ok(FsckExit::empty());
        }
        if !options.force && !options.lint && self.witness.is_none() && self.settings.superblock.is_none() {
            match reason_to_check(device)? {
                None => return Ok(skipped(options, device, name)),
                Some(reason) if !options.json => say(&format!("{name} {reason}, check forced.")),
                Some(_) => {}
            }
        }
        self.check(recovered, &redo_log)
    }

    /// A line about something that was done unasked.
    fn note(&self, text: &str) {
        if !self.options.json {
            say(&format!("{}: {text}", self.name));
        }
    }

    fn check(&self, recovered: bool, redo_log: &Path) -> Result<FsckExit, Failure> {
        let Self { options, device, name, .. } = self;
        let writes = self.writes();
        let now = time::Now::from_environment(time::COMMON_VARIABLES)?.seconds;
        let now = u32::try_from(now).unwrap_or(u32::MAX);
        let progress = self.progress()?;
        let mut printer = Printer::new(name, self.policy, options.json, progress.as_ref());
        let wait: &dyn Fn(Duration) = &std::thread::sleep;
        let wait = Some(wait).filter(|_| writes);
        let mut opened = opening::open_waiting(Arc::clone(&device.store), &self.settings, wait)
            .map_err(|error| self.failed(&error))?;
        let in_memory = opened.replayed;
        opened.replayed |= recovered;
        let outcome = repairs::repair(&mut opened, now, self.wishes.jobs, &mut printer);
        progress.clear();
        let outcome = outcome.map_err(|error| self.failed(&error))?;
        let has_lint = self.options.lint && self.lint(&opened, &outcome, &mut printer);
        let given_up = outcome.stopped && self.policy == Policy::Preen;
        if writes && !outcome.stopped {
            if in_memory {
                opened.empty_log_inside(&self.settings).map_err(|error| self.failed(&error))?;
            }
            self.write(&mut opened, &outcome, (now, redo_log))?;
            if in_memory {
                opened.empty_log_outside(&self.settings).map_err(|error| self.failed(&error))?;
            }
        }
        if let Some(witness) = self.witness.as_ref().filter(|_| !outcome.stopped) {
            self.plan(&mut opened, (witness, &printer.findings), &outcome, now)?;
        }
        let written = writes && !outcome.stopped && (outcome.repaired > 0 || outcome.changed > 0);
        let mut exit = exit_of(if writes { self.policy } else { Policy::No }, &outcome);
        exit.set(FsckExit::LINT, has_lint);
        if options.json {
            let answer = Answer::new(name, std::mem::take(&mut printer.findings), &outcome, exit.bits());
            output::json(SCHEMA, &answer)
                .map_err(|error| Failure::new(FailureKind::Io, "", error.to_string()))?;
            return Ok(exit);
        }
        if given_up {
            say(&format!("\n{name}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY."));
        }
        if written {
            say(&format!("\n{name}: ***** FILE SYSTEM WAS MODIFIED *****"));
        }
        if exit.contains(FsckExit::UNCORRECTED) {
            say(&format!("\n{name}: ********** WARNING: Filesystem still has errors **********\n"));
        }
        say(&last_line(name, &outcome.summary));
        if options.verbose {
            say(&verbose_lines(&outcome.summary));
        }
        Ok(exit)
    }

    fn progress(&self) -> Result<Box<dyn Progress>, Failure> {
        let Some(argument) = &self.options.completion else { return Ok(Box::new(Silent)) };
        let wrong = || Failure::usage("-C", format!("`{argument}` is no descriptor"));
        let completion = Completion::parse(argument).ok_or_else(wrong)?;
        let failed = |error: io::Error| Failure::new(FailureKind::Io, "-C", error.to_string());
        Ok(completion.start(&self.name).map_err(failed)?.0)
    }

    /// Tells the oddities of what the repairs made, if they left no error; whether there are any.
    fn lint(&self, opened: &Opened, outcome: &Repaired, printer: &mut Printer<'_>) -> bool {
        if outcome.stopped || outcome.left > 0 {
            self.note("errors are left, so that nothing is said about oddities");
            return false;
        }
        // Notes that a check tells as well.
        let mut any =
            !self.writes() && printer.findings.iter().any(|told| NOTES_THAT_LINT.contains(&told.code));
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
        now: u32,
    ) -> Result<(), Failure> {
        let failed = |error| self.failed(&error);
        if self.settings.journal.is_some() && opened.superblock.journal_inode().is_none() && opened.replayed {
            let text = "a plan cannot hold the replay of an external journal; replay it first";
            return Err(Failure::new(FailureKind::Unsupported, self.name.clone(), text));
        }
        opened.empty_log_inside(&self.settings).map_err(failed)?;
        if self.has_work(opened, outcome) {
            writing::record(opened, outcome.left == 0, now).map_err(failed)?;
        }
        let findings = findings.to_vec();
        let journal_stays = !outcome.journal_given_up;
        let planned = plan::Outcome { findings, left: outcome.left, journal_stays, time: now };
        let plan = plan::make(opened, witness, planned).map_err(failed)?;
        let path = Path::new(self.options.plan.as_deref().unwrap_or_default());
        plan.write(path).map_err(|error| Failure::from_error(&path.display().to_string(), &error))
    }

    /// Whether there is something to commit.
    fn has_work(&self, opened: &Opened, outcome: &Repaired) -> bool {
        let due = reason_to_check(self.device).map_or(true, |reason| reason.is_some());
        !opened.source.overlay.is_unchanged() || outcome.left == 0 && due
    }

    /// Commits what was repaired. A clean check writes nothing, unless the superblock says that the filesystem is not
    /// clean or that a check is due.
    fn write(
        &self,
        opened: &mut Opened,
        outcome: &Repaired,
        (now, redo_log): (u32, &Path),
    ) -> Result<(), Failure> {
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
