//! The superblock and the groups.

use std::io::{self, Write};

use ext4kit_cli::time::classic_text;
use ext4kit_format::disk::features::{Compat, Feature, Features, Incompat, NAMES, RoCompat};
use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::disk::superblock::{Superblock, field_text, flags, mount_options, state};
use ext4kit_format::tree::group;
use ext4kit_format::txn::Transaction;
use jiff::tz::TimeZone;
use serde::Serialize;
use uuid::Uuid;

use crate::answer::{Answer, Outcome, Report};
use crate::table::Call;

/// A line of the superblock: what it is called, and its value as text.
#[derive(Serialize)]
struct Field {
    name: &'static str,
    value: String,
}

#[derive(Serialize)]
struct Group {
    number: u32,
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    free_clusters: u32,
    free_inodes: u32,
    used_directories: u32,
    unused_inodes: Option<u32>,
    block_uninit: bool,
    inode_uninit: bool,
    checksum: Option<u16>,
    #[serde(skip)]
    unit: &'static str,
}

#[derive(Serialize)]
struct Stats {
    superblock: Vec<Field>,
    directories: u64,
    groups: Vec<Group>,
}

fn plural(count: u32, word: &str) -> String {
    if count == 1 { format!("{count} {word}") } else { format!("{count} {word}s") }
}

impl Report for Stats {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for Field { name, value } in &self.superblock {
            if *name == "Inode size" {
                // This one line has a tab in the original.
                writeln!(to, "Inode size:\t{value:>13}")?;
            } else {
                writeln!(to, "{:<26}{value}", format!("{name}:"))?;
            }
        }
        writeln!(to, "{:<26}{}", "Directories:", self.directories)?;
        self.groups.iter().try_for_each(|group| group.text(to))
    }
}

impl Group {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, " Group {:2}: block bitmap at {}, ", self.number, self.block_bitmap)?;
        writeln!(to, "inode bitmap at {}, inode table at {}", self.inode_bitmap, self.inode_table)?;
        let directories = match self.used_directories {
            1 => "1 used directory".to_owned(),
            count => format!("{count} used directories"),
        };
        let (free, inodes) = (plural(self.free_clusters, self.unit), plural(self.free_inodes, "inode"));
        let (free, inodes) = (free.replacen(' ', " free ", 1), inodes.replacen(' ', " free ", 1));
        write!(to, "{:11}{free}, {inodes}, {directories}", "")?;
        if let Some(unused) = self.unused_inodes {
            write!(to, ", {}", plural(unused, "inode").replacen(' ', " unused ", 1))?;
        }
        writeln!(to)?;
        let Some(checksum) = self.checksum else { return Ok(()) };
        let mut marks = Vec::new();
        if self.inode_uninit {
            marks.push("Inode not init".to_owned());
        }
        if self.block_uninit {
            marks.push("Block not init".to_owned());
        }
        marks.push(format!("Checksum 0x{checksum:04x}"));
        writeln!(to, "{:11}[{}]", "", marks.join(", "))
    }
}

/// `show_super_stats`.
pub fn show_super_stats(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("h", 0, 0)?;
    let open = call.open()?;
    let superblock = open.image.superblock();
    let layout = open.txn.layout();
    let mut problems = Vec::new();
    let (mut groups, mut directories) = (Vec::new(), 0u64);
    for number in layout.geometry.groups() {
        match group::read_descriptor(&open.txn, number) {
            Err(error) => problems.push(call.failed(&error)),
            Ok(descriptor) => {
                directories += u64::from(descriptor.used_directories);
                if !flags.has('h') {
                    let unit = if layout.features().ro_compat.contains(RoCompat::BIGALLOC) {
                        "cluster"
                    } else {
                        "block"
                    };
                    groups.push(group_of(number.0, &descriptor, layout.has_lazy_groups(), unit));
                }
            }
        }
    }
    let fields = fields(superblock, &call.session.zone);
    Ok(Answer::of(Stats { superblock: fields, directories, groups }).with(problems))
}

fn group_of(number: u32, descriptor: &GroupDescriptor, lazy: bool, unit: &'static str) -> Group {
    let flag = |flag| lazy && descriptor.flags.contains(flag);
    Group {
        number,
        block_bitmap: descriptor.block_bitmap.0,
        inode_bitmap: descriptor.inode_bitmap.0,
        inode_table: descriptor.inode_table.0,
        free_clusters: descriptor.free_clusters,
        free_inodes: descriptor.free_inodes,
        used_directories: descriptor.used_directories,
        unused_inodes: lazy.then_some(descriptor.unused_inodes),
        block_uninit: flag(GroupFlags::BLOCK_UNINIT),
        inode_uninit: flag(GroupFlags::INODE_UNINIT),
        checksum: lazy.then_some(descriptor.checksum),
        unit,
    }
}

fn or(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

fn names(features: Features) -> String {
    features.iter().map(|feature| feature.to_string()).collect::<Vec<_>>().join(" ")
}

/// A list of the fields being put together.
struct Fields(Vec<Field>);

impl Fields {
    fn add(&mut self, name: &'static str, value: impl std::fmt::Display) {
        self.0.push(Field { name, value: value.to_string() });
    }

    fn add_if(&mut self, condition: bool, name: &'static str, value: impl std::fmt::Display) {
        if condition {
            self.add(name, value);
        }
    }
}

fn fields(superblock: &Superblock, zone: &TimeZone) -> Vec<Field> {
    let mut fields = Fields(Vec::new());
    identity(superblock, &mut fields);
    counts(superblock, &mut fields);
    life(superblock, zone, &mut fields);
    journal_and_hash(superblock, &mut fields);
    errors(superblock, zone, &mut fields);
    rest(superblock, &mut fields);
    fields.0
}

fn identity(superblock: &Superblock, fields: &mut Fields) {
    fields.add("Filesystem volume name", or(field_text(&superblock.s_volume_name), "<none>"));
    fields.add("Last mounted on", or(field_text(&superblock.s_last_mounted), "<not available>"));
    fields.add("Filesystem UUID", uuid_text(superblock.s_uuid));
    fields.add("Filesystem magic number", format!("{:#06X}", superblock.s_magic.get()).replace("0X", "0x"));
    let revision = match superblock.s_rev_level.get() {
        0 => "0 (original)".to_owned(),
        1 => "1 (dynamic)".to_owned(),
        other => format!("{other} (unknown)"),
    };
    fields.add("Filesystem revision #", format!("   {revision}").trim_start());
    fields.add("Filesystem features", or(names(superblock.features()), "(none)"));
    let bits = superblock.s_flags.get();
    let known = [
        (flags::SIGNED_HASH, "signed_directory_hash"),
        (flags::UNSIGNED_HASH, "unsigned_directory_hash"),
        (flags::TEST_FILESYSTEM, "test_filesystem"),
    ];
    let set: Vec<&str> = known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    let set = if set.is_empty() { String::new() } else { set.join(" ") + " " };
    fields.add_if(bits != 0, "Filesystem flags", or(set, "(none)"));
    fields.add("Default mount options", or(mount_option_names(superblock), "(none)"));
    let own = field_text(&superblock.s_mount_opts);
    fields.add_if(!own.is_empty(), "Mount options", own);
    let bits = superblock.s_state.get();
    let mut health = if bits & state::VALID != 0 { "clean" } else { "not clean" }.to_owned();
    if bits & state::ERROR != 0 {
        health.push_str(" with errors");
    }
    fields.add("Filesystem state", health);
    let behaviour = match superblock.s_errors.get() {
        1 => "Continue",
        2 => "Remount read-only",
        3 => "Panic",
        _ => "Unknown (continue)",
    };
    fields.add("Errors behavior", behaviour);
    let system = match superblock.s_creator_os.get() {
        0 => "Linux",
        1 => "GNU/Hurd",
        2 => "MASIX",
        3 => "FreeBSD",
        4 => "Lites",
        _ => "unknown",
    };
    fields.add("Filesystem OS type", system);
}

fn mount_option_names(superblock: &Superblock) -> String {
    let bits = superblock.s_default_mount_opts.get();
    let known = [
        (mount_options::DEBUG, "debug"),
        (mount_options::BSD_GROUPS, "bsdgroups"),
        (mount_options::USER_XATTR, "user_xattr"),
        (mount_options::ACL, "acl"),
        (mount_options::UID16, "uid16"),
        (mount_options::NO_BARRIER, "nobarrier"),
        (mount_options::BLOCK_VALIDITY, "block_validity"),
        (mount_options::DISCARD, "discard"),
        (mount_options::NO_DELALLOC, "nodelalloc"),
    ];
    let mode = match bits & mount_options::JOURNAL_MODE {
        mount_options::JOURNAL_DATA => Some("journal_data"),
        mount_options::JOURNAL_ORDERED => Some("journal_data_ordered"),
        mount_options::JOURNAL_WRITEBACK => Some("journal_data_writeback"),
        _ => None,
    };
    let names =
        mode.into_iter().chain(known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name));
    names.collect::<Vec<_>>().join(" ")
}

fn counts(superblock: &Superblock, fields: &mut Fields) {
    let features = superblock.features();
    fields.add("Inode count", superblock.s_inodes_count);
    fields.add("Block count", superblock.blocks_count());
    fields.add("Reserved block count", superblock.reserved_blocks_count());
    let overhead = superblock.s_overhead_clusters.get();
    fields.add_if(overhead != 0, "Overhead clusters", overhead);
    fields.add("Free blocks", superblock.free_blocks_count());
    fields.add("Free inodes", superblock.s_free_inodes_count);
    fields.add("First block", superblock.s_first_data_block);
    let size = |log: u32| 1024u64.checked_shl(log.min(40)).unwrap_or(0);
    fields.add("Block size", size(superblock.s_log_block_size.get()));
    let clusters = features.ro_compat.contains(RoCompat::BIGALLOC);
    let cluster = size(superblock.s_log_cluster_size.get());
    fields.add(if clusters { "Cluster size" } else { "Fragment size" }, cluster);
    fields.add_if(
        features.incompat.contains(Incompat::BIT64),
        "Group descriptor size",
        superblock.s_desc_size,
    );
    let reserved = superblock.s_reserved_gdt_blocks.get();
    fields.add_if(reserved != 0, "Reserved GDT blocks", reserved);
    fields.add("Blocks per group", superblock.s_blocks_per_group);
    let per_group = superblock.s_clusters_per_group;
    fields.add(if clusters { "Clusters per group" } else { "Fragments per group" }, per_group);
    fields.add("Inodes per group", superblock.s_inodes_per_group);
    let bytes = u64::from(superblock.s_inodes_per_group.get()) * u64::from(superblock.inode_size());
    fields.add("Inode blocks per group", bytes.div_ceil(size(superblock.s_log_block_size.get()).max(1)));
    let first = superblock.s_first_meta_bg.get();
    fields.add_if(first != 0, "First meta block group", first);
    let (stride, stripe) = (superblock.s_raid_stride.get(), superblock.s_raid_stripe_width.get());
    fields.add_if(stride != 0, "RAID stride", stride);
    fields.add_if(stripe != 0, "RAID stripe width", stripe);
    let flex = superblock.s_log_groups_per_flex;
    fields.add_if(flex != 0, "Flex block group size", 1u64 << flex.min(63));
}

/// Seconds of two fields.
fn wide(low: u32, high: u8) -> i64 {
    i64::from(low) | i64::from(high) << 32
}

fn life(superblock: &Superblock, zone: &TimeZone, fields: &mut Fields) {
    let time = |seconds: i64| classic_text(seconds, zone);
    let made = wide(superblock.s_mkfs_time.get(), superblock.s_mkfs_time_hi);
    fields.add_if(made != 0, "Filesystem created", time(made));
    let mounted = wide(superblock.s_mtime.get(), superblock.s_mtime_hi);
    fields.add("Last mount time", if mounted == 0 { "n/a".to_owned() } else { time(mounted) });
    fields.add("Last write time", time(wide(superblock.s_wtime.get(), superblock.s_wtime_hi)));
    fields.add("Mount count", superblock.s_mnt_count);
    fields.add("Maximum mount count", superblock.s_max_mnt_count.get().cast_signed());
    let checked = wide(superblock.s_lastcheck.get(), superblock.s_lastcheck_hi);
    fields.add("Last checked", time(checked));
    let interval = superblock.s_checkinterval.get();
    fields.add("Check interval", format!("{interval} ({})", interval_text(interval)));
    fields.add_if(interval != 0, "Next check after", time(checked + i64::from(interval)));
    let kilobytes = superblock.s_kbytes_written.get();
    fields.add_if(kilobytes != 0, "Lifetime writes", written_text(kilobytes));
    let (user, group) = (superblock.reserved_uid(), superblock.reserved_gid());
    fields.add("Reserved blocks uid", format!("{user} (user {})", name_of("/etc/passwd", user)));
    fields.add("Reserved blocks gid", format!("{group} (group {})", name_of("/etc/group", group)));
}

/// The name that an id has on this machine.
fn name_of(table: &str, id: u32) -> String {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut parts = line.split(':');
        let (name, number) = (parts.next()?, parts.nth(1)?);
        (number.parse() == Ok(id)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| "unknown".to_owned())
}

fn interval_text(seconds: u32) -> String {
    if seconds == 0 {
        return "<none>".to_owned();
    }
    let units = [
        (2_592_000, "month"),
        (604_800, "week"),
        (86400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let mut left = seconds;
    let mut parts = Vec::new();
    for (length, name) in units {
        let count = left / length;
        left %= length;
        if count > 0 {
            parts.push(plural(count, name));
        }
    }
    parts.join(", ")
}

fn written_text(kilobytes: u64) -> String {
    let round = |shift: u32| kilobytes.saturating_add(1 << (shift - 1)) >> shift;
    match kilobytes {
        0..0x2000 => format!("{kilobytes} kB"),
        0x2000..0x80_0000 => format!("{} MB", round(10)),
        0x80_0000..0x2_0000_0000 => format!("{} GB", round(20)),
        _ => format!("{} TB", round(30)),
    }
}

fn uuid_text(bytes: [u8; 16]) -> String {
    if bytes == [0; 16] { "<none>".to_owned() } else { Uuid::from_bytes(bytes).to_string() }
}

fn journal_and_hash(superblock: &Superblock, fields: &mut Fields) {
    if !superblock.is_original_revision() {
        fields.add("First inode", superblock.s_first_ino);
        fields.add("Inode size", superblock.s_inode_size);
        let (required, desired) = (superblock.s_min_extra_isize.get(), superblock.s_want_extra_isize.get());
        fields.add_if(required != 0, "Required extra isize", required);
        fields.add_if(desired != 0, "Desired extra isize", desired);
    }
    let journal = superblock.s_journal_uuid;
    fields.add_if(journal != [0; 16], "Journal UUID", uuid_text(journal));
    let inode = superblock.s_journal_inum.get();
    fields.add_if(inode != 0, "Journal inode", inode);
    let device = superblock.s_journal_dev.get();
    fields.add_if(device != 0, "Journal device", format!("{device:#06x}"));
    let orphan = superblock.s_last_orphan.get();
    fields.add_if(orphan != 0, "First orphan inode", orphan);
    if superblock.features().compat.contains(Compat::DIR_INDEX) || superblock.s_def_hash_version != 0 {
        let hash = match superblock.s_def_hash_version {
            0 => "legacy".to_owned(),
            1 => "half_md4".to_owned(),
            2 => "tea".to_owned(),
            6 => "siphash".to_owned(),
            other => format!("HASHALG_{other}"),
        };
        fields.add("Default directory hash", hash);
    }
    fields.add_if(
        superblock.s_hash_seed != [0; 16],
        "Directory Hash Seed",
        uuid_text(superblock.s_hash_seed),
    );
    match superblock.s_jnl_backup_type {
        0 => {}
        1 => fields.add("Journal backup", "inode blocks"),
        other => fields.add("Journal backup", format!("type {other}")),
    }
    let backups: Vec<String> =
        superblock.s_backup_bgs.iter().filter(|group| group.get() != 0).map(ToString::to_string).collect();
    fields.add_if(!backups.is_empty(), "Backup block groups", backups.join(" ") + " ");
}

fn errors(superblock: &Superblock, zone: &TimeZone, fields: &mut Fields) {
    let count = superblock.s_error_count.get();
    fields.add_if(count != 0, "FS Error count", count);
    let sets = [
        (
            &superblock.s_first_error,
            superblock.s_first_error_time_hi,
            [
                "First error time",
                "First error function",
                "First error line #",
                "First error inode #",
                "First error block #",
            ],
        ),
        (
            &superblock.s_last_error,
            superblock.s_last_error_time_hi,
            [
                "Last error time",
                "Last error function",
                "Last error line #",
                "Last error inode #",
                "Last error block #",
            ],
        ),
    ];
    for (record, high, [time, function, line, inode, block]) in sets {
        let seconds = wide(record.time.get(), high);
        if seconds == 0 {
            continue;
        }
        fields.add(time, classic_text(seconds, zone));
        fields.add(function, field_text(&record.function));
        fields.add(line, record.line);
        fields.add_if(record.inode.get() != 0, inode, record.inode);
        fields.add_if(record.block.get() != 0, block, record.block);
    }
}

fn rest(superblock: &Superblock, fields: &mut Fields) {
    let features = superblock.features();
    if features.incompat.contains(Incompat::MMP) {
        fields.add("MMP block number", superblock.s_mmp_block);
        fields.add("MMP update interval", superblock.s_mmp_update_interval);
    }
    let inode = |number: zerocopy::little_endian::U32| number.get();
    if features.ro_compat.contains(RoCompat::QUOTA) {
        let (user, group) = (inode(superblock.s_usr_quota_inum), inode(superblock.s_grp_quota_inum));
        let project = inode(superblock.s_prj_quota_inum);
        fields.add_if(user != 0, "User quota inode", user);
        fields.add_if(group != 0, "Group quota inode", group);
        fields.add_if(project != 0, "Project quota inode", project);
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        let kind = if superblock.s_checksum_type == 1 { "crc32c" } else { "unknown" };
        fields.add("Checksum type", kind);
        fields.add("Checksum", format!("0x{:08x}", superblock.s_checksum.get()));
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        fields.add("Checksum seed", format!("0x{:08x}", superblock.s_checksum_seed.get()));
    }
    let orphan = inode(superblock.s_orphan_file_inum);
    fields.add_if(features.compat.contains(Compat::ORPHAN_FILE), "Orphan file inode", orphan);
    if features.incompat.contains(Incompat::CASEFOLD) {
        let encoding = match superblock.s_encoding.get() {
            1 => "utf8-12.1".to_owned(),
            other => format!("unknown ({other})"),
        };
        fields.add("Character encoding", encoding);
    }
}

#[derive(Serialize)]
struct FeatureList {
    features: Vec<String>,
    #[serde(skip)]
    title: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    journal: Vec<&'static str>,
}

impl Report for FeatureList {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "{}", self.title)?;
        self.features.iter().try_for_each(|name| write!(to, " {name}"))?;
        writeln!(to)?;
        if !self.journal.is_empty() {
            writeln!(to, " {}", self.journal.join(" "))?;
        }
        Ok(())
    }
}

/// `features`, without arguments: changing them is writing.
pub fn features(call: &mut Call<'_>) -> Outcome {
    if !call.words.is_empty() {
        return Err(call.refuse("Filesystem opened read/only"));
    }
    let found = call.open()?.image.superblock().features();
    let features = found.iter().map(|feature: Feature| feature.to_string()).collect();
    Ok(Answer::of(FeatureList { features, title: "Filesystem features:", journal: Vec::new() }))
}

/// `supported_features`: those that ext4kit reads. The journal's follow.
pub fn supported_features(call: &mut Call<'_>) -> Outcome {
    call.words(0, 0)?;
    let readable = |feature: Feature| match feature {
        Feature::Incompat(bit) => ext4kit_format::image::KNOWN_INCOMPAT.contains(bit),
        Feature::RoCompat(bit) => ext4kit_format::image::WRITABLE_RO_COMPAT.contains(bit),
        // These two were given up long ago, and mean nothing to anybody.
        Feature::Compat(bit) => !Compat::LAZY_BG.union(Compat::EXCLUDE_BITMAP).contains(bit),
    };
    let mut features: Vec<String> = Vec::new();
    for (_, feature) in NAMES.iter().filter(|(_, feature)| readable(*feature)) {
        let name = feature.to_string();
        if !features.contains(&name) {
            features.push(name);
        }
    }
    let journal = vec![
        "journal_checksum",
        "journal_incompat_revoke",
        "journal_64bit",
        "journal_async_commit",
        "journal_checksum_v2",
        "journal_checksum_v3",
        "fast_commit",
    ];
    Ok(Answer::of(FeatureList { features, title: "Supported features:", journal }))
}
