//! What `tcx prune` removes: the oldest rows, and what no row needs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;

use support::{fill_resnet, json, open, resnet, tcx, workplace};

#[test]
fn the_oldest_rows_of_all_modules_go_until_the_rest_is_small_enough() {
    let dir = workplace();
    let most = json(dir.path(), &["ls", "cache"])["bytes"].as_u64().unwrap() - 1;
    let pruned = json(dir.path(), &["prune", "cache", "--max-size", &most.to_string(), "--yes"]);
    assert!(pruned["bytes_after"].as_u64().unwrap() <= most, "{pruned:#}");
    let rows: Vec<u64> = json(dir.path(), &["ls", "cache"])["modules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|module| module["rows"].as_u64().unwrap())
        .collect();
    assert_eq!(rows[1], 1000, "the module that was filled last is left alone");
    assert!(rows[0] < 3);
    let all = json(dir.path(), &["prune", "cache", "--older-than", "0s", "--yes"]);
    let of_resnet = all["modules"].as_array().unwrap().iter().find(|own| own["module"] == "resnet50_v1");
    assert_eq!(of_resnet.unwrap()["rows"], 1000);
    assert_eq!(json(dir.path(), &["stats", "cache"])["rows"], 0);
}

/// The bytes of a cache, and its rows by module.
fn size_and_rows(dir: &Path) -> (u64, Vec<u64>) {
    let listed = json(dir, &["ls", "cache"]);
    let rows = listed["modules"].as_array().unwrap().iter().map(|module| module["rows"].as_u64().unwrap());
    (listed["bytes"].as_u64().unwrap(), rows.collect())
}

#[test]
fn a_prune_leaves_what_fits_of_the_last_segment() {
    let dir = workplace();
    let (bytes, _) = size_and_rows(dir.path());
    for percent in [80, 55] {
        let most = bytes * percent / 100;
        let arguments = ["prune", "cache", "--max-size", &most.to_string()];
        let planned = json(dir.path(), &[&arguments[..], &["--dry-run"]].concat());
        let (before, rows_before) = size_and_rows(dir.path());
        let pruned = json(dir.path(), &[&arguments[..], &["--yes"]].concat());
        let (left, rows) = size_and_rows(dir.path());
        assert!(left <= most && left > most / 10 * 8, "{percent} %: {left} of {most}, {pruned:#}");
        assert_eq!(pruned["bytes_after"], left);
        let removed = |of: &serde_json::Value| {
            of["modules"].as_array().unwrap().iter().map(|own| own["rows"].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(removed(&pruned), removed(&planned), "what was shown is what is done");
        // A byte or two may be too much for the estimate: then a few rows more go.
        let gone = rows_before.iter().sum::<u64>() - rows.iter().sum::<u64>();
        assert!((removed(&planned)..removed(&planned) + 100).contains(&gone), "{gone}: {planned:#}");
        assert_eq!(planned["modules"].as_array().unwrap().last().unwrap()["rewritten"], 1, "{planned:#}");
        assert!(before > most);
    }
    let (_, rows) = size_and_rows(dir.path());
    assert!(rows[1] > 100 && rows[1] < 1000, "{rows:?}");
    let kept = json(dir.path(), &["show", "cache", "resnet50_v1", "0"]);
    assert_eq!(kept["rows"][0]["outputs"][0]["values"], serde_json::json!([1.0, -2.0, "NaN"]));
    assert_eq!(tcx(dir.path(), &["verify", "cache"]).status.code(), Some(0));
    let again = json(dir.path(), &["prune", "cache", "--max-size", &bytes.to_string(), "--yes"]);
    assert_eq!(again["modules"], serde_json::json!([]), "nothing more goes");
}

#[test]
fn no_more_rows_go_than_were_shown() {
    for percent in [99, 81, 80, 60, 41, 20] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("cache"), resnet());
        for first in 0..5 {
            fill_resnet(&store, first * 300..first * 300 + 300);
        }
        drop(store);
        let (bytes, before) = size_and_rows(dir.path());
        let most = (bytes * percent / 100).to_string();
        let arguments = ["prune", "cache", "--max-size", &most];
        let planned = json(dir.path(), &[&arguments[..], &["--dry-run"]].concat());
        json(dir.path(), &[&arguments[..], &["--yes"]].concat());
        let (left, after) = size_and_rows(dir.path());
        let planned = planned["modules"][0]["rows"].as_u64().unwrap();
        // A byte or two may be too much for the estimate.
        let gone = before[0] - after[0];
        assert!(
            (planned..planned + 30).contains(&gone),
            "{percent} %: {planned} rows were to go, {gone} went"
        );
        assert!(left <= bytes * percent / 100, "{percent} %: {left} of {bytes} bytes are left");
    }
}

/// A cache whose index has entries of rows that were removed: two of three thousand rows stay.
fn with_stale_index() -> (tempfile::TempDir, u64) {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let store = open(&cache, resnet());
    for ids in [0..1000, 1000..2000, 2000..3000] {
        fill_resnet(&store, ids);
    }
    drop(store);
    let store = open(&cache, resnet());
    store.make_room(1).unwrap();
    drop(store);
    let stats = json(dir.path(), &["stats", "cache"]);
    let index = stats["modules"][0]["run_bytes"].as_u64().unwrap();
    assert!(index > 3000 * 17, "{stats:#}");
    (dir, index)
}

#[test]
fn a_prune_removes_what_no_row_needs_of_the_index_before_any_row() {
    let (dir, index) = with_stale_index();
    let (bytes, rows) = size_and_rows(dir.path());
    let stale = index / 3;
    let most = (bytes - stale + 1000).to_string();
    let planned = json(dir.path(), &["prune", "cache", "--max-size", &most, "--dry-run"]);
    let pruned = json(dir.path(), &["prune", "cache", "--max-size", &most, "--yes"]);
    assert_eq!(planned["modules"], pruned["modules"]);
    let (left, rows_left) = size_and_rows(dir.path());
    assert_eq!((rows_left, rows), (vec![2000], vec![2000]), "{pruned:#}");
    assert!(left < bytes - stale + 1000, "{pruned:#}");
    let module = &pruned["modules"][0];
    assert_eq!((&module["rows"], &module["segments"]), (&0.into(), &0.into()));
    // A line or two of the index is not foreseen.
    for (said, is) in [(&module["index_bytes"], bytes - left), (&planned["bytes_after"], left)] {
        assert!(said.as_u64().unwrap().abs_diff(is) < 256, "{said}, {is}: {pruned:#}");
    }
    let again = json(dir.path(), &["prune", "cache", "--max-size", &most, "--yes"]);
    assert_eq!(again["modules"], serde_json::json!([]), "nothing more goes");
    assert_eq!(tcx(dir.path(), &["verify", "cache"]).status.code(), Some(0));
}

#[test]
fn a_prune_with_a_stale_index_leaves_what_fits() {
    let (dir, index) = with_stale_index();
    let (bytes, _) = size_and_rows(dir.path());
    let most = (bytes - index / 3) * 3 / 4;
    let pruned = json(dir.path(), &["prune", "cache", "--max-size", &most.to_string(), "--yes"]);
    let (left, rows) = size_and_rows(dir.path());
    assert!(left <= most && left > most / 10 * 9, "{left} of {most}, {pruned:#}");
    assert!((1300..1600).contains(&rows[0]), "{rows:?}");
    let output = tcx(dir.path(), &["prune", "cache", "--older-than", "1d"]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("nothing to remove"));
}

#[test]
fn a_prune_that_ends_far_below_the_size_says_so_first() {
    let dir = workplace();
    // Of a segment of two rows, most is no row.
    let bytes = json(dir.path(), &["ls", "cache"])["modules"][0]["bytes"].as_u64().unwrap();
    let most = (bytes - 300).to_string();
    for how in ["--dry-run", "--yes"] {
        let output = tcx(dir.path(), &["prune", "cache", "clip_v1", "--max-size", &most, how]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("below --max-size: no row of the segment seg-"), "{said}");
    }
}
