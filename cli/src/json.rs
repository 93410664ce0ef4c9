//! The envelope around every JSON answer.
//!
//! `{"tool", "version", "schema", "schema_version", "result"}` or, instead of a result, `"error"`. A schema's
//! version grows when a field goes or changes its meaning, not when one is added.

use std::io::{self, Write};

use serde::Serialize;

use crate::exit::{Convention, Failure, FailureKind, OneLine};

/// What a program's answer is and by which rules to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Schema {
    /// The program.
    pub tool: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// The name of what the result holds, such as `fsck-report`.
    #[serde(rename = "schema")]
    pub name: &'static str,
    /// The version of that.
    pub schema_version: u32,
}

/// A failure as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ErrorObject<'a> {
    kind: FailureKind,
    place: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    #[serde(flatten)]
    schema: Schema,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorObject<'a>>,
}

impl Schema {
    /// Writes an answer as one line.
    pub fn write_result<T: Serialize>(self, result: &T, to: &mut dyn Write) -> io::Result<()> {
        write_line(&Envelope { schema: self, result: Some(result), error: None }, to)
    }

    /// Writes a failure as one line. The exit code in it is that of the program's convention.
    pub fn write_failure(
        self,
        failure: &Failure,
        convention: Convention,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let error = ErrorObject {
            kind: failure.kind,
            place: &failure.place,
            message: OneLine(&failure.what).to_string(),
            hint: failure.hint.as_deref(),
            exit_code: failure.code(convention),
        };
        write_line(&Envelope::<()> { schema: self, result: None, error: Some(error) }, to)
    }
}

fn write_line<T: Serialize>(value: &T, to: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: Schema =
        Schema { tool: "ext4kit-replay", version: "1.2.3", name: "replay-list", schema_version: 4 };

    #[test]
    fn an_answer_and_a_failure_have_their_shapes() {
        #[derive(Serialize)]
        struct Answer {
            transactions: u32,
        }
        let mut out = Vec::new();
        SCHEMA.write_result(&Answer { transactions: 7 }, &mut out).unwrap();
        let failure = Failure::new(FailureKind::NotFilesystem, "disk.img", "no magic\nnumber");
        SCHEMA.write_failure(&failure, Convention::Fsck, &mut out).unwrap();
        SCHEMA.write_failure(&failure.with_hint("try -b"), Convention::Plain, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r#"
        {"tool":"ext4kit-replay","version":"1.2.3","schema":"replay-list","schema_version":4,"result":{"transactions":7}}
        {"tool":"ext4kit-replay","version":"1.2.3","schema":"replay-list","schema_version":4,"error":{"kind":"not-filesystem","place":"disk.img","message":"no magic\\nnumber","exit_code":8}}
        {"tool":"ext4kit-replay","version":"1.2.3","schema":"replay-list","schema_version":4,"error":{"kind":"not-filesystem","place":"disk.img","message":"no magic\\nnumber","hint":"try -b","exit_code":1}}
        "#);
    }

    #[test]
    fn an_empty_result_is_still_a_result() {
        let mut out = Vec::new();
        SCHEMA.write_result(&(), &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with("\"schema_version\":4,\"result\":null}\n"));
    }
}
