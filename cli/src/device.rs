//! From what the user typed to an open store.
//!
//! A device is a path, `LABEL=…`, `UUID=…`, `PARTLABEL=…` or `PARTUUID=…`, and may end in `?offset=BYTES` for
//! a filesystem that begins inside it. A file that really has such a name is taken by its name.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ext4kit_format::commit;
use ext4kit_format::store::{self, Access, Store, SubRange};

use crate::exit::{Failure, FailureKind};
use crate::size::parse_size;

/// Where udev keeps its links from labels and UUIDs to devices.
const LINKS: &str = "/dev/disk";

/// Where redo logs of devices are kept.
const STATE: &str = "/var/lib/ext4kit";

/// A device as the user named it, not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// As it was typed, for messages and for the progress protocol.
    pub typed: String,
    /// The file or block device.
    pub path: PathBuf,
    /// Where the filesystem begins in it, in bytes.
    pub offset: u64,
}

/// An opened device.
pub struct Device {
    /// How it was named.
    pub name: DeviceName,
    /// The bytes of the filesystem, from its offset to the device's end. What is only read is seen through the redo log
    /// of a commit that was interrupted.
    pub store: Arc<dyn Store>,
    /// How many blocks of an interrupted commit were written when it was opened for writing; 0 if none waited.
    pub finished: usize,
}

impl DeviceName {
    /// Reads a device argument and looks labels and UUIDs up.
    pub fn parse(typed: &OsStr) -> Result<Self, Failure> {
        Self::parse_with_links(typed, Path::new(LINKS))
    }

    fn parse_with_links(typed: &OsStr, links: &Path) -> Result<Self, Failure> {
        let name = typed.to_string_lossy().into_owned();
        if name.is_empty() {
            return Err(Failure::usage("", "no device was named"));
        }
        let whole = Path::new(typed);
        if whole.symlink_metadata().is_ok() {
            return Ok(Self { typed: name, path: whole.to_owned(), offset: 0 });
        }
        let (path, options) = split_options(typed.as_bytes());
        let mut offset = 0;
        for option in options.split(|byte| *byte == b'&').filter(|option| !option.is_empty()) {
            offset = parse_option(&name, &String::from_utf8_lossy(option))?;
        }
        let path = match look_up(&name, path, links)? {
            Some(device) => device,
            None => PathBuf::from(OsStr::from_bytes(path)),
        };
        Ok(Self { typed: name, path, offset })
    }

    /// Adds the offset of an option such as `-E offset=`. It may repeat the name's own, not contradict it.
    pub fn with_offset(mut self, offset: u64) -> Result<Self, Failure> {
        if self.offset != 0 && self.offset != offset {
            let text = format!("the name says offset {}, the option {offset}", self.offset);
            return Err(Failure::usage(self.typed, text));
        }
        self.offset = offset;
        Ok(self)
    }

    /// Where the redo log of an interrupted commit lies: beside an image, or, for a device, in the folder that the
    /// variable `EXT4KIT_STATE` names, else in `/var/lib/ext4kit`, by the device's name.
    pub fn redo_log(&self) -> PathBuf {
        let suffix = if self.offset == 0 { String::new() } else { format!("@{}", self.offset) };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = format!("{name}{suffix}.ext4kit-redo");
        let is_device =
            std::fs::metadata(&self.path).is_ok_and(|metadata| metadata.file_type().is_block_device());
        if is_device {
            let folder =
                std::env::var_os("EXT4KIT_STATE").map_or_else(|| PathBuf::from(STATE), PathBuf::from);
            return folder.join(log);
        }
        self.path.with_file_name(log)
    }

    /// Opens the device; see [`store::open`] for who is kept out, and what `force` skips.
    pub fn open(self, access: Access, force: bool) -> Result<Device, Failure> {
        let path_text = self.path.display().to_string();
        let failed = |error: &ext4kit_format::Error| {
            let failure = Failure { place: self.typed.clone(), ..Failure::from_error(&path_text, error) };
            match failure.kind {
                FailureKind::InUse => failure.with_hint("unmount, detach or close it first"),
                _ => failure,
            }
        };
        let whole = store::open(&self.path, access, force).map_err(|error| failed(&error))?;
        let store: Arc<dyn Store> = match self.offset {
            0 => whole,
            start => Arc::new(SubRange::from_offset(whole, start).map_err(|error| failed(&error))?),
        };
        let (mut store, mut finished) = (store, 0);
        match access {
            Access::ReadWrite => finished = self.finish_interrupted(store.as_ref())?,
            Access::ReadOnly => {
                let seen = commit::look_through(store, &self.redo_log());
                store = seen.map_err(|error| self.log_failure(&error))?;
            }
        }
        Ok(Device { name: self, store, finished })
    }

    /// Finishes a commit that was interrupted, before anything else is written. How many blocks were written.
    pub fn finish_interrupted(&self, store: &dyn Store) -> Result<usize, Failure> {
        commit::finish_interrupted(store, &self.redo_log()).map_err(|error| self.log_failure(&error))
    }

    fn log_failure(&self, error: &ext4kit_format::Error) -> Failure {
        let log = self.redo_log();
        let text = format!("if its filesystem is gone, delete {}", log.display());
        let failure = Failure::from_error(&self.typed, error);
        if failure.kind == FailureKind::Invalid { failure.with_hint(text) } else { failure }
    }
}

/// Reads a device argument and opens it.
pub fn open(typed: &OsStr, access: Access, force: bool) -> Result<Device, Failure> {
    DeviceName::parse(typed)?.open(access, force)
}

/// Splits at the last question mark; what follows it are options.
fn split_options(typed: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = typed.rsplitn(2, |byte| *byte == b'?');
    match (parts.next(), parts.next()) {
        (Some(options), Some(path)) => (path, options),
        _ => (typed, b""),
    }
}

/// The only option so far is the offset.
fn parse_option(typed: &str, option: &str) -> Result<u64, Failure> {
    let Some(offset) = option.strip_prefix("offset=") else {
        let text = format!("`{option}` is not an option of a device; use ?offset=BYTES");
        return Err(Failure::usage(typed, text));
    };
    parse_size(offset, 1).map_err(|error| Failure::usage(typed, format!("offset: {error}")))
}

/// The device of `LABEL=…` and its like; `None` if the name is a plain path.
fn look_up(typed: &str, path: &[u8], links: &Path) -> Result<Option<PathBuf>, Failure> {
    let kinds: [(&[u8], &str); 4] = [
        (b"LABEL=", "by-label"),
        (b"UUID=", "by-uuid"),
        (b"PARTLABEL=", "by-partlabel"),
        (b"PARTUUID=", "by-partuuid"),
    ];
    let found = kinds.iter().find_map(|(prefix, folder)| Some((path.strip_prefix(*prefix)?, *folder)));
    let Some((value, folder)) = found else { return Ok(None) };
    let value = String::from_utf8_lossy(unquote(value)).into_owned();
    // udev writes UUIDs in lower case.
    let value = if folder.ends_with("uuid") { value.to_ascii_lowercase() } else { value };
    let link = links.join(folder).join(encode(&value));
    match link.canonicalize() {
        Ok(device) if !value.is_empty() => Ok(Some(device)),
        _ => Err(Failure::new(
            FailureKind::Invalid,
            typed,
            format!("no device has it (looked in {})", links.join(folder).display()),
        )),
    }
}

fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        _ => value,
    }
}

/// A value as udev spells it in a link: what is not plain becomes `\x` and two digits, letters beyond ASCII stay.
fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for letter in value.chars() {
        if letter.is_ascii_alphanumeric() || "#+-.:=@_".contains(letter) || !letter.is_ascii() {
            encoded.push(letter);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "\\x{:02x}", u32::from(letter));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &str) -> Result<DeviceName, Failure> {
        DeviceName::parse_with_links(OsStr::new(typed), Path::new("/no/links"))
    }

    #[test]
    fn a_name_may_carry_an_offset() {
        let table = [
            ("none.img", "none.img", 0),
            ("none.img?offset=512", "none.img", 512),
            ("none.img?offset=1M", "none.img", 1 << 20),
            ("none.img?offset=2048s", "none.img", 1 << 20),
            ("none.img?offset=0x100000", "none.img", 1 << 20),
            ("none?.img?offset=1k", "none?.img", 1024),
            ("none.img?", "none.img", 0),
        ];
        for (typed, path, offset) in table {
            let name = parse(typed).unwrap();
            assert_eq!((name.path, name.offset, name.typed.as_str()), (path.into(), offset, typed));
        }
    }

    #[test]
    fn wrong_options_are_named() {
        let text = |typed: &str| parse(typed).unwrap_err().to_string();
        assert_eq!(
            text("a?offset=1q"),
            "a?offset=1q: offset: `q` in `1q` is not a unit; use k, m, g, t or s"
        );
        assert_eq!(text("a?size=4"), "a?size=4: `size=4` is not an option of a device; use ?offset=BYTES");
        assert_eq!(text(""), "no device was named");
        assert_eq!(parse("a?offset=4").unwrap().with_offset(4).unwrap().offset, 4);
        assert_eq!(
            parse("a?offset=4").unwrap().with_offset(8).unwrap_err().to_string(),
            "a?offset=4: the name says offset 4, the option 8"
        );
    }

    #[test]
    fn a_file_of_that_very_name_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd?offset=5");
        std::fs::write(&path, b"x").unwrap();
        let name = DeviceName::parse(path.as_os_str()).unwrap();
        assert_eq!((name.path, name.offset), (path, 0));
    }

    #[test]
    fn labels_and_uuids_are_looked_up_as_udev_spells_them() {
        let links = tempfile::tempdir().unwrap();
        let device = links.path().join("sdz1");
        std::fs::write(&device, b"x").unwrap();
        for link in ["by-label/my\\x20disk\\x2f1", "by-label/größe", "by-uuid/0a0b-cd", "by-partuuid/ff-01"]
        {
            let link = links.path().join(link);
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("../sdz1", link).unwrap();
        }
        let device = device.canonicalize().unwrap();
        let found = |typed: &str| DeviceName::parse_with_links(OsStr::new(typed), links.path());
        for typed in
            ["LABEL=my disk/1", "LABEL=\"größe\"", "UUID=0A0B-CD", "PARTUUID=ff-01", "UUID=0a0b-cd?offset=8"]
        {
            assert_eq!(found(typed).unwrap().path, device, "{typed}");
        }
        for typed in ["LABEL=other", "LABEL=", "PARTLABEL=x", "UUID=../sdz1"] {
            let failure = found(typed).unwrap_err();
            assert!(failure.to_string().starts_with(&format!("{typed}: no device has it (looked in ")));
        }
    }

    #[test]
    fn an_offset_moves_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, b"0123456789").unwrap();
        let open_at = |offset: &str| {
            let mut typed = path.clone().into_os_string();
            typed.push(offset);
            open(&typed, Access::ReadOnly, false)
        };
        let device = open_at("?offset=4").unwrap();
        let mut bytes = [0; 6];
        device.store.read_at(0, &mut bytes).unwrap();
        assert_eq!((&bytes, device.store.size(), device.name.offset), (b"456789", 6, 4));
        let text = open_at("?offset=10").err().unwrap().to_string();
        assert!(
            text.ends_with("?offset=10: offset 10 lies beyond the end of a device of 10 bytes"),
            "{text}"
        );
    }

    #[test]
    fn failures_name_what_was_typed_and_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let typed = path.display();
        let text = || open(path.as_os_str(), Access::ReadWrite, false).err().unwrap().to_string();
        assert_eq!(text(), format!("{typed}: No such file or directory"));
        std::fs::write(&path, b"x").unwrap();
        let _holder = open(path.as_os_str(), Access::ReadWrite, false).unwrap();
        assert_eq!(text(), format!("{typed}: locked by another program (unmount, detach or close it first)"));
    }
}
