//! Hashes of names in indexed directories: legacy, half-MD4 and TEA, each with signed or unsigned characters.
//!
//! Hashes follow the kernel: the lowest bit of the major hash is cleared, as the index uses it to mark a hash that goes on
//! in the next leaf, and 0xfffffffe, which the kernel's readers take for the end of the directory, becomes 0xfffffffc.
//! e2fsprogs leaves 0xfffffffe alone, so one name in 2^31 sorts differently in its indexes.
//!
//! A casefolded directory hashes the folded name; folding is the caller's. SipHash (encrypted and casefolded) needs
//! the key: its hashes are stored in the entries and never computed here.

/// Which hash an index uses, as stored in its root and in `s_def_hash_version`. Unknown values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HashVersion(pub u8);

impl HashVersion {
    /// The first hash, weak.
    pub const LEGACY: Self = Self(0);
    /// Half-MD4, the default.
    pub const HALF_MD4: Self = Self(1);
    /// The Tiny Encryption Algorithm as a hash.
    pub const TEA: Self = Self(2);
    /// [`HashVersion::LEGACY`] over unsigned characters.
    pub const LEGACY_UNSIGNED: Self = Self(3);
    /// [`HashVersion::HALF_MD4`] over unsigned characters.
    pub const HALF_MD4_UNSIGNED: Self = Self(4);
    /// [`HashVersion::TEA`] over unsigned characters.
    pub const TEA_UNSIGNED: Self = Self(5);
    /// Keyed by the directory's encryption key.
    pub const SIPHASH: Self = Self(6);

    /// The version that is really used where the superblock's flags ask for unsigned characters: the root of an index
    /// stores the signed number, and the flag of the filesystem moves it.
    #[must_use]
    pub const fn with_unsigned(self, unsigned: bool) -> Self {
        match (unsigned, self) {
            (true, Self::LEGACY) => Self::LEGACY_UNSIGNED,
            (true, Self::HALF_MD4) => Self::HALF_MD4_UNSIGNED,
            (true, Self::TEA) => Self::TEA_UNSIGNED,
            _ => self,
        }
    }
}

/// The hash of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// Orders the index. The lowest bit is 0.
    pub major: u32,
    /// Orders names of one major hash; 0 for the legacy hash.
    pub minor: u32,
}

/// What the kernel's readers take for the end of a directory, once shifted.
const END_OF_DIRECTORY: u32 = 0xffff_fffe;

/// The hash of a name with the filesystem's seed (`s_hash_seed`; all zero means the built-in one).
///
/// `None` for a version that this function does not compute: SipHash, and unknown ones.
pub fn hash(version: HashVersion, seed: [u32; 4], name: &[u8]) -> Option<NameHash> {
    let state = if seed == [0; 4] { BUILT_IN_SEED } else { seed };
    let (major, minor) = match version {
        HashVersion::LEGACY => (legacy(name, signed), 0),
        HashVersion::LEGACY_UNSIGNED => (legacy(name, unsigned), 0),
        HashVersion::HALF_MD4 => half_md4(state, name, signed),
        HashVersion::HALF_MD4_UNSIGNED => half_md4(state, name, unsigned),
        HashVersion::TEA => tea(state, name, signed),
        HashVersion::TEA_UNSIGNED => tea(state, name, unsigned),
        _ => return None,
    };
    let even = major & !1;
    Some(NameHash { major: if even == END_OF_DIRECTORY { 0xffff_fffc } else { even }, minor })
}

/// The initial state of MD4.
const BUILT_IN_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// A character as a word, its sign spread as in C with signed characters.
fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

fn legacy(name: &[u8], widen: fn(u8) -> u32) -> u32 {
    let (mut current, mut previous) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for byte in name {
        let sum = previous.wrapping_add(current ^ widen(*byte).wrapping_mul(7_152_373));
        // A set top bit is taken off together with 2^31 - 1 more: the C original reduces a signed sum that way.
        let next = if sum >> 31 == 1 { sum.wrapping_sub(0x7fff_ffff) } else { sum };
        (previous, current) = (current, next);
    }
    current << 1
}

/// The next words of a name: four characters each, the last one partly filled, the rest padded with the length that
/// remains.
fn words<const N: usize>(rest: &[u8], widen: fn(u8) -> u32) -> [u32; N] {
    // Names have at most 255 bytes; a longer slice pads as the C original does, by wrapping.
    let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let half = length | length.wrapping_shl(8);
    let pad = half | half.wrapping_shl(16);
    let mut out = [pad; N];
    for (word, characters) in out.iter_mut().zip(rest.chunks(4)) {
        *word = characters.iter().fold(pad, |word, byte| (word << 8).wrapping_add(widen(*byte)));
    }
    out
}

fn half_md4(mut state: [u32; 4], name: &[u8], widen: fn(u8) -> u32) -> (u32, u32) {
    let mut rest = name;
    while !rest.is_empty() {
        state = half_md4_block(state, &words::<8>(rest, widen));
        rest = rest.get(32..).unwrap_or_default();
    }
    let [_, major, minor, _] = state;
    (major, minor)
}

/// One round of the hash: a mixing function, its constant, the order of the words, and the shifts.
struct Round {
    mix: fn(u32, u32, u32) -> u32,
    constant: u32,
    order: [usize; 8],
    shifts: [u32; 4],
}

const ROUNDS: [Round; 3] = [
    Round {
        mix: |x, y, z| z ^ (x & (y ^ z)),
        constant: 0,
        order: [0, 1, 2, 3, 4, 5, 6, 7],
        shifts: [3, 7, 11, 19],
    },
    Round {
        mix: |x, y, z| (x & y).wrapping_add((x ^ y) & z),
        constant: 0x5a82_7999,
        order: [1, 3, 5, 7, 0, 2, 4, 6],
        shifts: [3, 5, 9, 13],
    },
    Round {
        mix: |x, y, z| x ^ y ^ z,
        constant: 0x6ed9_eba1,
        order: [3, 7, 2, 6, 1, 5, 0, 4],
        shifts: [3, 9, 11, 15],
    },
];

fn half_md4_block(state: [u32; 4], input: &[u32; 8]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = state;
    for round in &ROUNDS {
        for (word, shift) in round.order.iter().zip(round.shifts.iter().cycle()) {
            let word = input.get(*word).copied().unwrap_or(0);
            let sum = a.wrapping_add((round.mix)(b, c, d)).wrapping_add(word).wrapping_add(round.constant);
            // The registers turn by one place a step; after 24 steps each is back in its own.
            (a, b, c, d) = (d, sum.rotate_left(*shift), b, c);
        }
    }
    let [a0, b0, c0, d0] = state;
    [a0.wrapping_add(a), b0.wrapping_add(b), c0.wrapping_add(c), d0.wrapping_add(d)]
}

fn tea(mut state: [u32; 4], name: &[u8], widen: fn(u8) -> u32) -> (u32, u32) {
    let mut rest = name;
    while !rest.is_empty() {
        state = tea_block(state, words::<4>(rest, widen));
        rest = rest.get(16..).unwrap_or_default();
    }
    let [major, minor, ..] = state;
    (major, minor)
}

fn tea_block(state: [u32; 4], key: [u32; 4]) -> [u32; 4] {
    let [first, second, third, fourth] = state;
    let [a, b, c, d] = key;
    let (mut left, mut right, mut sum) = (first, second, 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        let mix = |half: u32, low: u32, high: u32| {
            (half << 4).wrapping_add(low) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(high)
        };
        left = left.wrapping_add(mix(right, a, b));
        right = right.wrapping_add(mix(left, c, d));
    }
    [first.wrapping_add(left), second.wrapping_add(right), third, fourth]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, its hash by `debugfs dx_hash` without a seed and with the seed 01 02 … 10.
    type Vector = (u8, [(u32, u32); 8], [(u32, u32); 8]);

    fn names() -> [Vec<u8>; 8] {
        [
            b"a".to_vec(),
            b"hello".to_vec(),
            vec![b'y'; 32],
            vec![b'z'; 33],
            vec![b'w'; 255],
            b"file_with_a_rather_long_name_to_fill_blocks_2999".to_vec(),
            "éüname".as_bytes().to_vec(),
            "日本語ファイル名".as_bytes().to_vec(),
        ]
    }

    // Produced by `debugfs -R 'dx_hash -h VERSION -s UUID NAME'` of e2fsprogs 1.47.0.
    #[rustfmt::skip]
    const VECTORS: &[Vector] = &[
        (0, [(0xe74b_53e2, 0x0000_0000), (0x3225_2546, 0x0000_0000), (0x7158_6034, 0x0000_0000), (0x7851_e27c, 0x0000_0000), (0x839c_f226, 0x0000_0000), (0x7829_9ce2, 0x0000_0000), (0x4db4_20d2, 0x0000_0000), (0x9845_b566, 0x0000_0000)],
            [(0xe74b_53e2, 0x0000_0000), (0x3225_2546, 0x0000_0000), (0x7158_6034, 0x0000_0000), (0x7851_e27c, 0x0000_0000), (0x839c_f226, 0x0000_0000), (0x7829_9ce2, 0x0000_0000), (0x4db4_20d2, 0x0000_0000), (0x9845_b566, 0x0000_0000)]),
        (1, [(0xd5fa_7d7a, 0xacb4_8187), (0x1746_da32, 0x4200_13b5), (0x8036_bd46, 0x9d76_5e5a), (0xb8a2_7f84, 0x11ec_56cf), (0xc664_86ca, 0xabf8_fbe4), (0x7435_9c62, 0xd2a5_28f0), (0x3cd9_fba0, 0x49ae_8e9c), (0x9984_8f70, 0x05c0_1e66)],
            [(0x8d08_ec4c, 0x2fbc_cd78), (0xe2dd_f968, 0xc8bc_0924), (0xeeaf_58fa, 0xc932_59b0), (0x8e94_8a38, 0x52d6_76ba), (0x10c3_9088, 0xd05f_ab04), (0x90de_7eac, 0xf7c7_bbaf), (0xf218_fb60, 0x52d6_0e16), (0x9556_5884, 0xcdbe_b762)]),
        (2, [(0x6d0e_a4c0, 0xc189_22df), (0x6f5b_b1a8, 0x2319_17c2), (0xc4e9_4f42, 0x7d25_c4a8), (0x54d3_1c78, 0x5c5b_1ba2), (0xc0e6_f2ce, 0x5453_950b), (0x8cc6_4c5e, 0x15f4_fd95), (0xa57b_768c, 0x54a5_107b), (0x9a45_0f58, 0x10a6_ac9c)],
            [(0xf535_28f0, 0xea54_fb01), (0x1a56_92b6, 0x2fd9_857d), (0x3d54_0ffe, 0xa589_6898), (0x7364_aec0, 0x5f17_347d), (0xac26_7e2a, 0xd076_d7f6), (0xef98_301e, 0x3c28_4ccd), (0x8291_0e82, 0x0e56_f03c), (0x8b41_2eac, 0x6081_7a4a)]),
        (3, [(0xe74b_53e2, 0x0000_0000), (0x3225_2546, 0x0000_0000), (0x7158_6034, 0x0000_0000), (0x7851_e27c, 0x0000_0000), (0x839c_f226, 0x0000_0000), (0x7829_9ce2, 0x0000_0000), (0x4953_970a, 0x0000_0000), (0x53f7_69b2, 0x0000_0000)],
            [(0xe74b_53e2, 0x0000_0000), (0x3225_2546, 0x0000_0000), (0x7158_6034, 0x0000_0000), (0x7851_e27c, 0x0000_0000), (0x839c_f226, 0x0000_0000), (0x7829_9ce2, 0x0000_0000), (0x4953_970a, 0x0000_0000), (0x53f7_69b2, 0x0000_0000)]),
        (4, [(0xd5fa_7d7a, 0xacb4_8187), (0x1746_da32, 0x4200_13b5), (0x8036_bd46, 0x9d76_5e5a), (0xb8a2_7f84, 0x11ec_56cf), (0xc664_86ca, 0xabf8_fbe4), (0x7435_9c62, 0xd2a5_28f0), (0x6b9e_5bbc, 0x7929_4c83), (0xca12_d0a2, 0xa01e_cde2)],
            [(0x8d08_ec4c, 0x2fbc_cd78), (0xe2dd_f968, 0xc8bc_0924), (0xeeaf_58fa, 0xc932_59b0), (0x8e94_8a38, 0x52d6_76ba), (0x10c3_9088, 0xd05f_ab04), (0x90de_7eac, 0xf7c7_bbaf), (0xaa3d_1bda, 0xbf6e_46be), (0x0e4b_a2a6, 0xac06_7450)]),
        (5, [(0x6d0e_a4c0, 0xc189_22df), (0x6f5b_b1a8, 0x2319_17c2), (0xc4e9_4f42, 0x7d25_c4a8), (0x54d3_1c78, 0x5c5b_1ba2), (0xc0e6_f2ce, 0x5453_950b), (0x8cc6_4c5e, 0x15f4_fd95), (0x6f7e_b094, 0xae6e_3978), (0xa8af_c628, 0xfd73_0e08)],
            [(0xf535_28f0, 0xea54_fb01), (0x1a56_92b6, 0x2fd9_857d), (0x3d54_0ffe, 0xa589_6898), (0x7364_aec0, 0x5f17_347d), (0xac26_7e2a, 0xd076_d7f6), (0xef98_301e, 0x3c28_4ccd), (0xb637_61a2, 0xc5a6_7070), (0x6817_dda2, 0x5fdc_a80c)]),
    ];

    #[test]
    fn names_hash_as_debugfs_says() {
        let seed = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];
        for (version, plain, seeded) in VECTORS {
            for (at, name) in names().iter().enumerate() {
                for (seed, expected) in [([0; 4], plain[at]), (seed, seeded[at])] {
                    let found = hash(HashVersion(*version), seed, name).unwrap();
                    assert_eq!((found.major, found.minor), expected, "version {version}, name {at}");
                }
            }
        }
    }

    #[test]
    fn keyed_and_unknown_versions_are_not_computed() {
        assert_eq!(hash(HashVersion::SIPHASH, [0; 4], b"a"), None);
        assert_eq!(hash(HashVersion(200), [0; 4], b"a"), None);
    }

    #[test]
    fn the_superblock_moves_only_the_three_old_versions() {
        assert_eq!(HashVersion::TEA.with_unsigned(true), HashVersion::TEA_UNSIGNED);
        assert_eq!(HashVersion::TEA.with_unsigned(false), HashVersion::TEA);
        assert_eq!(HashVersion::SIPHASH.with_unsigned(true), HashVersion::SIPHASH);
    }

    #[test]
    fn the_mark_of_the_end_is_never_a_hash() {
        // Found by search: the legacy hash of this name is 0xfffffffe before the rule.
        let found = hash(HashVersion::LEGACY, [0; 4], b"gj8tbn8g-").unwrap();
        assert_eq!(found, NameHash { major: 0xffff_fffc, minor: 0 });
    }
}
