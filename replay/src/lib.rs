//! ext4kit-replay
