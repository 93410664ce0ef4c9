//! Extent nodes: kernel bytes, and edits against a vector.

use proptest::prelude::*;

use super::*;

// One tree that a 6.18 kernel wrote: root in the inode, an inner node, a leaf. See testdata/disk/README.md.
const ROOT: &[u8] = include_bytes!("../../../testdata/disk/extent_root.bin");
const INDEX: &[u8] = include_bytes!("../../../testdata/disk/extent_index.bin");
const LEAF: &[u8] = include_bytes!("../../../testdata/disk/extent_leaf.bin");
const SEED: u32 = 0x2d65_d4dc;

fn extent(logical: u32, physical: u64, length: u32, unwritten: bool) -> Extent {
    Extent { logical: LogicalBlock(logical), physical: BlockNumber(physical), length, unwritten }
}

#[test]
fn kernel_tree_reads_and_checks() {
    let root = Node::parse(ROOT).unwrap();
    assert_eq!((root.depth(), root.entries(), root.is_full()), (2, 1, false));
    assert_eq!(root.indexes()[0].child(), BlockNumber(0x232e));
    let index = Node::parse(INDEX).unwrap();
    assert_eq!((index.depth(), index.entries()), (1, 12));
    assert_eq!(index.position(LogicalBlock(0x29f)), Some(0));
    assert_eq!(index.position(LogicalBlock(0x2a0)), Some(1));
    let leaf = Node::parse(LEAF).unwrap();
    assert_eq!(leaf.extents().next(), Some(extent(0, 0x3801, 4, false)));
    assert_eq!(leaf.extents().len(), 84);
    assert!(leaf.is_full());
    for node in [INDEX, LEAF] {
        assert_eq!(verify_checksum(node, SEED), Ok(()));
        assert!(Node::parse(node).unwrap().check_order(0..1 << 32).is_empty());
        assert_eq!(tail_offset(node), Ok(1020));
    }
    assert!(leaf.check_order(0..0x2a0).is_empty());
}

#[test]
fn one_changed_bit_breaks_the_checksum_and_refresh_mends_it() {
    let mut block = LEAF.to_vec();
    block[500] ^= 4;
    assert!(matches!(verify_checksum(&block, SEED), Err(Defect::Checksum { .. })));
    refresh_checksum(&mut block, SEED).unwrap();
    assert_eq!(verify_checksum(&block, SEED), Ok(()));
    assert!(verify_checksum(&block, SEED ^ 1).is_err());
}

#[test]
fn lengths_keep_their_mark() {
    for (length, unwritten, stored) in
        [(32768, false, 0x8000), (1, true, 0x8001), (32767, true, 0xffff), (1, false, 1)]
    {
        let record = ExtentLeaf::new(extent(7, (1 << 48) - 40000, length, unwritten)).unwrap();
        assert_eq!(record.ee_len.get(), stored);
        assert_eq!(record.extent(), extent(7, (1 << 48) - 40000, length, unwritten));
    }
    assert!(ExtentLeaf::new(extent(0, 1, 32768, true)).is_err());
    assert!(ExtentLeaf::new(extent(0, 1, 32769, false)).is_err());
    assert!(ExtentLeaf::new(extent(0, 1, 0, false)).is_err());
    assert!(ExtentLeaf::new(extent(0, 1 << 48, 1, false)).is_err());
    assert!(ExtentLeaf::new(extent(u32::MAX, 1, 1, false)).is_err(), "the last block is 2^32 - 2");
    assert!(ExtentIndex::new(LogicalBlock(0), BlockNumber(1 << 48)).is_err());
    let child = ExtentIndex::new(LogicalBlock(9), BlockNumber(0xffff_1234_5678)).unwrap();
    assert_eq!((child.child(), child.ei_leaf_hi.get()), (BlockNumber(0xffff_1234_5678), 0xffff));
}

#[test]
fn contradicting_headers_are_refused() {
    let damaged = |at: usize, value: u16| {
        let mut block = LEAF.to_vec();
        block[at..at + 2].copy_from_slice(&value.to_le_bytes());
        Node::parse(&block).map(|_| ()).unwrap_err()
    };
    assert_eq!(damaged(0, 0xf30b), Defect::Magic { found: 0xf30b, wanted: 0xf30a });
    let range = |field, value, least, most| Defect::Range { field, value, least, most };
    assert_eq!(damaged(2, 85), range("eh_entries", 85, 0, 84));
    assert_eq!(damaged(4, 85), range("eh_max", 85, 1, 84));
    assert_eq!(damaged(4, 0), range("eh_max", 0, 1, 84));
    assert_eq!(damaged(6, 6), range("eh_depth", 6, 0, 5));
    let mut empty_index = INDEX.to_vec();
    empty_index[2] = 0;
    assert_eq!(Node::parse(&empty_index).map(|_| ()), Err(range("eh_entries", 0, 1, 84)));
    for cut in 0..12 {
        assert!(Node::parse(&LEAF[..cut]).is_err());
    }
    assert!(Node::parse(&ROOT[..24]).is_err());
}

#[test]
fn order_and_overlap_are_found_at_their_slots() {
    let mut bytes = [0; ROOT_SIZE];
    let mut node = NodeMut::create(&mut bytes, 0).unwrap();
    for (at, slot) in [(0, 10), (20, 5), (24, 5), (4, 1)].into_iter().enumerate() {
        node.insert(at, &ExtentLeaf::new(extent(slot.0, 100, slot.1, false)).unwrap()).unwrap();
    }
    let positions = |range| -> Vec<usize> {
        node.view().unwrap().check_order(range).into_iter().map(|found| found.0).collect()
    };
    assert_eq!(positions(0..1000), [2, 3], "24 overlaps 20..25; 4 goes back");
    assert_eq!(positions(1..1000), [0, 2, 3]);
    assert_eq!(positions(0..29), [2, 3]);
    assert_eq!(positions(0..22), [1, 2, 3]);
}

#[test]
fn slots_move_between_nodes() {
    let mut right = vec![0; 1024];
    let half = slot_area(LEAF, 42..84).unwrap();
    NodeMut::create(&mut right, 0).unwrap().append_raw(half).unwrap();
    let mut left = LEAF.to_vec();
    NodeMut::parse(&mut left).unwrap().remove(42..84).unwrap();
    let both: Vec<_> = [&left, &right]
        .into_iter()
        .flat_map(|bytes| Node::parse(bytes).unwrap().extents().collect::<Vec<_>>())
        .collect();
    assert!(both.into_iter().eq(Node::parse(LEAF).unwrap().extents()));
    assert!(NodeMut::parse(&mut right).unwrap().append_raw(&LEAF[12..1020]).is_err(), "42 + 84 > 84");
}

#[test]
fn the_wrong_kind_and_a_full_node_are_refused() {
    let mut block = LEAF.to_vec();
    let mut node = NodeMut::parse(&mut block).unwrap();
    let child = ExtentIndex::new(LogicalBlock(0), BlockNumber(1)).unwrap();
    assert!(matches!(node.replace(0, &child), Err(Defect::Contradiction(_))));
    let leaf = ExtentLeaf::new(extent(0, 1, 1, false)).unwrap();
    assert!(matches!(node.insert(0, &leaf), Err(Defect::Range { field: "eh_entries", .. })));
    assert!(node.replace(84, &leaf).is_err());
    assert!(node.remove(80..85).is_err());
    assert_eq!(block, LEAF);
}

proptest! {
    #[test]
    fn editing_follows_a_vector(steps in prop::collection::vec((0u8..4, 0usize..24, any::<u16>()), 1..80)) {
        let mut bytes = vec![0xaa; 256];
        let mut node = NodeMut::create(&mut bytes, 0).unwrap();
        let mut model: Vec<Extent> = Vec::new();
        for (kind, at, number) in steps {
            let new = extent(u32::from(number), u64::from(number) << 20, u32::from(number % 9) + 1, number % 2 == 1);
            let record = ExtentLeaf::new(new).unwrap();
            match kind {
                0 | 1 => {
                    let fits = at <= model.len() && model.len() < 20;
                    prop_assert_eq!(node.insert(at, &record).is_ok(), fits);
                    if fits { model.insert(at, new); }
                }
                2 => {
                    let end = (at + usize::from(number % 3)).max(at);
                    prop_assert_eq!(node.remove(at..end).is_ok(), end <= model.len());
                    if end <= model.len() { model.drain(at..end); }
                }
                _ => {
                    prop_assert_eq!(node.replace(at, &record).is_ok(), at < model.len());
                    if let Some(slot) = model.get_mut(at) { *slot = new; }
                }
            }
            prop_assert!(node.view().unwrap().extents().eq(model.iter().copied()));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), depth in 0u16..7) {
        if bytes.len() > 8 {
            bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[6..8].copy_from_slice(&depth.to_le_bytes());
            bytes[5] = 0;
            bytes[3] = 0;
        }
        if let Ok(node) = Node::parse(&bytes) {
            node.check_order(0..1 << 32);
            node.position(LogicalBlock(7));
        }
        let _ = verify_checksum(&bytes, 0);
        let _ = refresh_checksum(&mut bytes, 0);
    }
}
