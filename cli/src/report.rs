//! The only room that prints: answers to standard output, failures to standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::exit::{Convention, Failure};
use crate::json::Schema;

/// Prints a failure and gives the program's exit code: as `program: place: what` on standard error, or, where answers are
/// JSON of a schema, as JSON on standard output.
pub fn failure(program: &str, failure: &Failure, convention: Convention, json: Option<Schema>) -> ExitCode {
    // Nothing is left to do where even this cannot be written; the exit code still tells.
    let _ = match json {
        None => writeln!(io::stderr().lock(), "{program}: {failure}"),
        Some(schema) => {
            let mut out = io::stdout().lock();
            schema.write_failure(failure, convention, &mut out).and_then(|()| out.flush())
        }
    };
    ExitCode::from(failure.code(convention))
}

/// Prints an answer as JSON on standard output.
pub fn json<T: Serialize>(schema: Schema, result: &T) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    schema.write_result(result, &mut out)?;
    out.flush()
}
