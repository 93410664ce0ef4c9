//! Filling filesystems from sources that no disk has, and building directories in one go.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use ext4kit_format::InodeNumber;
use ext4kit_format::create::InodeCount;
use ext4kit_format::disk::dirent::{FileType, is_dot};
use ext4kit_format::disk::inode::{Inode, InodeFlags, Timestamp};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::populate::{
    Entry, Identity, Kind, Metadata, PopulateOptions, ReadAhead, Source, populate,
};
use ext4kit_format::tree::{dir, file, inode, map, namespace};
use ext4kit_format::txn::Overlay;
use ext4kit_testkit::filesystem::{TIME, commit_clean, filesystem, fresh, parameters, put_in_root};
use proptest::prelude::*;

const OPTIONS: PopulateOptions =
    PopulateOptions { created: TIME, latest: None, keep_root_owner: false, keep_root_mode: false };

/// Entries written down in a test; the contents of a file are a byte that follows from the place, within stretches.
#[derive(Clone, Default)]
struct Script {
    entries: Vec<(Entry, Vec<Range<u64>>)>,
    next: usize,
}

/// All of a file is data.
const ALL: &[Range<u64>] = std::slice::from_ref(&(0..u64::MAX));

fn byte_at(at: u64) -> u8 {
    u8::try_from(at % 251).unwrap() + 1
}

impl Script {
    fn new() -> Self {
        let mut script = Self::default();
        script.add("", Kind::Directory);
        script
    }

    fn add(&mut self, path: &str, kind: Kind) -> &mut Entry {
        let times = Metadata { accessed: TIME, changed: TIME, modified: TIME, ..Metadata::default() };
        let entry = Entry {
            path: path.as_bytes().to_vec(),
            kind,
            metadata: Metadata { permissions: 0o755, ..times },
            attributes: Vec::new(),
            identity: None,
        };
        self.entries.push((entry, Vec::new()));
        &mut self.entries.last_mut().unwrap().0
    }

    fn add_file(&mut self, path: &str, size: u64, data: &[Range<u64>]) -> &mut Entry {
        self.add(path, Kind::Regular(size));
        let (entry, stretches) = self.entries.last_mut().unwrap();
        stretches.extend(data.iter().cloned());
        entry
    }
}

impl Source for Script {
    fn next_entry(&mut self) -> Result<Option<Entry>> {
        self.next += 1;
        Ok(self.entries.get(self.next - 1).map(|(entry, _)| entry.clone()))
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<Range<u64>>> {
        let stretches = &self.entries[self.next - 1].1;
        let found = stretches.iter().find(|data| data.end > offset);
        let Kind::Regular(size) = self.entries[self.next - 1].0.kind else { return Ok(None) };
        Ok(found.map(|data| data.start.max(offset)..data.end.min(size)).filter(|data| data.start < data.end))
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (entry, stretches) = &self.entries[self.next - 1];
        let Kind::Regular(size) = entry.kind else { return Ok(()) };
        for data in stretches {
            for at in data.start.max(offset)..data.end.min(size).min(offset + buffer.len() as u64) {
                buffer[usize::try_from(at - offset).unwrap()] = byte_at(at);
            }
        }
        Ok(())
    }
}

fn resolve(txn: &Overlay, path: &str) -> Inode {
    namespace::resolve(txn, InodeNumber::ROOT, path.as_bytes()).unwrap()
}

/// Field case: a program kept 32 bits of the host's inode numbers, and took different files for one, or one for
/// several.
#[test]
fn hard_links_are_told_by_whole_inode_numbers() {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, ""));
    let mut script = Script::new();
    script.add("dir", Kind::Directory);
    let identity = Identity { device: 1, inode: 0x2_9165_1b06 };
    for (path, identity) in [
        ("a", identity),
        ("b", identity),
        ("dir/c", identity),
        ("other", Identity { inode: 0x9165_1b06, ..identity }),
        ("device", Identity { device: 2, ..identity }),
    ] {
        script.add_file(path, 3000, ALL).identity = Some(identity);
    }
    let summary = populate(&mut txn, &mut script, &OPTIONS).unwrap();
    assert_eq!((summary.inodes, summary.hard_links), (4, 2));
    let [a, b, c] = ["a", "b", "dir/c"].map(|path| resolve(&txn, path));
    assert_eq!((a.number(), a.number()), (b.number(), c.number()));
    assert_eq!((a.view().links(), a.view().blocks_raw()), (3, 6));
    assert_eq!(resolve(&txn, "other").view().links(), 1);
    assert_ne!(resolve(&txn, "other").number(), resolve(&txn, "device").number());
    commit_clean(&store, &mut txn);
}

/// Field case: contents beyond 2 GiB were refused, or written where their low 31 bits said.
#[test]
fn large_files_keep_their_contents_and_their_holes() {
    const MIB: u64 = 1 << 20;
    let data = [MIB - 5..MIB + 9000, 2047 * MIB..2049 * MIB, 3000 * MIB..3001 * MIB];
    for (block_size, features) in
        [(1024, ""), (4096, ""), (4096, "^extent ^64bit"), (1024, "bigalloc ^resize_inode")]
    {
        let mut parameters = parameters(65_536, block_size, features);
        parameters.inodes = InodeCount::AtLeast(256);
        let (store, mut txn) = filesystem(&parameters);
        let mut script = Script::new();
        script.add_file("large", 3072 * MIB + 1, &data);
        populate(&mut txn, &mut script, &OPTIONS).unwrap();
        let large = resolve(&txn, "large");
        assert_eq!(large.view().size(), 3072 * MIB + 1);
        for at in data.iter().flat_map(|data| [data.start, data.end - 1, data.start.midpoint(data.end)]) {
            let mut bytes = [0; 3];
            file::read(&txn, &large, at - 1, &mut bytes).unwrap();
            let is_data = |at: u64| data.iter().any(|data| data.contains(&at));
            let wanted = [at - 1, at, at + 1].map(|at| if is_data(at) { byte_at(at) } else { 0 });
            assert_eq!(bytes, wanted, "{at} with blocks of {block_size}");
        }
        let mapped: u64 = map::segments(&txn, &large, ext4kit_format::LogicalBlock(0))
            .map(|found| found.unwrap().length)
            .sum();
        let held = mapped * u64::from(block_size);
        assert!((3 * MIB..3 * MIB + 4 * 16_384).contains(&held), "{held} bytes are mapped");
        if features.is_empty() {
            let extents = map::segments(&txn, &large, ext4kit_format::LogicalBlock(0)).count();
            assert_eq!(extents, 3, "one for each stretch");
        }
        commit_clean(&store, &mut txn);
    }
}

#[test]
fn times_beyond_32_bits_are_kept_and_clamped_where_asked() {
    let new = Timestamp { seconds: 2_208_988_800, nanoseconds: 123_456_789 };
    let old = Timestamp { seconds: -315_619_200, nanoseconds: 0 };
    for latest in [None, Some(TIME)] {
        let (store, mut txn) = filesystem(&parameters(4000, 1024, ""));
        let mut script = Script::new();
        for (path, modified) in [("new", new), ("old", old)] {
            let entry = script.add_file(path, 0, &[]);
            entry.metadata.modified = modified;
            entry.metadata.accessed = Timestamp { seconds: 5, nanoseconds: 5 };
        }
        populate(&mut txn, &mut script, &PopulateOptions { latest, ..OPTIONS }).unwrap();
        let times = |path| {
            let inode = resolve(&txn, path);
            (inode.view().modification_time(), inode.view().access_time(), inode.view().creation_time())
        };
        let accessed = Timestamp { seconds: 5, nanoseconds: 5 };
        if latest.is_none() {
            assert_eq!(times("new"), (new, accessed, Some(TIME)));
            let inode = resolve(&txn, "new");
            assert_eq!(inode.view().head().i_mtime.get(), 0x83aa_7e80);
            assert_eq!(times("old"), (old, accessed, Some(TIME)));
        } else {
            assert_eq!(times("new"), (TIME, TIME, Some(TIME)));
            assert_eq!(times("old"), (old, old, Some(TIME)));
        }
        commit_clean(&store, &mut txn);
    }
}

#[test]
fn many_subdirectories_and_many_links_meet_the_formats_limits() {
    let mut parameters = parameters(200_000, 1024, "");
    parameters.inodes = InodeCount::AtLeast(70_100);
    let (store, mut txn) = filesystem(&parameters);
    let mut script = Script::new();
    script.add("many", Kind::Directory);
    for number in 0..65_500 {
        script.add(&format!("many/{number}"), Kind::Directory);
    }
    for number in 0..65_000 {
        script.add_file(&format!("link{number}"), 0, &[]).identity = Some(Identity { device: 0, inode: 1 });
    }
    let mut one_more = script.clone();
    populate(&mut txn, &mut script, &OPTIONS).unwrap();
    assert_eq!(resolve(&txn, "many").view().links(), 1);
    assert_eq!(resolve(&txn, "link7").view().links(), 65_000);
    commit_clean(&store, &mut txn);

    one_more.add_file("one-more", 0, &[]).identity = Some(Identity { device: 0, inode: 1 });
    let (_, mut txn) = filesystem(&parameters);
    let error = populate(&mut txn, &mut one_more, &OPTIONS).unwrap_err();
    assert!(
        matches!(&error, Error::InSource { path, source }
        if path == "/one-more" && matches!(**source, Error::TooManyLinks(_))),
        "{error}"
    );
}

#[test]
fn what_goes_wrong_is_told_by_its_path() {
    let attempt = |path: &str, change: &dyn Fn(&mut Script)| {
        let (_, mut txn) = filesystem(&parameters(4000, 1024, ""));
        let mut script = Script::new();
        script.add("dir", Kind::Directory);
        change(&mut script);
        let error = populate(&mut txn, &mut script, &OPTIONS).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{path}: ")), "{error}");
    };
    attempt("/dir/x", &|script| _ = script.add_file("dir/x", 8 << 20, ALL));
    attempt("/dir/x", &|script| _ = script.add("dir/x", Kind::CharacterDevice(5000, 1)));
    attempt("/dir/x", &|script| _ = script.add("dir/x", Kind::Symlink(vec![b'x'; 2000])));
    attempt("/lost+found", &|script| _ = script.add("lost+found", Kind::Fifo));
    attempt("/nowhere/x", &|script| _ = script.add("nowhere/x", Kind::Fifo));
    attempt("/dir", &|script| {
        script.add("dir/x", Kind::Fifo);
        script.add("dir/x", Kind::Fifo);
    });
    attempt("/dir/x", &|script| {
        script.add("dir/x", Kind::Fifo).attributes = vec![(b"user.x".to_vec(), vec![1; 2000])];
    });
    attempt("/dir/x", &|script| {
        script.add("dir/x", Kind::Fifo).attributes = vec![(b"unheard.of".to_vec(), vec![1])];
    });
}

#[test]
fn lost_and_found_takes_what_the_source_has_in_it() {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, ""));
    let mut script = Script::new();
    script.add("lost+found", Kind::Directory).metadata.permissions = 0o711;
    script.add_file("lost+found/kept", 5, ALL);
    populate(&mut txn, &mut script, &OPTIONS).unwrap();
    let lost = resolve(&txn, "lost+found");
    assert_eq!((lost.number().get(), lost.view().mode(), lost.view().size()), (11, 0o040_711, 12 << 10));
    assert_eq!(resolve(&txn, "lost+found/kept").view().size(), 5);
    commit_clean(&store, &mut txn);
}

fn listing(txn: &Overlay, dir: &Inode) -> BTreeMap<Vec<u8>, u32> {
    let mut found = BTreeMap::new();
    dir::for_each(txn, dir, &mut |entry| {
        if !is_dot(entry.name) {
            assert!(found.insert(entry.name.to_vec(), entry.found.inode.get()).is_none());
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

fn build(names: &[Vec<u8>], features: &str, later: usize) {
    let mut parameters = parameters(60_000, 1024, features);
    parameters.inodes = InodeCount::AtLeast(256);
    let (store, mut txn) = filesystem(&parameters);
    let target = fresh(&mut txn, 0o100_644);
    let mut dir = fresh(&mut txn, 0o040_755);
    let named = |name: &Vec<u8>| dir::Name {
        name: name.clone(),
        inode: target.number(),
        file_type: FileType::REGULAR,
    };
    let mut list: Vec<_> = names.iter().map(named).collect();
    dir::build(&mut txn, &mut dir, InodeNumber::ROOT, (&mut list, true)).unwrap();
    let mut model: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), target.number().get())).collect();
    for number in 0..later {
        let name = format!("inserted-after-it-was-built-{number}").into_bytes();
        dir::insert(&mut txn, &mut dir, &name, target.number(), FileType::REGULAR).unwrap();
        model.insert(name, target.number().get());
    }
    assert_eq!(listing(&txn, &dir), model);
    for name in model.keys().step_by(7) {
        assert!(dir::lookup(&txn, &dir, name).unwrap().is_some());
    }
    assert_eq!(dir::parent(&txn, &dir).unwrap(), InodeNumber::ROOT);
    put_in_root(&mut txn, "dir", &dir);
    let mut target = target;
    // e2fsck counts no further than this.
    target.set_links(u16::try_from(model.len() + 1).unwrap());
    put_in_root(&mut txn, "target", &target);
    commit_clean(&store, &mut txn);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn built_directories_hold_their_names(
        names in prop::collection::btree_set(prop::collection::vec(prop_oneof![b'a'..=b'z', 128u8..], 1..60), 0..400),
        form in 0..5usize,
        later in 0..40usize,
    ) {
        let features = ["", "^dir_index", "^metadata_csum", "inline_data", "large_dir ^filetype"][form];
        build(&names.into_iter().collect::<Vec<_>>(), features, later);
    }
}

#[test]
fn built_trees_have_as_many_levels_as_they_need() {
    for (count, features) in [(20_000, ""), (60_000, "large_dir")] {
        let names: Vec<_> = (0..count).map(|number| format!("{number:0>40}").into_bytes()).collect();
        build(&names, features, 50);
    }
}

#[test]
fn the_order_of_names_makes_no_difference() {
    let names: Vec<_> = (0..3000).map(|number| format!("file{number}").into_bytes()).collect();
    let built = |names: Vec<Vec<u8>>| {
        let (_, mut txn) = filesystem(&parameters(8000, 1024, ""));
        let mut dir = fresh(&mut txn, 0o040_755);
        let inode = InodeNumber::new(12).unwrap();
        let named = |name| dir::Name { name, inode, file_type: FileType::REGULAR };
        let mut list: Vec<_> = names.into_iter().map(named).collect();
        dir::build(&mut txn, &mut dir, InodeNumber::ROOT, (&mut list, true)).unwrap();
        assert!(dir.view().flags().contains(InodeFlags::INDEX));
        inode::write_over(&mut txn, &dir).unwrap();
        let blocks = txn.seal().unwrap();
        blocks.into_iter().map(|at| (at, txn.change(at).unwrap().unwrap().after)).collect::<Vec<_>>()
    };
    let reversed = names.iter().rev().cloned().collect();
    assert!(built(names) == built(reversed));
}

/// Every block of the filesystem that a source fills.
fn filled(source: &mut dyn Source) -> Vec<u8> {
    let (store, mut txn) = filesystem(&parameters(8000, 1024, ""));
    populate(&mut txn, source, &OPTIONS).unwrap();
    commit_clean(&store, &mut txn);
    store.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn reading_ahead_gives_the_same_bytes(sizes in prop::collection::vec((0u64..40_000, 0u64..30_000, 0u64..9000), 1..60)) {
        let mut script = Script::new();
        for (number, (size, start, length)) in sizes.into_iter().enumerate() {
            let data = [start..start + length, start + length + 100..start + length + 1500];
            script.add_file(&format!("file{number}"), size, &data);
        }
        let plain = filled(&mut script.clone());
        prop_assert!(plain == filled(&mut ReadAhead::new(script).unwrap()));
    }
}

#[test]
fn a_reader_that_fails_or_is_left_alone_ends() {
    struct Failing(Script);
    impl Source for Failing {
        fn next_entry(&mut self) -> Result<Option<Entry>> {
            self.0.next_entry()
        }
        fn next_data(&mut self, offset: u64) -> Result<Option<Range<u64>>> {
            if offset < 5000 { self.0.next_data(offset) } else { Err(Error::NotFound("a disk".to_owned())) }
        }
        fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.0.read(offset, buffer)
        }
    }
    let mut script = Script::new();
    script.add_file("file", 9000, std::slice::from_ref(&(0..5000)));
    let (_, mut txn) = filesystem(&parameters(8000, 1024, ""));
    let mut source = ReadAhead::new(Failing(script.clone())).unwrap();
    let error = populate(&mut txn, &mut source, &OPTIONS).unwrap_err();
    assert_eq!(error.to_string(), "/file: a disk: not found");
    for _ in 0..10_000 {
        script.add_file("file", 9000, ALL);
    }
    drop(ReadAhead::new(script).unwrap());
}
