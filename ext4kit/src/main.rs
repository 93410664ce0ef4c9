//! ext4kit

fn main() {}
