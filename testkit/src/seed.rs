//! Randomness that a failing test can repeat.

use std::ops::{Deref, DerefMut};

/// The variable that holds the seed to run with.
pub const VARIABLE: &str = "EXT4KIT_SEED";

/// The variable that holds how many mutants a fuzzing test tries.
pub const MUTANTS: &str = "EXT4KIT_MUTANTS";

/// How many mutants a fuzzing test tries: what [`MUTANTS`] says, or else the test's own number.
pub fn mutants(usual: u32) -> u32 {
    let given = std::env::var(MUTANTS).ok();
    given.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{MUTANTS}={text} is not a number")))
}

/// A generator that names its seed if the test fails.
#[derive(Debug)]
pub struct Random {
    name: &'static str,
    seed: u64,
    generator: fastrand::Rng,
}

impl Random {
    /// The generator of the test with this name. Without [`VARIABLE`] it gives the same in every run.
    pub fn of(name: &'static str) -> Self {
        let given = std::env::var(VARIABLE).ok();
        let seed = match given {
            Some(text) => text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is not a number")),
            None => hash(name),
        };
        Self { name, seed, generator: fastrand::Rng::with_seed(seed) }
    }

    /// The seed in use.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// FNV-1a: the same in every build, which the standard library's hashes do not promise.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Deref for Random {
    type Target = fastrand::Rng;

    fn deref(&self) -> &Self::Target {
        &self.generator
    }
}

impl DerefMut for Random {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.generator
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: repeat with {VARIABLE}={}", self.name, self.seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_same_numbers_and_another_name_others() {
        let numbers = |name| {
            let mut random = Random::of(name);
            (0..4).map(|_| random.u64(..)).collect::<Vec<_>>()
        };
        assert_eq!(numbers("one"), numbers("one"));
        if std::env::var_os(VARIABLE).is_none() {
            assert_ne!(numbers("one"), numbers("two"));
            assert_eq!(Random::of("a").seed(), 0xaf63_dc4c_8601_ec8c);
        }
    }
}
