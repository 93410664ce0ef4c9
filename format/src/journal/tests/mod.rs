//! Tests of the engine as a whole, on journals built in memory and on journals that a kernel left.

mod damage;
mod fast_commits;
mod kernel;
mod locate;
mod recover;
mod sound;
