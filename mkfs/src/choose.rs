//! Options and defaults made into parameters. Clock and chance come in as values.

use std::os::unix::ffi::OsStrExt;

use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_cli::size::{parse_number, parse_size};
use ext4kit_format::create::{
    Identity, InodeCount, JournalParameters, Parameters, default_journal_blocks, default_orphan_file_blocks,
};
use ext4kit_format::disk::features::{Compat, Features, Incompat, RoCompat};
use ext4kit_format::disk::mmp::{DEFAULT_INTERVAL, MAX_INTERVAL};
use ext4kit_format::disk::superblock::mount_options;
use uuid::Uuid;

use crate::defaults::{self, Kind, Usage};
use crate::extended::{Extended, Journal};
use crate::features::Edited;
use crate::options::Options;

/// What comes from outside: clock, chance, and what is known of the target.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The time of creation in seconds since 1970.
    pub now: i64,
    /// A fresh random UUID for the filesystem, and one for the hash seed.
    pub random: [[u8; 16]; 2],
    /// Size of the target in bytes, from where the filesystem begins; `None` where there is no target yet.
    pub target_bytes: Option<u64>,
    /// User and group that run the program.
    pub user: (u32, u32),
    /// The kind that the program's name asks for.
    pub kind: Option<Kind>,
}

/// The size of the filesystem that is asked for, in bytes, where it is given. A number without a unit counts KiB, or
/// blocks after `-b`.
pub fn requested_bytes(options: &Options) -> Result<Option<u64>, Failure> {
    let Some(size) = &options.size else { return Ok(None) };
    let unit = match &options.block_size {
        Some(block_size) => u64::from(block_size_of(block_size)?.unwrap_or(1024)),
        None => 1024,
    };
    Ok(Some(parse_size(size, unit)?))
}

/// A block size as typed: exact if positive, and a lower bound that leaves the choice open if negative.
fn block_size_of(text: &str) -> Result<Option<u32>, Failure> {
    if text.starts_with('-') {
        return Ok(None);
    }
    let size = parse_size(text, 1)?;
    let valid =
        u32::try_from(size).ok().filter(|size| (1024..=65536).contains(size) && size.is_power_of_two());
    valid
        .map(Some)
        .ok_or_else(|| Failure::usage("-b", format!("{size} is no power of two from 1024 to 65536")))
}

fn number<T: TryFrom<u64>>(option: &str, text: &str) -> Result<T, Failure> {
    let number = parse_number(text).ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| Failure::usage(option, format!("`{text}` is no number that it can be")))
}

/// The parameters of the filesystem that the options ask for.
pub fn parameters(options: &Options, around: &Surroundings) -> Result<Parameters, Failure> {
    let extended = Extended::parse(&options.extended)?;
    let Some(bytes) = requested_bytes(options)?.or(around.target_bytes) else {
        return Err(Failure::usage("", "the file does not exist, and no size was given"));
    };
    let kind = kind(options, around)?;
    let usage = usage(options, bytes)?;
    let block_size = choose_block_size(options, usage)?;
    let blocks_count = bytes / u64::from(block_size);
    let edited = features(options, kind)?;
    let features = consistent_features(edited, options, blocks_count)?;
    let cluster_size = choose_cluster_size(options, features, block_size)?;
    let journal = journal(options, features, blocks_count, block_size)?;
    let features = without_what_cannot_be(features, edited, journal.is_some());
    let revision = match &options.revision {
        Some(text) => number("-r", text)?,
        None => extended.revision.unwrap_or(1),
    };
    check_revision(revision, features)?;
    let orphan_file_blocks = orphan_file_blocks(&extended, blocks_count, block_size, cluster_size)?;
    Ok(Parameters {
        blocks_count,
        block_size,
        cluster_size,
        per_group: per_group(options, block_size)?,
        features,
        revision,
        inode_size: if revision == 0 { 128 } else { inode_size(options, block_size, features)? },
        inodes: inodes(options, usage, cluster_size)?,
        flex_groups: flex_groups(options, features)?,
        reserved_percent: reserved_percent(options)?,
        resize_blocks: resize_blocks(&extended, block_size, blocks_count)?,
        journal,
        orphan_file_blocks,
        identity: identity(options, &extended, around)?,
        time: around.now,
        errors: errors(options)?,
        creator_os: creator_os(options)?,
        mount_options: if revision == 0 { 0 } else { mount_options::USER_XATTR | mount_options::ACL },
        hash_version: 1,
        unsigned_hash: false,
        raid: (extended.stride, extended.stripe_width),
        encoding: if features.incompat.contains(Incompat::CASEFOLD) {
            extended.encoding.unwrap_or((1, 0))
        } else {
            (0, 0)
        },
        backups: backups(&extended)?,
        mmp_interval: mmp_interval(&extended)?,
        test_filesystem: extended.test_filesystem,
        root_owner: extended.root_owner.map_or((0, 0), |owner| owner.unwrap_or(around.user)),
        root_mode: extended.root_mode.unwrap_or(0o755),
        target_is_zero: extended.assume_zeroed,
        lazy_tables: extended.lazy_tables.unwrap_or(true),
    })
}

fn kind(options: &Options, around: &Surroundings) -> Result<Kind, Failure> {
    match &options.kind {
        Some(name) => Kind::from_name(name),
        None => Ok(around.kind.unwrap_or(if options.journal { Kind::Ext3 } else { Kind::Ext2 })),
    }
}

fn usage(options: &Options, bytes: u64) -> Result<Usage, Failure> {
    let names = options.usage.as_deref().unwrap_or_else(|| defaults::usage_of_size(bytes));
    let mut sum = Usage::default();
    for name in names.split(',') {
        let usage = defaults::usage(name)?;
        sum.block_size = usage.block_size.or(sum.block_size);
        sum.inode_ratio = usage.inode_ratio.or(sum.inode_ratio);
    }
    Ok(sum)
}

fn choose_block_size(options: &Options, usage: Usage) -> Result<u32, Failure> {
    let chosen = usage.block_size.unwrap_or(4096);
    let Some(text) = &options.block_size else { return Ok(chosen) };
    if let Some(exact) = block_size_of(text)? {
        return Ok(exact);
    }
    let least = block_size_of(text.trim_start_matches('-'))?;
    Ok(least.map_or(chosen, |least| chosen.max(least)))
}

fn features(options: &Options, kind: Kind) -> Result<Edited, Failure> {
    let mut edited = Edited::from_defaults(kind.features());
    if options.journal {
        edited.features.compat |= Compat::HAS_JOURNAL;
    }
    for list in &options.features {
        edited.apply(list)?;
    }
    Ok(edited)
}

/// Refuses combinations that no filesystem can have, as mke2fs does.
fn consistent_features(edited: Edited, options: &Options, blocks_count: u64) -> Result<Features, Failure> {
    let mut features = edited.features;
    let asked = edited.asked_for;
    let refuse = |what: &str| Err(Failure::usage("-O", what));
    if !features.incompat.contains(Incompat::EXTENTS) {
        if asked.incompat.contains(Incompat::BIT64)
            || asked.ro_compat.intersects(RoCompat::BIGALLOC | RoCompat::VERITY)
        {
            return refuse("64bit, bigalloc and verity need extent");
        }
        features.incompat.remove(Incompat::BIT64);
    }
    if features.incompat.contains(Incompat::META_BG) {
        if asked.compat.contains(Compat::RESIZE_INODE) {
            return refuse("meta_bg and resize_inode exclude each other");
        }
        features.compat.remove(Compat::RESIZE_INODE);
    }
    if features.compat.contains(Compat::RESIZE_INODE)
        && !features.ro_compat.contains(RoCompat::SPARSE_SUPER)
        && !features.compat.contains(Compat::SPARSE_SUPER2)
    {
        return refuse("resize_inode needs sparse_super");
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        features.ro_compat.remove(RoCompat::GDT_CSUM);
    } else {
        if asked.incompat.contains(Incompat::CSUM_SEED) {
            return refuse("metadata_csum_seed needs metadata_csum");
        }
        features.incompat.remove(Incompat::CSUM_SEED);
    }
    if features.incompat.contains(Incompat::JOURNAL_DEV) {
        return refuse("making an external journal (journal_dev) is not built yet");
    }
    if features.ro_compat.contains(RoCompat::QUOTA) || features.ro_compat.contains(RoCompat::PROJECT) {
        return refuse("making quota files (quota, project) is not built yet");
    }
    let small_inodes = options.inode_size.as_deref().is_some_and(|size| parse_number(size) == Ok(128));
    if features.incompat.contains(Incompat::INLINE_DATA) && small_inodes {
        return refuse("inline_data needs inodes larger than 128 bytes");
    }
    // The resize inode works with 32-bit block numbers.
    if blocks_count > u32::MAX.into() {
        features.compat.remove(Compat::RESIZE_INODE);
    }
    Ok(features)
}

/// Drops defaults that turn out to be impossible: features that live in a journal which is not there.
fn without_what_cannot_be(mut features: Features, edited: Edited, has_journal: bool) -> Features {
    features.compat.set(Compat::HAS_JOURNAL, has_journal);
    if !has_journal {
        features.compat.remove(Compat::FAST_COMMIT);
        if !edited.asked_for.compat.contains(Compat::ORPHAN_FILE) {
            features.compat.remove(Compat::ORPHAN_FILE);
        }
    }
    features
}

fn check_revision(revision: u32, features: Features) -> Result<(), Failure> {
    match revision {
        1 => Ok(()),
        0 if features == Features::default() => Ok(()),
        0 => Err(Failure::usage("-r", "revision 0 has no features; leave them out with -O none")),
        _ => Err(Failure::usage("-r", format!("{revision} is neither 0 nor 1"))),
    }
}

fn choose_cluster_size(options: &Options, features: Features, block_size: u32) -> Result<u32, Failure> {
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    match &options.cluster_size {
        None if bigalloc => Ok(block_size.saturating_mul(16)),
        None => Ok(block_size),
        Some(_) if !bigalloc => Err(Failure::usage("-C", "a cluster size needs the feature bigalloc")),
        Some(text) => {
            let size = u32::try_from(parse_size(text, 1)?).unwrap_or(u32::MAX);
            if size.is_power_of_two() && (block_size..=1 << 29).contains(&size) {
                Ok(size)
            } else {
                Err(Failure::usage("-C", format!("{size} is no power of two from the block size to 512 MiB")))
            }
        }
    }
}

fn journal(
    options: &Options,
    features: Features,
    blocks_count: u64,
    block_size: u32,
) -> Result<Option<JournalParameters>, Failure> {
    let asked = Journal::parse(&options.journal_options)?;
    if !features.compat.contains(Compat::HAS_JOURNAL) && asked.megabytes.is_none() {
        return Ok(None);
    }
    let blocks = match asked.megabytes {
        Some(megabytes) => {
            let blocks = megabytes.saturating_mul(1 << 20) / u64::from(block_size);
            let most = 10_240_000.min(blocks_count / 2);
            match u32::try_from(blocks) {
                Ok(exact) if (1024..=most).contains(&blocks) => exact,
                _ => {
                    let text = format!("a journal of {blocks} blocks is not within 1024 to {most}");
                    return Err(Failure::usage("-J", text));
                }
            }
        }
        None => match default_journal_blocks(blocks_count) {
            Some(blocks) => blocks,
            None => return Ok(None),
        },
    };
    let fast_commit_blocks = if features.compat.contains(Compat::FAST_COMMIT) {
        match asked.fast_commit_kilobytes {
            Some(kilobytes) => {
                u32::try_from((kilobytes << 10).div_ceil(block_size.into())).unwrap_or(u32::MAX)
            }
            None => (blocks / 64).max(1),
        }
    } else {
        0
    };
    Ok(Some(JournalParameters { blocks: blocks.saturating_add(fast_commit_blocks), fast_commit_blocks }))
}

fn orphan_file_blocks(
    extended: &Extended,
    blocks_count: u64,
    block_size: u32,
    cluster_size: u32,
) -> Result<u32, Failure> {
    let per_cluster = cluster_size / block_size;
    let Some(text) = &extended.orphan_file_size else {
        return Ok(default_orphan_file_blocks(blocks_count, per_cluster));
    };
    let blocks = parse_size(text, 1)?.div_ceil(block_size.into());
    let most = (8u64 << 20) / u64::from(block_size);
    match u32::try_from(blocks) {
        Ok(exact) if (1..=most.min(512)).contains(&blocks) => Ok(exact.next_multiple_of(per_cluster.max(1))),
        _ => Err(Failure::usage(
            "-E",
            format!("orphan_file_size: {blocks} blocks are more than kernels take (512, 8 MiB)"),
        )),
    }
}

fn per_group(options: &Options, block_size: u32) -> Result<Option<u32>, Failure> {
    let Some(text) = &options.blocks_per_group else { return Ok(None) };
    let count: u32 = number("-g", text)?;
    if !count.is_multiple_of(8) || !(256..=block_size.saturating_mul(8)).contains(&count) {
        let most = block_size.saturating_mul(8);
        return Err(Failure::usage("-g", format!("{count} is no multiple of 8 from 256 to {most}")));
    }
    Ok(Some(count))
}

fn inode_size(options: &Options, block_size: u32, features: Features) -> Result<u32, Failure> {
    let Some(text) = &options.inode_size else { return Ok(256) };
    let size: u32 = number("-I", text)?;
    if !size.is_power_of_two() || !(128..=block_size).contains(&size) {
        return Err(Failure::usage("-I", format!("{size} is no power of two from 128 to {block_size}")));
    }
    if size == 128 && features.ro_compat.contains(RoCompat::PROJECT) {
        return Err(Failure::usage("-I", "project ids need inodes larger than 128 bytes"));
    }
    Ok(size)
}

fn inodes(options: &Options, usage: Usage, cluster_size: u32) -> Result<InodeCount, Failure> {
    // More inodes than clusters could never be used.
    let default = InodeCount::BytesPerInode(usage.inode_ratio.unwrap_or(16_384).max(cluster_size));
    if let Some(text) = &options.inode_count {
        return Ok(match number("-N", text)? {
            // Some build systems pass 0 for "as many as you like".
            0 => default,
            count => InodeCount::AtLeast(count),
        });
    }
    let Some(text) = &options.inode_ratio else { return Ok(default) };
    let ratio = parse_size(text, 1)?;
    match u32::try_from(ratio) {
        Ok(ratio) if (1024..=64 << 20).contains(&ratio) => Ok(InodeCount::BytesPerInode(ratio)),
        _ => Err(Failure::usage("-i", format!("{ratio} is not within 1024 to 67108864"))),
    }
}

fn flex_groups(options: &Options, features: Features) -> Result<u32, Failure> {
    let Some(text) = &options.flex_groups else { return Ok(16) };
    let groups: u64 = number("-G", text)?;
    if !features.incompat.contains(Incompat::FLEX_BG) {
        return Err(Failure::usage("-G", "flex groups need the feature flex_bg"));
    }
    match u32::try_from(groups) {
        Ok(groups) if groups.is_power_of_two() => Ok(groups),
        _ => Err(Failure::usage(
            "-G",
            format!("flex_bg size must be a power of 2 up to 2147483648, not {groups}"),
        )),
    }
}

fn reserved_percent(options: &Options) -> Result<f64, Failure> {
    let Some(text) = &options.reserved_percent else { return Ok(5.0) };
    let percent: Option<f64> = text.parse().ok().filter(|percent| (0.0..=50.0).contains(percent));
    percent.ok_or_else(|| Failure::usage("-m", format!("`{text}` is no percentage from 0 to 50")))
}

fn resize_blocks(extended: &Extended, block_size: u32, blocks_count: u64) -> Result<Option<u64>, Failure> {
    let Some(text) = &extended.resize else { return Ok(None) };
    let blocks = parse_size(text, block_size.into())? / u64::from(block_size);
    if blocks <= blocks_count {
        return Err(Failure::usage(
            "-E",
            "resize: the size to grow to is not above the size of the filesystem",
        ));
    }
    Ok(Some(blocks))
}

fn backups(extended: &Extended) -> Result<u32, Failure> {
    match extended.backups {
        None => Ok(2),
        Some(count) if count <= 2 => Ok(count),
        Some(count) => Err(Failure::usage("-E", format!("num_backup_sb: {count} is not within 0 to 2"))),
    }
}

fn mmp_interval(extended: &Extended) -> Result<u16, Failure> {
    match extended.mmp_interval {
        None => Ok(DEFAULT_INTERVAL),
        Some(seconds) if seconds <= MAX_INTERVAL => Ok(seconds),
        Some(seconds) => {
            Err(Failure::usage("-E", format!("mmp_update_interval: {seconds} is above {MAX_INTERVAL}")))
        }
    }
}

fn errors(options: &Options) -> Result<u16, Failure> {
    match options.errors.as_deref() {
        None | Some("continue") => Ok(1),
        Some("remount-ro") => Ok(2),
        Some("panic") => Ok(3),
        Some(other) => Err(Failure::usage("-e", format!("`{other}` is none of continue, remount-ro, panic"))),
    }
}

fn creator_os(options: &Options) -> Result<u32, Failure> {
    const SYSTEMS: [(&str, u32); 5] =
        [("linux", 0), ("GNU/hurd", 1), ("hurd", 1), ("freebsd", 3), ("lites", 4)];
    let Some(name) = &options.creator_os else { return Ok(0) };
    match SYSTEMS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, system)) => Ok(*system),
        None => number("-o", name),
    }
}

fn identity(options: &Options, extended: &Extended, around: &Surroundings) -> Result<Identity, Failure> {
    let [uuid, seed] = around.random;
    let uuid = match options.uuid.as_deref() {
        None | Some("random") => uuid,
        Some("clear" | "null") => [0; 16],
        Some("time") => return Err(Failure::usage("-U", "a UUID made from the time is not built yet")),
        Some(text) => parse_uuid("-U", text)?,
    };
    let hash_seed = match &extended.hash_seed {
        None => seed,
        Some(text) => parse_uuid("-E hash_seed", text)?,
    };
    let mut identity = Identity { uuid, hash_seed, ..Identity::default() };
    if let Some(label) = &options.label {
        fill("-L", label.as_bytes(), &mut identity.label)?;
    }
    if let Some(directory) = &options.last_mounted {
        fill("-M", directory.as_bytes(), &mut identity.last_mounted)?;
    }
    Ok(identity)
}

fn parse_uuid(option: &str, text: &str) -> Result<[u8; 16], Failure> {
    match Uuid::parse_str(text) {
        Ok(uuid) => Ok(uuid.into_bytes()),
        Err(_) => Err(Failure::usage(option, format!("`{text}` is no UUID"))),
    }
}

fn fill(option: &str, text: &[u8], field: &mut [u8]) -> Result<(), Failure> {
    let most = field.len();
    let Some(start) = field.get_mut(..text.len()) else {
        let text = String::from_utf8_lossy(text);
        return Err(Failure::new(
            FailureKind::Usage,
            option,
            format!("`{text}` is longer than {most} bytes"),
        ));
    };
    start.copy_from_slice(text);
    Ok(())
}
