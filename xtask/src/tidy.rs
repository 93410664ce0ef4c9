//! Rules about files that no compiler checks: length, white space, unfinished marks, how a module opens, where test data
//! comes from.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A file that is longer is too much to hold in mind.
const MOST_LINES: usize = 800;
/// Marks of unfinished work. They are spelled in two halves here, so that this file passes its own test.
const MARKS: [&str; 5] = [
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("to", "do!("),
    concat!("TO", "DO"),
];

/// Checks every file that git knows.
pub fn run(root: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    let mut faults = Vec::new();
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        check(name, &text, &mut faults);
    }
    for name in
        String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| name.starts_with("testdata/"))
    {
        check_origin(root, name, &mut faults);
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// Every file of test data is named in the README beside it, which says how it was made.
fn check_origin(root: &Path, name: &str, faults: &mut Vec<String>) {
    let path = root.join(name);
    let readme = path.with_file_name("README.md");
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = file.split('.').next().unwrap_or_default();
    let said = std::fs::read_to_string(&readme).unwrap_or_default();
    if file != "README.md" && path.exists() && !said.contains(&file) && !said.contains(stem) {
        faults.push(format!("{name}: {} does not say how it was made", readme.display()));
    }
}

fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    let is_rust = Path::new(name).extension().is_some_and(|extension| extension == "rs");
    for (number, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", number + 1);
        // In Rust rustfmt sees to it, and text that a program prints may end so.
        if !is_rust && line.ends_with([' ', '\t']) {
            faults.push(format!("{at}: white space at the end of the line"));
        }
        if is_rust && let Some(mark) = MARKS.iter().find(|mark| line.contains(*mark)) {
            faults.push(format!("{at}: `{mark}`"));
        }
    }
    if is_rust && text.lines().count() > MOST_LINES {
        faults.push(format!("{name}: {} lines, more than {MOST_LINES}", text.lines().count()));
    }
    if is_rust && !text.is_empty() && !text.starts_with("//!") {
        faults.push(format!("{name}: does not open with what the module is"));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push(format!("{name}: does not end with a newline"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_data_needs_an_origin() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("known.img"), "").unwrap();
        std::fs::write(folder.path().join("stranger.img"), "").unwrap();
        std::fs::write(folder.path().join("README.md"), "| known.img | made by hand |").unwrap();
        let mut faults = Vec::new();
        for name in ["known.img", "stranger.img", "README.md"] {
            check_origin(folder.path(), name, &mut faults);
        }
        assert_eq!(faults.len(), 1, "{faults:?}");
    }

    #[test]
    fn faults_are_found() {
        let mut faults = Vec::new();
        check("a.rs", "fn main() {}\n// XX", &mut faults);
        check("a.md", "text \n", &mut faults);
        assert_eq!(faults.len(), 3, "{faults:?}");
        let long = "//! x\n".repeat(MOST_LINES + 1);
        check("b.rs", &long, &mut faults);
        assert_eq!(faults.len(), 4, "{faults:?}");
        check("c.md", "fine\n", &mut faults);
        assert_eq!(faults.len(), 4);
    }
}
