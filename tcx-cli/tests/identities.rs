//! The folders of identities beside that of their module: every command takes them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use support::{clip, fill_clip, json, tcx, workplace};
use tcx_store::{OnMismatch, Options, Store};

/// A cache with the folder of a module and those of two other identities, each with a row of its own.
fn sweep() -> (tempfile::TempDir, [String; 2]) {
    let dir = workplace();
    let options = Options { on_mismatch: OnMismatch::Separate, ..Options::default() };
    let folders = ["336", "448"].map(|size| {
        let store = Store::open(&dir.path().join("cache"), clip(size), &options).unwrap();
        fill_clip(&store, &[size]);
        clip(size).separate_folder()
    });
    (dir, folders)
}

#[test]
fn ls_groups_the_identities_of_a_module_below_it() {
    let (dir, mut folders) = sweep();
    folders.sort();
    let listed = json(dir.path(), &["ls", "cache"]);
    let named = |name: &str| -> Vec<_> {
        listed["modules"].as_array().unwrap().iter().map(|own| own[name].as_str().unwrap()).collect()
    };
    assert_eq!(named("module"), ["clip_v1", &folders[0], &folders[1], "resnet50_v1"]);
    assert_eq!(named("id"), ["clip_v1", "clip_v1", "clip_v1", "resnet50_v1"]);
    let said = String::from_utf8(tcx(dir.path(), &["ls", "cache"]).stdout).unwrap();
    let lines: Vec<_> = said.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect();
    assert_eq!((lines[1], lines[4]), ("clip_v1", "resnet50_v1"), "{said}");
    assert!(said.lines().nth(2).unwrap().starts_with(&format!("  {}", folders[0])), "{said}");
}

#[test]
fn every_command_works_on_the_folder_of_an_identity() {
    let (dir, [folder, _]) = sweep();
    let on = |arguments: &[&str]| json(dir.path(), arguments);
    assert_eq!(on(&["info", "cache", &folder])["module"], *folder);
    assert_eq!(on(&["head", "cache", &folder])["rows"][0]["id"], "336");
    assert_eq!(on(&["show", "cache", &folder, "336"])["rows"][0]["id"], "336");
    assert_eq!(on(&["stats", "cache", &folder])["rows"], 1);
    assert_eq!(on(&["coverage", "cache", &folder, "ids.txt"])["present"], 0);
    assert_eq!(tcx(dir.path(), &["verify", "cache", &folder]).status.code(), Some(0));
    on(&["compact", "cache", &folder]);
    on(&["gc", "cache", &folder, "--older-than", "0s", "--yes"]);
    on(&["export", "cache", &folder, "--to", "out.parquet"]);
    assert_eq!(on(&["merge", "other", "cache", &folder])["modules"][0]["added"], 1);
    assert_eq!(on(&["diff", "cache", "other", &folder])["modules"][0]["same"], 1);
    assert_eq!(on(&["merge", "other", "cache", &folder])["modules"][0]["present"], 1);
    on(&["rm", "cache", &folder, "--id", "336", "--yes"]);
    assert_eq!(on(&["import", "cache", &folder, "out.parquet", "--revive"])["added"], 1);
    assert_eq!(on(&["stats", "cache", "clip_v1"])["rows"], 3, "the rows of the module are its own");
    on(&["report", "cache", "--to", "report.html"]);
    on(&["rm", "cache", &folder, "--yes"]);
    assert!(!dir.path().join("cache").join(&folder).exists());
    assert!(dir.path().join("cache/clip_v1").exists());
}

#[test]
fn a_renamed_folder_of_an_identity_is_refused_with_its_name() {
    let (dir, [folder, _]) = sweep();
    let cache = dir.path().join("cache");
    fs::rename(cache.join(&folder), cache.join("clip_v1+000000000000")).unwrap();
    let output = tcx(dir.path(), &["show", "cache", "clip_v1+000000000000", "336"]);
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("rename the folder to {folder}")), "{said}");
}

/// As if the folder had last been used this many days ago.
fn age(folder: &Path, days: u64) {
    let past = SystemTime::now() - Duration::from_hours(24 * days);
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            for record in fs::read_dir(&path).unwrap().map(Result::unwrap) {
                fs::remove_file(record.path()).unwrap();
            }
        }
        let times = fs::FileTimes::new().set_accessed(past).set_modified(past);
        fs::File::open(&path).unwrap().set_times(times).unwrap();
    }
}

#[test]
fn prune_removes_identities_that_were_not_used_for_a_while_and_no_module() {
    let (dir, [old, new]) = sweep();
    let cache = dir.path().join("cache");
    for folder in ["clip_v1", &old] {
        age(&cache.join(folder), 40);
    }
    let planned = json(dir.path(), &["prune", "cache", "--unused-for", "30d", "--dry-run"]);
    assert_eq!(planned["unused"].as_array().unwrap().len(), 1, "{planned:#}");
    assert_eq!(
        (&planned["unused"][0]["module"], &planned["unused"][0]["rows"]),
        (&old.as_str().into(), &1.into())
    );
    assert!(planned["modules"].as_array().unwrap().is_empty() && cache.join(&old).exists());
    assert_eq!(tcx(dir.path(), &["prune", "cache", "--unused-for", "30d"]).status.code(), Some(7));
    assert!(cache.join(&old).exists(), "not confirmed");
    json(dir.path(), &["prune", "cache", "--unused-for", "30d", "--yes"]);
    assert!(!cache.join(&old).exists());
    assert!(cache.join("clip_v1").exists() && cache.join(&new).exists());
    let nothing = json(dir.path(), &["prune", "cache", &new, "--unused-for", "30d", "--yes"]);
    assert!(nothing["unused"].as_array().unwrap().is_empty());
    assert_eq!(json(dir.path(), &["stats", "cache", "clip_v1"])["rows"], 3);
}

#[test]
fn a_recorded_session_is_a_use_of_the_folder() {
    let (dir, [used, _]) = sweep();
    let folder = dir.path().join("cache").join(&used);
    let sessions = tcx_store::sessions(&folder).unwrap();
    assert_eq!(sessions.len(), 1);
    let past = SystemTime::now() - Duration::from_hours(24 * 40);
    for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        let times = fs::FileTimes::new().set_accessed(past).set_modified(past);
        fs::File::open(entry.path()).unwrap().set_times(times).unwrap();
    }
    let planned = json(dir.path(), &["prune", "cache", "--unused-for", "30d", "--dry-run"]);
    assert!(planned["unused"].as_array().unwrap().is_empty(), "{planned:#}");
}
