//! What the command line, the environment and `e2fsck.conf` ask for, as values that contradict nothing.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use ext4kit_cli::device::DeviceName;
use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_cli::size::parse_number;
use ext4kit_cli::time;
use ext4kit_format::BlockNumber;
use ext4kit_format::store::{Access, Store};

use crate::bad_blocks::Trial;
use crate::check;
use crate::config::Config;
use crate::due::Clock;
use crate::options::{FindSuper, Options};
use crate::policy::{Policy, Standing};
use crate::repairs::jobs::Jobs;
use crate::search;

/// What is asked for besides a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of e2fsck")]
pub struct Wishes {
    /// What is done when nothing is wrong.
    pub jobs: Jobs,
    /// Only the journal is replayed.
    pub journal_only: bool,
    /// Free blocks are given back to the device in the end.
    pub discard: bool,
    /// Every place where a file is not in one piece is told.
    pub fragments: bool,
    /// All blocks are tried, and those that fail come into the list of bad blocks.
    pub trial: Option<Trial>,
    /// Whether the list of bad blocks keeps what it has.
    pub keep_bad_blocks: bool,
}

/// A whole call of the program.
pub struct Request {
    /// Who decides about repairs.
    pub policy: Policy,
    /// How to check.
    pub settings: check::Options,
    /// What is asked for besides.
    pub wishes: Wishes,
    /// What `e2fsck.conf` says.
    pub config: Config,
    /// The time.
    pub clock: Clock,
}

impl Request {
    /// Reads all that a call says.
    pub fn new(options: &Options) -> Result<Self, Failure> {
        check_options(options)?;
        let config = Config::load();
        let now = time::Now::from_environment(time::FSCK_VARIABLES)?.seconds;
        Ok(Self {
            policy: policy(options)?,
            settings: check_settings(options)?,
            wishes: wishes(options)?,
            clock: Clock { now, broken: config.broken_clock },
            config,
        })
    }

    /// The time as superblocks and inodes hold it.
    pub fn seconds(&self) -> u32 {
        u32::try_from(self.clock.now).unwrap_or(u32::MAX)
    }

    /// The answers that stand from the start.
    pub fn standing(&self) -> Standing {
        Standing { safe: self.config.preen.clone(), never: self.config.never.clone(), ..Standing::default() }
    }
}

/// Refuses what contradicts itself.
fn check_options(options: &Options) -> Result<(), Failure> {
    search::check_options(options)?;
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
    if options.plan.is_some() && options.find_super.is_some() {
        return Err(Failure::usage("--plan", "a lost superblock is rebuilt first"));
    }
    let lists = [
        ("-c", options.bad_blocks > 0),
        ("-l", options.add_bad_blocks.is_some()),
        ("-L", options.set_bad_blocks.is_some()),
    ];
    if let Some((option, _)) = lists.into_iter().find(|(_, given)| *given && options.no) {
        return Err(Failure::usage(option, "the list of bad blocks cannot be changed with -n"));
    }
    if options.add_bad_blocks.is_some() && options.set_bad_blocks.is_some() {
        return Err(Failure::usage("-L", "only one of -l and -L may be given"));
    }
    Ok(())
}

fn wishes(options: &Options) -> Result<Wishes, Failure> {
    let jobs = Jobs { pack_directories: options.rebuild_directories, ..Jobs::default() };
    let trial = match options.bad_blocks {
        0 => None,
        1 => Some(Trial::Read),
        _ => Some(Trial::Rewrite),
    };
    // Without -k a search begins a new list, as a file of -L does.
    let begins = options.set_bad_blocks.is_some() || trial.is_some() && options.add_bad_blocks.is_none();
    let keep_bad_blocks = options.keep_bad_blocks || !begins;
    let mut wishes = Wishes { jobs, trial, keep_bad_blocks, ..Wishes::default() };
    // e2fsck reads this variable as well.
    let mut fixes_only = std::env::var_os("E2FSCK_FIXES_ONLY").is_some();
    for option in options.extended.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty())
    {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let alone = !matches!(name, "readahead_kb" | "ea_ver");
        if alone && value.is_some() {
            return Err(Failure::usage("-E", format!("{name} takes no value")));
        }
        match name {
            // Extent trees are left alone unless asked for, and whole counts are always kept.
            "no_optimize_extents" | "no_inode_count_fullmap" | "inode_count_fullmap" => {}
            // Reading ahead is the system's.
            "readahead_kb" => {
                let number = value.and_then(|value| parse_number(value).ok());
                number.ok_or_else(|| Failure::usage("-E", "readahead_kb needs a number"))?;
            }
            // Attributes of the first version are not read any more by anybody.
            "ea_ver" if matches!(value, Some("1" | "2")) => {}
            "ea_ver" => return Err(Failure::usage("-E", "ea_ver is 1 or 2")),
            "optimize_extents" => wishes.jobs.narrow_extents = true,
            "bmap2extent" => wishes.jobs.to_extents = true,
            "unshare_blocks" => wishes.jobs.unshare = true,
            "journal_only" => wishes.journal_only = true,
            "fixes_only" => fixes_only = true,
            "discard" => wishes.discard = true,
            "nodiscard" => wishes.discard = false,
            "fragcheck" => wishes.fragments = true,
            "check_encoding" => {
                return Err(Failure::usage("-E", "check_encoding is not built yet"));
            }
            name => return Err(Failure::usage("-E", format!("`{name}` is no extended option"))),
        }
    }
    if fixes_only {
        wishes.jobs = Jobs { unshare: wishes.jobs.unshare, ..Jobs::default() };
    }
    if options.no && (wishes.jobs != Jobs::default() || wishes.discard) {
        return Err(Failure::usage(
            "-n",
            "it writes nothing, so that -D and options of -E that change files or the device have no use",
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
    let is_terminal = || io::stdin().is_terminal() && io::stdout().is_terminal();
    // Programs that talk to this one through pipes ask for questions by a variable.
    let forced = std::env::var_os("E2FSCK_FORCE_INTERACTIVE").is_some();
    Ok(match named {
        Some(policy) => policy,
        None if options.no => Policy::No,
        None if options.preen => Policy::Preen,
        None if options.yes => Policy::Yes,
        // A plan without more holds all that -y would do.
        None if options.plan.is_some() || options.apply.is_some() => Policy::No,
        // A list asks nothing and writes nothing.
        None if options.find_super == Some(FindSuper::List) => Policy::No,
        None if !options.json && (forced || is_terminal()) => Policy::Ask,
        None => {
            let text = "somebody has to be asked, but this is no terminal; give -p, -n, -y or --policy";
            return Err(Failure::new(FailureKind::Invalid, "", text));
        }
    })
}
