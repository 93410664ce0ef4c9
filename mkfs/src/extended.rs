//! The values of `-E` and `-J`: names with values, separated by commas.

use ext4kit_cli::exit::Failure;
use ext4kit_cli::size::{parse_number, parse_size};

/// What `-E` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// The seed of directory hashes, as a UUID.
    pub hash_seed: Option<String>,
    /// Byte of the target at which the filesystem begins.
    pub offset: u64,
    /// Blocks between two stripes.
    pub stride: u16,
    /// Blocks of a stripe over all disks.
    pub stripe_width: u32,
    /// To how many blocks the filesystem may grow; as typed, since its unit depends on the block size.
    pub resize: Option<String>,
    /// Whether inode tables are left for the kernel to zero.
    pub lazy_tables: Option<bool>,
    /// Whether the target may be taken to be zero.
    pub assume_zeroed: bool,
    /// Owner and group of the root directory; `None` for whoever runs the program.
    pub root_owner: Option<Option<(u32, u32)>>,
    /// Permissions of the root directory.
    pub root_mode: Option<u16>,
    /// Whether unused space is discarded first.
    pub discard: Option<bool>,
    /// Size of the orphan file, as typed.
    pub orphan_file_size: Option<String>,
    /// How many copies of the superblock under `sparse_super2`: 0 to 2.
    pub backups: Option<u32>,
    /// Whether extended attributes of the source are left behind.
    pub no_copy_xattrs: bool,
    /// `s_encoding` and `s_encoding_flags`.
    pub encoding: Option<(u16, u16)>,
    /// Whether the filesystem says that it is for testing.
    pub test_filesystem: bool,
    /// Revision of the format.
    pub revision: Option<u32>,
    /// Seconds between two updates of multi-mount protection.
    pub mmp_interval: Option<u16>,
}

/// What `-J` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// Size in MiB.
    pub megabytes: Option<u64>,
    /// Size of the area of fast commits in KiB.
    pub fast_commit_kilobytes: Option<u64>,
}

/// Each `name` or `name=value` of a list.
fn words(list: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    list.split(',').filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    })
}

fn needed<'a>(option: &str, name: &str, value: Option<&'a str>) -> Result<&'a str, Failure> {
    value.ok_or_else(|| Failure::usage(option, format!("`{name}` needs a value")))
}

fn number<T: TryFrom<u64>>(option: &str, name: &str, value: Option<&str>) -> Result<T, Failure> {
    let text = needed(option, name, value)?;
    let number = parse_number(text).ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| Failure::usage(option, format!("{name}: `{text}` is no number that it can have")))
}

/// Whether a switch is on: given without a value, or with one other than 0.
fn switch(option: &str, name: &str, value: Option<&str>) -> Result<bool, Failure> {
    match value {
        None => Ok(true),
        Some(_) => Ok(number::<u32>(option, name, value)? != 0),
    }
}

impl Extended {
    /// Reads all lists of `-E`.
    pub fn parse(lists: &[String]) -> Result<Self, Failure> {
        let mut extended = Self::default();
        for (name, value) in lists.iter().flat_map(|list| words(list)) {
            extended.take(name, value)?;
        }
        Ok(extended)
    }

    fn take(&mut self, name: &str, value: Option<&str>) -> Result<(), Failure> {
        const OPTION: &str = "-E";
        match name {
            "hash_seed" => self.hash_seed = Some(needed(OPTION, name, value)?.to_owned()),
            "offset" => self.offset = parse_size(needed(OPTION, name, value)?, 1)?,
            "stride" => self.stride = number(OPTION, name, value)?,
            "stripe_width" | "stripe-width" => self.stripe_width = number(OPTION, name, value)?,
            "resize" => self.resize = Some(needed(OPTION, name, value)?.to_owned()),
            "lazy_itable_init" => self.lazy_tables = Some(switch(OPTION, name, value)?),
            // The journal of a new filesystem is never read before it is written: zeroing it is decided by the target.
            "lazy_journal_init" => drop(switch(OPTION, name, value)?),
            "assume_storage_prezeroed" => self.assume_zeroed = switch(OPTION, name, value)?,
            "root_owner" => self.root_owner = Some(value.map(parse_owner).transpose()?),
            "root_perms" => self.root_mode = Some(parse_mode(needed(OPTION, name, value)?)?),
            "discard" => self.discard = Some(true),
            "nodiscard" => self.discard = Some(false),
            "orphan_file_size" => self.orphan_file_size = Some(needed(OPTION, name, value)?.to_owned()),
            "num_backup_sb" => self.backups = Some(number(OPTION, name, value)?),
            "no_copy_xattrs" => self.no_copy_xattrs = true,
            "encoding" => {
                let flags = self.encoding.map_or(0, |(_, flags)| flags);
                self.encoding = Some((parse_encoding(needed(OPTION, name, value)?)?, flags));
            }
            "encoding_flags" => {
                let encoding = self.encoding.map_or(1, |(encoding, _)| encoding);
                self.encoding = Some((encoding, parse_encoding_flags(needed(OPTION, name, value)?)?));
            }
            "test_fs" => self.test_filesystem = true,
            "revision" => self.revision = Some(number(OPTION, name, value)?),
            "mmp_update_interval" => self.mmp_interval = Some(number(OPTION, name, value)?),
            "desc_size" | "packed_meta_blocks" | "quotatype" | "root_selinux" | "android_sparse" => {
                return Err(Failure::usage(OPTION, format!("`{name}` is not built yet")));
            }
            _ => return Err(Failure::usage(OPTION, format!("`{name}` is no extended option"))),
        }
        Ok(())
    }
}

fn parse_owner(text: &str) -> Result<(u32, u32), Failure> {
    let wrong = || Failure::usage("-E", format!("root_owner: `{text}` is not of the form uid:gid"));
    let (uid, gid) = text.split_once(':').ok_or_else(wrong)?;
    Ok((uid.parse().map_err(|_| wrong())?, gid.parse().map_err(|_| wrong())?))
}

fn parse_mode(text: &str) -> Result<u16, Failure> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| Failure::usage("-E", format!("root_perms: `{text}` is no octal mode")))
}

fn parse_encoding(text: &str) -> Result<u16, Failure> {
    match text {
        "utf8" | "utf8-12.1" => Ok(1),
        _ => Err(Failure::usage("-E", format!("encoding: `{text}` is neither utf8 nor utf8-12.1"))),
    }
}

fn parse_encoding_flags(text: &str) -> Result<u16, Failure> {
    match text {
        "strict" => Ok(1),
        "nostrict" => Ok(0),
        _ => Err(Failure::usage("-E", format!("encoding_flags: `{text}` is neither strict nor nostrict"))),
    }
}

impl Journal {
    /// Reads all lists of `-J`.
    pub fn parse(lists: &[String]) -> Result<Self, Failure> {
        const OPTION: &str = "-J";
        let mut journal = Self::default();
        for (name, value) in lists.iter().flat_map(|list| words(list)) {
            match name {
                "size" => journal.megabytes = Some(number(OPTION, name, value)?),
                "fast_commit_size" => journal.fast_commit_kilobytes = Some(number(OPTION, name, value)?),
                "device" | "location" | "v1_superblock" => {
                    return Err(Failure::usage(OPTION, format!("`{name}` is not built yet")));
                }
                _ => return Err(Failure::usage(OPTION, format!("`{name}` is no journal option"))),
            }
        }
        Ok(journal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_take_their_values() {
        let lists = ["root_owner=70000:5,stride=16".to_owned(), "lazy_itable_init=0,discard".to_owned()];
        let extended = Extended::parse(&lists).unwrap();
        assert_eq!(extended.root_owner, Some(Some((70000, 5))));
        assert_eq!((extended.stride, extended.lazy_tables, extended.discard), (16, Some(false), Some(true)));
    }

    #[test]
    fn wrong_options_are_named() {
        for (list, word) in [
            ("stride", "stride"),
            ("stride=x", "stride"),
            ("nonsense", "nonsense"),
            ("root_perms=9", "root_perms"),
        ] {
            let failure = Extended::parse(&[list.to_owned()]).unwrap_err();
            assert!(failure.what.contains(word), "{failure}");
        }
        assert!(Journal::parse(&["device=/dev/null".to_owned()]).is_err());
    }
}
