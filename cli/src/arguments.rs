//! The frame around every program: from its arguments to typed options, or to what is said instead and the exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::exit::{Convention, FailureKind};

/// Parses a program's arguments, the first of which is its name.
///
/// # Errors
///
/// The exit code, after clap has printed what was wrong, or the help or version that was asked for: the convention's code
/// of a wrong command line, or success.
pub fn parse<O: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    convention: Convention,
) -> Result<O, ExitCode> {
    O::try_parse_from(arguments).map_err(|error| {
        // Nothing is left to do where even this cannot be printed.
        let _ = error.print();
        if error.use_stderr() {
            ExitCode::from(FailureKind::Usage.code(convention))
        } else {
            ExitCode::SUCCESS
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser, Debug)]
    #[command(version)]
    struct Options {
        #[arg(short)]
        number: Option<u32>,
    }

    fn code(words: &[&str], convention: Convention) -> ExitCode {
        parse::<Options>(words.iter().map(OsString::from), convention).unwrap_err()
    }

    /// Exit codes cannot be compared, but they can be shown.
    fn assert_code(words: &[&str], convention: Convention, wanted: u8) {
        let (found, wanted) = (code(words, convention), ExitCode::from(wanted));
        assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{words:?} {convention:?}");
    }

    #[test]
    fn a_wrong_command_line_gives_the_code_of_the_convention() {
        for (convention, wanted) in [(Convention::Plain, 1), (Convention::Fsck, 16)] {
            assert_code(&["program", "-n", "many"], convention, wanted);
            assert_code(&["program", "--unheard-of"], convention, wanted);
            assert_code(&["program", "--help"], convention, 0);
            assert_code(&["program", "--version"], convention, 0);
        }
    }

    #[test]
    fn a_right_one_gives_the_options() {
        let words = ["program", "-n", "7"].map(OsString::from);
        assert_eq!(parse::<Options>(words, Convention::Plain).unwrap().number, Some(7));
    }
}
