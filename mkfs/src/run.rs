//! All of it in order: options, parameters, target, filesystem.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use ext4kit_cli::argv0::{Profile, Tool};
use ext4kit_cli::device::DeviceName;
use ext4kit_cli::exit::{Convention, Failure, FailureKind};
use ext4kit_cli::{arguments, report as output, time};
use ext4kit_format::create::{Plan, create_filesystem, write_backups};
use ext4kit_format::txn::{DataPolicy, OverlayOptions, commit_new};
use uuid::Uuid;

use crate::choose::{self, Surroundings};
use crate::defaults::Kind;
use crate::extended::Extended;
use crate::fill;
use crate::options::Options;
use crate::report::{Made, SCHEMA};
use crate::target::{self, OpenTarget, Present};

const PROGRAM: &str = "mkfs";

/// Runs the program with its arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let kind = arguments.first().and_then(|name| Tool::from_program(name)).and_then(kind_of_name);
    let options = match arguments::parse::<Options>(arguments, Convention::Plain) {
        Ok(options) => options,
        Err(code) => return code,
    };
    if options.version {
        let _ = writeln!(io::stderr(), "ext4kit-mkfs {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match make(&options, kind) {
        Ok(made) if options.json => match output::json(SCHEMA, &made) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Ok(made) => {
            if !options.quiet {
                let details = if options.verbose { made.details() } else { String::new() };
                let _ = io::stdout().write_all((details + &made.text()).as_bytes());
            }
            ExitCode::SUCCESS
        }
        Err(failure) => output::failure(PROGRAM, &failure, Convention::Plain, options.json.then_some(SCHEMA)),
    }
}

fn kind_of_name(tool: Tool) -> Option<Kind> {
    match tool {
        Tool::Mkfs(Some(Profile::Ext2)) => Some(Kind::Ext2),
        Tool::Mkfs(Some(Profile::Ext3)) => Some(Kind::Ext3),
        Tool::Mkfs(Some(Profile::Ext4)) => Some(Kind::Ext4),
        _ => None,
    }
}

/// Makes the filesystem that the options ask for.
fn make(options: &Options, kind: Option<Kind>) -> Result<Made, Failure> {
    let Some(device) = &options.device else { return Err(Failure::usage("", "no device was named")) };
    let extended = Extended::parse(&options.extended)?;
    let mut name = DeviceName::parse(device)?;
    if extended.offset != 0 {
        name = name.with_offset(extended.offset)?;
    }
    let now = time::Now::from_environment(time::COMMON_VARIABLES)?;
    let around = Surroundings {
        now: now.seconds,
        random: [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()],
        target_bytes: target_bytes(&name)?,
        user: target::user(),
        kind,
    };
    let mut parameters = choose::parameters(options, &around)?;
    let failed = |error: &ext4kit_format::Error| Failure::from_error(&name.typed, error);
    let plan = Plan::new(&parameters).map_err(|error| failed(&error))?;
    let made = Made::new(&plan, &parameters, options.dry_run);
    if options.dry_run {
        return Ok(made);
    }
    // Opened before the target is touched: a wrong name should cost nothing.
    let source = options.source.as_deref().map(|path| fill::open(path, &extended)).transpose()?;
    let wanted = OpenTarget {
        offset: name.offset,
        bytes: plan.layout.geometry.blocks_count() << plan.layout.geometry.block_bits(),
        force: options.force,
        discard: extended.discard.unwrap_or(true),
    };
    let target = target::open(&name, wanted)?;
    parameters.target_is_zero |= target.is_zero;
    let overlay_options = OverlayOptions { data: DataPolicy::WriteThrough, ..OverlayOptions::default() };
    let created = create_filesystem(target.store, &plan, &parameters, overlay_options);
    let mut overlay = created.map_err(|error| failed(&error))?;
    if let Some(source) = source {
        fill::fill(&mut overlay, (source, &name.path), &fill::options(&extended, now))?;
    }
    write_backups(&mut overlay).and_then(|()| commit_new(&mut overlay)).map_err(|error| failed(&error))?;
    Ok(made)
}

/// The bytes that a target offers from where the filesystem begins; `None` where it does not exist yet.
fn target_bytes(name: &DeviceName) -> Result<Option<u64>, Failure> {
    let size = match target::look(&name.path)? {
        Present::Missing => return Ok(None),
        Present::File(size) => size,
        Present::Device => target::device_size(&name.path)?,
    };
    let Some(rest) = size.checked_sub(name.offset) else {
        let text = format!("the offset {} lies behind its end ({size} bytes)", name.offset);
        return Err(Failure::new(FailureKind::Invalid, name.typed.clone(), text));
    };
    Ok(Some(rest))
}
