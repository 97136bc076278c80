//! Damaged files cost a miss and a count, never a wrong row and never a panic.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use tcx_engine_tests::damage::{Campaign, Damage, Effect, overwrite};
use tcx_engine_tests::{Dice, check, files, get_or_compute, lookup, open, options, row, spec};
use tcx_store::{Compression, ErrorKind, Inspection, Keys, LookupOptions, Store};

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &IDS);
    store.flush().unwrap();
    dir
}

/// What is found is right.
fn found(dir: &Path) -> usize {
    let store = open(dir);
    let found: Vec<&str> = IDS.into_iter().filter(|id| lookup(&store, &[id]).missing() == 0).collect();
    check(&lookup(&store, &found), &found);
    if found.len() < IDS.len() {
        assert_eq!(store.stats().damaged_segments, 1);
    }
    found.len()
}

#[test]
fn a_changed_byte_anywhere_in_a_segment_is_a_miss_or_has_no_effect() {
    let dir = filled();
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let bytes = fs::read(segment).unwrap();
    let mut missed = 0;
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        overwrite(segment, &damaged);
        // A small segment is one checksum block and a tail, all of which every row needs.
        let found = found(dir.path());
        assert!(found == 0 || found == IDS.len(), "byte {at}");
        missed += usize::from(found == 0);
    }
    assert!(missed > bytes.len() / 7 * 9 / 10, "checksums cover every byte: {missed}");
    overwrite(segment, &bytes);
    assert_eq!(found(dir.path()), IDS.len());
}

/// A cache of one segment in which the vector of row 1500 is damaged, and its ids.
fn with_a_damaged_vector() -> (tempfile::TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..3000).map(|i| format!("id{i}")).collect();
    let store = open(dir.path());
    get_or_compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    store.flush().unwrap();
    drop(store);
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    damage_vector(segment, &ids[1500]);
    (dir, ids)
}

#[test]
fn a_damaged_column_costs_nothing_to_who_reads_others() {
    let (dir, ids) = with_a_damaged_vector();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let store = open(dir.path());
    let keys = || Keys::text(&ids, 0).unwrap();
    let rows = store
        .lookup_with(keys(), LookupOptions { leaves: Some(&[1, 2].into()), ..LookupOptions::default() })
        .unwrap();
    assert_eq!((rows.missing(), store.stats().damaged_segments), (0, 0));
    for (position, id) in ids.iter().enumerate() {
        let (_, number, caption) = row(id);
        assert_eq!(rows.bytes(1, position), number.to_le_bytes());
        assert_eq!(rows.text(2, position).unwrap(), caption);
    }
    let whole = store.lookup(keys()).unwrap();
    assert!(whole.all_missing_positions().any(|position| position == 1500));
    // From then on the segment is out of service.
    assert_eq!(store.stats().damaged_segments, 1);
    assert_eq!(store.lookup(keys()).unwrap().missing(), ids.len());
}

#[test]
fn who_goes_through_some_columns_is_told_of_no_damage_in_others() {
    let (dir, ids) = with_a_damaged_vector();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let inspection = Inspection::open(files(dir.path(), "seg-")[0].parent().unwrap()).unwrap();
    let sound = |leaves: &[usize]| inspection.rows_of(leaves.to_vec()).flatten().count();
    assert!(sound(&[0, 1, 2]) < ids.len());
    assert_eq!((sound(&[]), sound(&[2, 1])), (ids.len(), ids.len()));
    for found in inspection.rows_of(vec![2, 1]) {
        let found = found.unwrap();
        let (_, number, caption) = row(std::str::from_utf8(found.key).unwrap());
        assert_eq!(found.leaf(0), Some(caption.as_bytes()));
        assert_eq!(found.leaf(1), Some(number.to_le_bytes().as_slice()));
    }
}

/// Changes a byte of the vector of an id.
fn damage_vector(segment: &Path, id: &str) {
    let mut bytes = fs::read(segment).unwrap();
    let (vector, ..) = row(id);
    let at = bytes.windows(vector.len()).position(|window| window == vector).unwrap();
    bytes[at] ^= 1;
    overwrite(segment, &bytes);
}

#[test]
fn a_cut_segment_is_a_miss() {
    let dir = filled();
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let bytes = fs::read(segment).unwrap();
    for len in (0..bytes.len()).step_by(41) {
        overwrite(segment, &bytes[..len]);
        assert_eq!(found(dir.path()), 0, "cut to {len}");
    }
}

#[test]
fn a_damaged_run_is_made_again() {
    let dir = filled();
    let [run] = &files(dir.path(), "run-")[..] else { panic!("one run") };
    let (run, bytes) = (run.clone(), fs::read(run).unwrap());
    for at in (0..bytes.len()).step_by(5) {
        for other in files(dir.path(), "run-") {
            fs::remove_file(other).unwrap();
        }
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x80;
        fs::write(&run, &damaged).unwrap();
        assert_eq!(found(dir.path()), IDS.len(), "byte {at}");
    }
}

#[test]
fn a_segment_of_another_cache_is_not_served() {
    let (dir, other) = (filled(), tempfile::tempdir().unwrap());
    let store = open(other.path());
    get_or_compute(&store, &["x"]);
    store.flush().unwrap();
    for file in files(other.path(), "seg-").into_iter().chain(files(other.path(), "run-")) {
        fs::copy(&file, dir.path().join("m_v1").join(file.file_name().unwrap())).unwrap();
    }
    let store = open(dir.path());
    assert_eq!(lookup(&store, &["x", "a"]).distinct_missing_positions(), [0]);
    assert_eq!(store.stats().damaged_segments, 0, "another instance is no damage");
}

#[test]
fn a_damaged_identity_closes_the_cache_with_a_clear_error() {
    let dir = filled();
    let [change] = &files(dir.path(), "change-")[..] else { panic!("one change") };
    let mut bytes = fs::read(change).unwrap();
    bytes[60] ^= 1;
    overwrite(change, &bytes);
    let error = Store::open(dir.path(), spec("224"), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("change-00000000000000000000: its checksum is wrong"), "{error}");
}

#[test]
fn a_read_only_directory_is_read_without_writing_to_it() {
    let dir = filled();
    for run in files(dir.path(), "run-") {
        fs::remove_file(run).unwrap();
    }
    let folder = dir.path().join("m_v1");
    let before = files(dir.path(), "").len();
    let writable = fs::metadata(&folder).unwrap().permissions();
    let mut read_only = writable.clone();
    read_only.set_readonly(true);
    fs::set_permissions(&folder, read_only).unwrap();
    let as_root = fs::write(folder.join("probe"), "").is_ok();
    assert_eq!(found(dir.path()), IDS.len());
    if as_root {
        eprintln!("the superuser can write everywhere: that nothing was written is not shown");
    } else {
        assert_eq!(files(dir.path(), "").len(), before);
    }
    fs::set_permissions(&folder, writable).unwrap();
}

/// A cache with files of every kind.
fn campaign(compression: Compression) -> Campaign {
    let campaign = Campaign::new(150, 40, compression);
    for (prefix, least) in [("seg-", 6), ("change-", 25), ("merged-", 1), ("run-", 1)] {
        assert!(campaign.count(prefix) >= least, "{} files {prefix}", campaign.count(prefix));
    }
    campaign
}

/// What damage has done to files of a kind, by the kind and whether it is the identity: nothing, misses, closed the cache.
type Effects = HashMap<(String, bool), [usize; 3]>;

fn inflict(campaign: &Campaign, file: usize, damage: Damage, dice: &mut Dice, effects: &mut Effects) {
    let (effect, findings) = campaign.damage(file, damage, dice);
    findings.assert_none();
    let kind = campaign.name(file).split('-').next().unwrap().to_owned();
    let effects = effects.entry((kind, campaign.name(file).ends_with("-00000000000000000000"))).or_default();
    effects[match effect {
        Effect::None => 0,
        Effect::Misses(_) => 1,
        Effect::Closed => 2,
    }] += 1;
}

fn check_effects(effects: &Effects) {
    println!("{effects:?}");
    let of = |kind: &str, is_first| effects[&(kind.to_owned(), is_first)];
    assert_eq!(of("change", true)[..2], [0, 0], "nothing is served without an identity");
    assert!(of("seg", false)[1] > 0 && of("change", false)[1] > 0, "it is noticed at all");
    assert_eq!(of("merged", false)[1..], [0, 0], "the changes themselves are there");
    assert_eq!(of("run", false)[1..], [0, 0], "runs are made again");
}

#[test]
fn ten_thousand_flipped_bits_cost_misses_no_wrong_row_and_bring_no_dead_row_back() {
    let (campaign, mut dice, mut effects) = (campaign(Compression::None), Dice(0x5eed), Effects::new());
    campaign.look_undamaged(&mut dice).assert_none();
    // Every byte of the first header of a file of each kind, then anywhere.
    for prefix in ["change-00000000000000000000", "change-", "merged-", "seg-", "run-"] {
        let file = (0..campaign.files()).rev().find(|&file| campaign.name(file).starts_with(prefix)).unwrap();
        for at in 0..campaign.len(file).min(64) {
            let damage = Damage::Flip { at, bit: dice.roll(8) as u8 };
            inflict(&campaign, file, damage, &mut dice, &mut effects);
        }
    }
    for _ in 0..10_000 {
        let file = dice.roll(campaign.files());
        let damage = Damage::flip_anywhere(&mut dice, campaign.len(file));
        inflict(&campaign, file, damage, &mut dice, &mut effects);
    }
    campaign.look_undamaged(&mut dice).assert_none();
    check_effects(&effects);
}

#[test]
fn a_thousand_cuts_cost_misses_no_wrong_row_and_bring_no_dead_row_back() {
    let (campaign, mut dice, mut effects) = (campaign(Compression::None), Dice(0xc07), Effects::new());
    for _ in 0..1000 {
        let file = dice.roll(campaign.files());
        let damage = Damage::Cut { len: dice.roll(campaign.len(file)) };
        inflict(&campaign, file, damage, &mut dice, &mut effects);
    }
    campaign.look_undamaged(&mut dice).assert_none();
    check_effects(&effects);
}

#[test]
fn damage_of_compressed_files_costs_misses_no_wrong_row_and_brings_no_dead_row_back() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (campaign, mut dice, mut effects) = (campaign(compression), Dice(0x219), Effects::new());
        for _ in 0..500 {
            let file = dice.roll(campaign.files());
            let damage = Damage::anywhere(&mut dice, campaign.len(file));
            inflict(&campaign, file, damage, &mut dice, &mut effects);
        }
        campaign.look_undamaged(&mut dice).assert_none();
        check_effects(&effects);
    }
}
