//! Which tool a program name means, so that one file serves under all the classic names.

use std::ffi::OsStr;
use std::path::Path;

/// The kind of filesystem that a name asks for, as in `mkfs.ext3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// No journal, block maps.
    Ext2,
    /// A journal, block maps.
    Ext3,
    /// A journal, extents and what came with them.
    Ext4,
}

/// A program of the suite, or a classic one that it stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Makes a filesystem: of this kind, if the name says so.
    Mkfs(Option<Profile>),
    /// Checks and repairs.
    Fsck,
    /// Inspects and edits.
    Debugfs,
    /// Lists and replays journals.
    Replay,
    /// Prints superblock and groups.
    Dumpe2fs,
    /// Changes parameters.
    Tune2fs,
    /// Prints or changes the label.
    E2label,
}

impl Tool {
    /// The tool that a program's path names, such as `/sbin/mkfs.ext4` or `ext4kit-fsck`.
    pub fn from_program(argv0: &OsStr) -> Option<Self> {
        let name = Path::new(argv0).file_name()?.to_str()?;
        match name.strip_prefix("ext4kit-") {
            Some(command) => Self::from_command(command),
            None => Self::from_classic_name(name),
        }
    }

    /// The tool that a word after `ext4kit` names, such as `mkfs`; the classic names are understood as well.
    pub fn from_command(word: &str) -> Option<Self> {
        match word {
            "mkfs" => Some(Self::Mkfs(None)),
            "fsck" => Some(Self::Fsck),
            "replay" => Some(Self::Replay),
            _ => Self::from_classic_name(word),
        }
    }

    fn from_classic_name(name: &str) -> Option<Self> {
        Some(match name {
            "mke2fs" => Self::Mkfs(None),
            "mkfs.ext2" => Self::Mkfs(Some(Profile::Ext2)),
            "mkfs.ext3" | "mke3fs" => Self::Mkfs(Some(Profile::Ext3)),
            "mkfs.ext4" | "mke4fs" => Self::Mkfs(Some(Profile::Ext4)),
            "e2fsck" | "fsck.ext2" | "fsck.ext3" | "fsck.ext4" => Self::Fsck,
            "debugfs" => Self::Debugfs,
            "dumpe2fs" => Self::Dumpe2fs,
            "tune2fs" => Self::Tune2fs,
            "e2label" => Self::E2label,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_classic_name_has_its_tool() {
        let table = [
            ("/sbin/mke2fs", Some(Tool::Mkfs(None))),
            ("mkfs.ext2", Some(Tool::Mkfs(Some(Profile::Ext2)))),
            ("./mkfs.ext3", Some(Tool::Mkfs(Some(Profile::Ext3)))),
            ("mkfs.ext4", Some(Tool::Mkfs(Some(Profile::Ext4)))),
            ("e2fsck", Some(Tool::Fsck)),
            ("fsck.ext4", Some(Tool::Fsck)),
            ("/a b/fsck.ext2", Some(Tool::Fsck)),
            ("debugfs", Some(Tool::Debugfs)),
            ("dumpe2fs", Some(Tool::Dumpe2fs)),
            ("tune2fs", Some(Tool::Tune2fs)),
            ("e2label", Some(Tool::E2label)),
            ("ext4kit-mkfs", Some(Tool::Mkfs(None))),
            ("ext4kit-replay", Some(Tool::Replay)),
            ("ext4kit-fsck", Some(Tool::Fsck)),
            // These are the system's own front ends and the multi-call binary itself.
            ("mkfs", None),
            ("fsck", None),
            ("ext4kit", None),
            ("mkfs.xfs", None),
            ("", None),
        ];
        for (argv0, tool) in table {
            assert_eq!(Tool::from_program(OsStr::new(argv0)), tool, "{argv0}");
        }
        assert_eq!(Tool::from_command("mkfs"), Some(Tool::Mkfs(None)));
        assert_eq!(Tool::from_command("fsck.ext3"), Some(Tool::Fsck));
        assert_eq!(Tool::from_command("tour"), None);
    }
}
