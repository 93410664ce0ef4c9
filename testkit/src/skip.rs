//! Leaving a test out where the machine lacks what it needs.

use std::io::Write;

/// Says on standard error, past the capture of test output, that something is missing. Where `CI=true` it panics
/// instead: there, a missing oracle is a broken job and not a reason to be content.
pub fn missing(what: &str) {
    missing_where(what, in_ci());
}

fn missing_where(what: &str, in_ci: bool) {
    assert!(!in_ci, "{what}, and CI=true requires it");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Losing the message is no reason to fail a test.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {what}");
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the oracle is missing, and CI=true requires it")]
    fn in_ci_it_is_a_failure() {
        missing_where("the oracle is missing", true);
    }
}
