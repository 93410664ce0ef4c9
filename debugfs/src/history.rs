//! Where the lines of earlier sessions are kept.
//!
//! `EXT4KIT_HISTORY` names the file, and keeps nothing if it is empty; else the file lies in the user's folder for state.
//! Lines may name what is private, so only their owner may read them.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file of the history, by the environment; `None` if none is to be kept.
pub fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(named) = variable("EXT4KIT_HISTORY") {
        return Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty());
    }
    // The specification of these folders tells to pass over relative ones.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("ext4kit/debugfs_history"))
}

/// Makes the file and its folder where they are missing, and takes it from everybody but its owner.
pub fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    // A device such as /dev/null is nobody's to change.
    if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_where() {
        let found = |variables: &[(&str, &str)]| {
            place(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
                .map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/me");
        assert_eq!(found(&[("EXT4KIT_HISTORY", "here"), home]).as_deref(), Some("here"));
        assert_eq!(found(&[("EXT4KIT_HISTORY", ""), home]), None);
        let state = [("XDG_STATE_HOME", "/state"), home];
        assert_eq!(found(&state).as_deref(), Some("/state/ext4kit/debugfs_history"));
        let relative = [("XDG_STATE_HOME", "state"), home];
        let usual = "/home/me/.local/state/ext4kit/debugfs_history";
        assert_eq!(found(&relative).as_deref(), Some(usual));
        assert_eq!(found(&[home]).as_deref(), Some(usual));
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn only_the_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/history");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        prepare(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        prepare(&path).unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "old"));
        assert!(prepare(folder.path()).is_err());
    }
}
