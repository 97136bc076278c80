//! Damaged files cost a miss and a count, never a wrong row and never a panic.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::path::Path;

use tcx_engine_tests::{check, files, get_or_compute, lookup, open};
use tcx_store::ErrorKind;

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &IDS);
    store.flush().unwrap();
    dir
}

fn overwrite(path: &Path, bytes: &[u8]) {
    // Sealed files are read-only: what damages one replaces it.
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
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
    assert_eq!(lookup(&store, &["x", "a"]).missing_positions(), [0]);
    assert_eq!(store.stats().damaged_segments, 0, "another instance is no damage");
}

#[test]
fn a_damaged_identity_closes_the_cache_with_a_clear_error() {
    let dir = filled();
    let [change] = &files(dir.path(), "change-")[..] else { panic!("one change") };
    let mut bytes = fs::read(change).unwrap();
    bytes[60] ^= 1;
    overwrite(change, &bytes);
    let error =
        tcx_store::Store::open(dir.path(), tcx_engine_tests::spec("224"), &tcx_engine_tests::options())
            .unwrap_err();
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
