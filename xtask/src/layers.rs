//! The direction of dependencies between crates.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What each crate of ours may depend on. Development dependencies on the testkit are always allowed.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ext4kit-format", &[]),
    ("ext4kit-cli", &["ext4kit-format"]),
    ("ext4kit-testkit", &["ext4kit-format"]),
    ("ext4kit-mkfs", &["ext4kit-cli", "ext4kit-format"]),
    ("ext4kit-fsck", &["ext4kit-cli", "ext4kit-format"]),
    ("ext4kit-debugfs", &["ext4kit-cli", "ext4kit-format"]),
    ("ext4kit-replay", &["ext4kit-cli", "ext4kit-format", "ext4kit-fsck"]),
    (
        "ext4kit",
        &[
            "ext4kit-cli",
            "ext4kit-format",
            "ext4kit-mkfs",
            "ext4kit-fsck",
            "ext4kit-debugfs",
            "ext4kit-replay",
        ],
    ),
    ("xtask", &["ext4kit-format"]),
];

/// Checks the dependencies that cargo knows against the table.
pub fn run(root: &Path) -> Result<()> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let faults = faults(&metadata);
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

fn faults(metadata: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            faults.push(format!("{name} is not in the table of layers"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = dependency["name"].as_str().unwrap_or_default();
            let ours = ALLOWED.iter().any(|(known, _)| *known == other);
            let development = dependency["kind"].as_str() == Some("dev") && other == "ext4kit-testkit";
            if ours && !development && !allowed.contains(&other) {
                faults.push(format!("{name} must not depend on {other}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_directions_are_found() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "ext4kit-format", "dependencies": [{ "name": "ext4kit-cli" }, { "name": "ext4kit-testkit", "kind": "dev" }] },
            { "name": "ext4kit-unheard-of", "dependencies": [] },
        ]});
        assert_eq!(faults(&metadata).len(), 2);
    }
}
