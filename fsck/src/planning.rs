//! `--apply`: a plan done, from the command line to the exit code.

use std::path::Path;

use ext4kit_cli::device::DeviceName;
use ext4kit_cli::exit::{Failure, FailureKind, FsckExit};
use ext4kit_cli::report as output;
use ext4kit_format::store::Access;

use crate::options::Options;
use crate::plan::{self, Plan};
use crate::report::{Applied, SCHEMA_APPLIED, say};

/// Does what a plan says.
pub fn apply(options: &Options, path: &Path) -> Result<FsckExit, Failure> {
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
        let left = plan.outcome.left;
        let applied = Applied { device: name, changed_blocks: changed, left, exit_code: exit.bits() };
        output::json(SCHEMA_APPLIED, &applied)
            .map_err(|error| Failure::new(FailureKind::Io, "", error.to_string()))?;
    }
    Ok(exit)
}
