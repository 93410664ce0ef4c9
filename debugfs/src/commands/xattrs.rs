//! Extended attributes.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use ext4kit_cli::exit::{Failure, FailureKind};
use serde::Serialize;

use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::attributes::{self, Attribute, Held};
use crate::table::Call;
use crate::words::text;

/// Values of so many bytes or more are not shown in lists.
const LONG: usize = 40;

/// An attribute for showing.
#[derive(Serialize)]
pub struct ShownAttribute {
    name: Bytes,
    size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_inode: Option<u32>,
}

impl ShownAttribute {
    /// Of an attribute, without reading a value that lies in an inode.
    pub fn of(attribute: &Attribute) -> Self {
        let (value, value_inode) = match &attribute.value {
            Held::Here(value) => (Some(Bytes(value.clone())), None),
            Held::Inode(number) => (None, Some(number.get())),
        };
        Self { name: Bytes(attribute.name.clone()), size: attribute.size, value, value_inode }
    }

    /// One line of a list.
    pub fn line(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "  ")?;
        bytes(to, &self.name.0, Style { quote: false, force_hex: false, force_text: false })?;
        write!(to, " ({})", self.size)?;
        if let Some(value) = self.value.as_ref().filter(|value| !value.0.is_empty() && value.0.len() < LONG) {
            write!(to, " = ")?;
            bytes(to, &value.0, Style { quote: true, force_hex: false, force_text: false })?;
        }
        writeln!(to)
    }
}

/// How bytes are shown.
#[derive(Clone, Copy)]
struct Style {
    quote: bool,
    force_hex: bool,
    force_text: bool,
}

/// Bytes as text where all of them are printable ASCII, else in hexadecimal; as a C string where that is forced.
fn bytes(to: &mut dyn Write, bytes: &[u8], style: Style) -> io::Result<()> {
    let printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    if style.force_hex || (!printable && !style.force_text) {
        return bytes.iter().try_for_each(|byte| write!(to, "{byte:02x} "));
    }
    let quote: &[u8] = if style.quote { b"\"" } else { b"" };
    to.write_all(quote)?;
    for byte in bytes {
        match byte {
            b'"' | b'\\' if style.force_text => write!(to, "\\{}", char::from(*byte))?,
            b' '..=b'~' => to.write_all(&[*byte])?,
            _ => write!(to, "\\{byte:03o}")?,
        }
    }
    to.write_all(quote)
}

#[derive(Serialize)]
struct List {
    attributes: Vec<ShownAttribute>,
}

impl Report for List {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        if !self.attributes.is_empty() {
            writeln!(to, "Extended attributes:")?;
        }
        self.attributes.iter().try_for_each(|attribute| attribute.line(to))
    }
}

/// `ea_list`.
pub fn ea_list(call: &mut Call<'_>) -> Outcome {
    let inode = call.inode(&call.words(1, 1)?[0])?;
    let (found, errors) = attributes::list(&call.open()?.txn, &inode);
    let list = List { attributes: found.iter().map(ShownAttribute::of).collect() };
    Ok(Answer::of(list).with(errors.iter().map(|error| call.failed(error))))
}

#[derive(Serialize)]
struct Got {
    name: Bytes,
    size: usize,
    value: Bytes,
    #[serde(skip)]
    raw: bool,
    #[serde(skip)]
    hex: bool,
    #[serde(skip)]
    c_string: bool,
}

impl Report for Got {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.raw {
            to.write_all(&self.value.0)?;
            return writeln!(to);
        }
        to.write_all(&self.name.0)?;
        write!(to, " ({}) = ", self.size)?;
        bytes(to, &self.value.0, Style { quote: true, force_hex: self.hex, force_text: self.c_string })?;
        writeln!(to, "\n")
    }
}

/// `ea_get`. Values are always shown as stored, which is what `-r` asks for.
pub fn ea_get(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("xVCrf:", 2, 2)?;
    let inode = call.inode(&flags.rest[0])?;
    let txn = &call.open()?.txn;
    let (found, errors) = attributes::list(txn, &inode);
    let problems: Vec<_> = errors.iter().map(|error| call.failed(error)).collect();
    let Some(attribute) = found.iter().find(|attribute| attribute.name == flags.rest[1]) else {
        let what = "Extended attribute key not found while getting extended attribute";
        let missing = call.refuse(what);
        return Ok(Answer::silent().with(problems).with([missing]));
    };
    let value = attributes::value(txn, attribute).map_err(|error| call.failed(&error))?;
    if let Some(path) = flags.value('f') {
        let path_text = text(path);
        let failed = |error: &io::Error| Failure::new(FailureKind::Io, path_text.clone(), error.to_string());
        let mut file = File::create(std::ffi::OsStr::from_bytes(path)).map_err(|error| failed(&error))?;
        file.write_all(&value).map_err(|error| failed(&error))?;
        return Ok(Answer::silent().with(problems));
    }
    let got = Got {
        name: Bytes(attribute.name.clone()),
        size: value.len(),
        value: Bytes(value),
        raw: flags.has('V'),
        hex: flags.has('x'),
        c_string: flags.has('C'),
    };
    Ok(Answer::of(got).with(problems))
}
