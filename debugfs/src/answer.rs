//! What a command gives back: a value that is printed as text or as JSON, and the failures met on the way.

use std::io::{self, Write};

use ext4kit_cli::exit::Failure;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A value that a command answers with.
pub trait Report: Serialize {
    /// Writes the value as debugfs prints it.
    fn text(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// A [`Report`] behind a pointer.
pub trait Shown {
    /// Writes the value as debugfs prints it.
    fn text(&self, to: &mut dyn Write) -> io::Result<()>;
    /// The value as data.
    fn data(&self) -> Value;
}

impl<T: Report> Shown for T {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        Report::text(self, to)
    }

    fn data(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

/// What a command gives back.
#[derive(Default)]
pub struct Answer {
    /// The value; `None` where the command has nothing to say.
    pub shown: Option<Box<dyn Shown>>,
    /// What went wrong without ending the command.
    pub problems: Vec<Failure>,
}

impl Answer {
    /// An answer with nothing to say.
    pub fn silent() -> Self {
        Self::default()
    }

    /// An answer of a value.
    pub fn of(report: impl Report + 'static) -> Self {
        Self { shown: Some(Box::new(report)), problems: Vec::new() }
    }

    /// The same with what went wrong.
    #[must_use]
    pub fn with(mut self, problems: impl IntoIterator<Item = Failure>) -> Self {
        self.problems.extend(problems);
        self
    }
}

/// What a handler returns: an answer, or why there is none.
pub type Outcome = Result<Answer, Failure>;

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Bytes that are mostly text: a name or a value. As data, a string where they are UTF-8, else `{"hex": "…"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Hex {
            hex: String,
        }
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Hex { hex: hex(&self.0) }.serialize(serializer),
        }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}
