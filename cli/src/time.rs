//! What time it is, and how the classic tools write one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::exit::Failure;
use crate::size::parse_number;

/// The moment that a program takes for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970 in UTC.
    pub seconds: i64,
    /// Nanoseconds of the second, below 10⁹.
    pub nanoseconds: u32,
    /// The variable that said so; `None` for the clock.
    pub variable: Option<&'static str>,
}

/// What `mke2fs`, `debugfs` and the rest ask for the time, in this order, before the clock.
pub const COMMON_VARIABLES: &[&str] = &["SOURCE_DATE_EPOCH", "E2FSPROGS_FAKE_TIME"];

/// What `e2fsck` asks.
pub const FSCK_VARIABLES: &[&str] = &["E2FSCK_TIME", "SOURCE_DATE_EPOCH", "E2FSPROGS_FAKE_TIME"];

impl Now {
    /// The time of the first variable that is set and not empty, or else the clock's. A variable that holds no number
    /// of seconds is a failure: an image made at a wrong time would be noticed late.
    pub fn from_environment(variables: &[&'static str]) -> Result<Self, Failure> {
        let lookup = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::from_lookup(variables, lookup, SystemTime::now())
    }

    fn from_lookup(
        variables: &[&'static str],
        lookup: impl Fn(&str) -> Option<String>,
        clock: SystemTime,
    ) -> Result<Self, Failure> {
        for name in variables {
            let Some(value) = lookup(name).filter(|value| !value.is_empty()) else { continue };
            let seconds = parse_number(&value).ok().and_then(|seconds| i64::try_from(seconds).ok());
            let Some(seconds) = seconds else {
                return Err(Failure::usage(*name, format!("`{value}` is not a number of seconds")));
            };
            return Ok(Self { seconds, nanoseconds: 0, variable: Some(name) });
        }
        Ok(Self::from_clock(clock))
    }

    fn from_clock(clock: SystemTime) -> Self {
        // A clock before 1970 is a clock that was never set.
        let since = clock.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        Self { seconds, nanoseconds: since.subsec_nanos(), variable: None }
    }

    /// Whether the time was given, so that a second run gives the same.
    pub fn is_given(self) -> bool {
        self.variable.is_some()
    }
}

/// The zone of `TZ`, or the system's, or UTC where neither can be told.
pub fn local_zone() -> TimeZone {
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}

/// A time as the classic tools print it, such as `Thu Jan  1 00:00:00 1970`. Years beyond 9999 are given
/// as `@` and the seconds.
pub fn classic_text(seconds: i64, zone: &TimeZone) -> String {
    match Timestamp::from_second(seconds) {
        Ok(timestamp) => timestamp.to_zoned_datetime(zone.clone()).strftime("%a %b %e %T %Y").to_string(),
        Err(_) => format!("@{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(set: &[(&str, &str)], variables: &[&'static str]) -> Result<Now, Failure> {
        let lookup =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Now::from_lookup(variables, lookup, UNIX_EPOCH + Duration::new(5, 6))
    }

    #[test]
    fn the_first_variable_that_is_set_counts() {
        let given = |seconds, variable| Now { seconds, nanoseconds: 0, variable: Some(variable) };
        let both = [("E2FSPROGS_FAKE_TIME", "0x10"), ("SOURCE_DATE_EPOCH", "1700000000")];
        assert_eq!(now(&both, COMMON_VARIABLES), Ok(given(1_700_000_000, "SOURCE_DATE_EPOCH")));
        assert_eq!(now(&both[..1], COMMON_VARIABLES), Ok(given(16, "E2FSPROGS_FAKE_TIME")));
        let all = [("E2FSCK_TIME", "1"), both[0], both[1]];
        assert_eq!(now(&all, FSCK_VARIABLES), Ok(given(1, "E2FSCK_TIME")));
        let clock = Now { seconds: 5, nanoseconds: 6, variable: None };
        assert_eq!(now(&all[..1], COMMON_VARIABLES), Ok(clock));
        assert_eq!(now(&[("SOURCE_DATE_EPOCH", "")], COMMON_VARIABLES), Ok(clock));
    }

    #[test]
    fn a_variable_without_a_number_is_refused() {
        for value in ["yesterday", "-1", "1.5", "12s", "9223372036854775808"] {
            let failure = now(&[("SOURCE_DATE_EPOCH", value)], COMMON_VARIABLES).unwrap_err();
            assert_eq!(
                failure.to_string(),
                format!("SOURCE_DATE_EPOCH: `{value}` is not a number of seconds")
            );
        }
    }

    #[test]
    fn times_are_written_as_by_the_c_library() {
        let utc = TimeZone::UTC;
        // From `TZ=GMT0 date -d @SECONDS '+%a %b %e %T %Y'`.
        let table = [
            (0, "Thu Jan  1 00:00:00 1970"),
            (1_700_000_000, "Tue Nov 14 22:13:20 2023"),
            (-315_619_200, "Fri Jan  1 00:00:00 1960"),
            (15_032_385_535, "Thu May 10 22:38:55 2446"),
            (i64::MAX, "@9223372036854775807"),
        ];
        for (seconds, text) in table {
            assert_eq!(classic_text(seconds, &utc), text);
        }
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(classic_text(1_700_000_000, &berlin), "Tue Nov 14 23:13:20 2023");
    }
}
