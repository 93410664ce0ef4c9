//! Exit codes, and what went wrong as one line.
//!
//! e2fsck's codes are bits that add up; the other classic tools know 0 and 1. A [`Failure`] is an error on its way
//! out of a program: where, what, the way out where there is one, and the code.

use std::fmt;
use std::process::ExitCode;

use ext4kit_format::Error;

use crate::size::SizeError;

bitflags::bitflags! {
    /// What an fsck run amounts to. The bits add up; none means a clean filesystem.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FsckExit: u8 {
        /// Errors were found and corrected.
        const CORRECTED = 1;
        /// The same, and the system should be rebooted.
        const REBOOT = 2;
        /// Errors were found and left.
        const UNCORRECTED = 4;
        /// The check could not be done.
        const OPERATIONAL = 8;
        /// It was called wrongly.
        const USAGE = 16;
        /// It was cancelled by the user.
        const CANCELLED = 32;
        /// Oddities were found that are no errors (`--lint`); e2fsck does not use this bit.
        const LINT = 64;
        /// A shared library failed. Kept because callers know it; nothing here returns it.
        const LIBRARY = 128;
    }
}

impl From<FsckExit> for ExitCode {
    fn from(exit: FsckExit) -> Self {
        Self::from(exit.bits())
    }
}

/// Whose exit codes a program keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// 0 or 1, as mke2fs, dumpe2fs and debugfs.
    Plain,
    /// The bits of [`FsckExit`].
    Fsck,
}

/// Kinds of failure, by who must act. The names are part of the JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The device or file failed.
    Io,
    /// The image is damaged.
    Corrupt,
    /// The image needs what this version cannot do.
    Unsupported,
    /// There is no filesystem of this family.
    NotFilesystem,
    /// There is no room left.
    NoSpace,
    /// Somebody else uses the image.
    InUse,
    /// What was asked for is not there, already there, or cannot be.
    Invalid,
    /// The command line is wrong.
    Usage,
    /// The user cancelled.
    Cancelled,
}

impl FailureKind {
    /// Sorts an error of the libraries.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Io { .. } => Self::Io,
            Error::Corrupt { .. } => Self::Corrupt,
            Error::Unsupported(_) => Self::Unsupported,
            Error::NotFilesystem(_) => Self::NotFilesystem,
            Error::NoSpace | Error::NoInodes => Self::NoSpace,
            Error::InUse(_) => Self::InUse,
            Error::InSource { source, .. } => Self::of(source),
            _ => Self::Invalid,
        }
    }

    /// The exit code of a program that fails this way before it could say more.
    pub fn code(self, convention: Convention) -> u8 {
        let exit = match (convention, self) {
            (Convention::Plain, _) => return 1,
            (Convention::Fsck, Self::Usage) => FsckExit::USAGE,
            (Convention::Fsck, Self::Cancelled) => FsckExit::CANCELLED,
            // Damage that stopped the check is both: errors are left, and the check was not done.
            (Convention::Fsck, Self::Corrupt) => FsckExit::UNCORRECTED | FsckExit::OPERATIONAL,
            (Convention::Fsck, _) => FsckExit::OPERATIONAL,
        };
        exit.bits()
    }
}

/// An error on its way out of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// By who must act.
    pub kind: FailureKind,
    /// The image, option or file that it is about; empty if it is about nothing in particular.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// The way out, where there is one.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure at a place.
    pub fn new(kind: FailureKind, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { kind, place: place.into(), what: what.into(), hint: None }
    }

    /// A wrong command line.
    pub fn usage(option: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, option, what)
    }

    /// An error of the libraries that met an image.
    pub fn from_error(image: &str, error: &Error) -> Self {
        let what = without_error_numbers(&error.to_string());
        // Errors of opening already begin with the image's name.
        let what = match what.strip_prefix(image).and_then(|rest| rest.strip_prefix(": ")) {
            Some(rest) if !image.is_empty() => rest.to_owned(),
            _ => what,
        };
        Self::new(FailureKind::of(error), image, what)
    }

    /// Adds the way out.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code by a convention.
    pub fn code(&self, convention: Convention) -> u8 {
        self.kind.code(convention)
    }
}

impl fmt::Display for Failure {
    /// `place: what (hint)`, on one line whatever an image put into the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", OneLine(&self.place))?;
        }
        write!(f, "{}", OneLine(&self.what))?;
        match &self.hint {
            Some(hint) => write!(f, " ({})", OneLine(hint)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<SizeError> for Failure {
    fn from(error: SizeError) -> Self {
        Self::usage("", error.to_string())
    }
}

/// A text with its control characters escaped, so that a file name cannot move the cursor or fake a line.
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| {
            if letter.is_control() { write!(f, "{}", letter.escape_default()) } else { write!(f, "{letter}") }
        })
    }
}

/// The system's own text of an error, without the ` (os error 2)` that Rust adds for programmers.
fn without_error_numbers(text: &str) -> String {
    match text.rsplit_once(" (os error ") {
        Some((head, tail)) if tail.strip_suffix(')').is_some_and(|number| number.parse::<i32>().is_ok()) => {
            head.to_owned()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use ext4kit_format::{Defect, Place};

    use super::*;

    #[test]
    fn exit_codes_add_up() {
        assert_eq!(FsckExit::default().bits(), 0);
        assert_eq!((FsckExit::CORRECTED | FsckExit::REBOOT).bits(), 3);
        assert_eq!((FsckExit::UNCORRECTED | FsckExit::OPERATIONAL).bits(), 12);
        assert_eq!(FsckExit::all().bits(), 255);
        assert_eq!(ExitCode::from(FsckExit::CANCELLED), ExitCode::from(32));
    }

    #[test]
    fn codes_follow_the_convention() {
        let table = [
            (FailureKind::Io, 8),
            (FailureKind::Corrupt, 12),
            (FailureKind::NotFilesystem, 8),
            (FailureKind::Unsupported, 8),
            (FailureKind::InUse, 8),
            (FailureKind::Usage, 16),
            (FailureKind::Cancelled, 32),
        ];
        for (kind, code) in table {
            assert_eq!(kind.code(Convention::Fsck), code, "{kind:?}");
            assert_eq!(kind.code(Convention::Plain), 1);
        }
    }

    #[test]
    fn a_failure_is_one_line() {
        let missing = io::Error::from_raw_os_error(2);
        let error = Error::io(Place::File("disk.img".into()))(missing);
        assert_eq!(
            Failure::from_error("disk.img", &error).to_string(),
            "disk.img: No such file or directory"
        );
        let defect = Defect::Magic { found: 1, wanted: 0xef53 }.at(Place::Superblock);
        assert_eq!(
            Failure::from_error("disk.img", &defect).to_string(),
            "disk.img: superblock: magic number is 0x1, not 0xef53"
        );
        let hostile = Failure::new(FailureKind::Invalid, "a\nb", "\u{1b}[2J\u{9b}gone\r").with_hint("see\tx");
        assert_eq!(hostile.to_string(), "a\\nb: \\u{1b}[2J\\u{9b}gone\\r (see\\tx)");
        assert_eq!(Failure::usage("", "no image given").to_string(), "no image given");
    }

    #[test]
    fn only_a_trailing_error_number_goes() {
        assert_eq!(without_error_numbers("a (os error 5)"), "a");
        assert_eq!(without_error_numbers("a (os error x)"), "a (os error x)");
        assert_eq!(without_error_numbers("(os error 5) b"), "(os error 5) b");
    }
}
