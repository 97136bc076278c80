//! Directories that contain no modules, such as a directory of caches.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::Path;

use support::{json, tcx, workplace};

#[test]
fn every_command_refuses_a_directory_without_modules_and_names_the_caches_nearby() {
    let dir = workplace();
    fs::create_dir_all(dir.path().join("cache/inside")).unwrap();
    let places = [(".", "such as ./another, ./cache, ./other"), ("cache/inside", "contains it, cache")];
    for (place, advice) in places {
        let commands: [&[&str]; 25] = [
            &["ls", place],
            &["info", place, "clip_v1"],
            &["head", place, "clip_v1"],
            &["show", place, "clip_v1", "cat"],
            &["stats", place],
            &["coverage", place, "clip_v1", "ids.txt"],
            &["verify", place],
            &["verify", place, "clip_v1"],
            &["verify", place, "--repair", "--yes"],
            &["compact", place],
            &["gc", place, "--yes"],
            &["gc", place, "--dry-run"],
            &["prune", place, "--max-size", "1", "--yes"],
            &["rm", place, "clip_v1", "--yes"],
            &["export", place, "clip_v1", "--to", "out.arrow"],
            &["import", place, "clip_v1", "ids.txt"],
            &["pack", place, "clip_v1", "--to", "out.tcxpack"],
            &["unpack", place, "out.tcxpack"],
            &["merge", "cache", place],
            &["merge", place, "cache"],
            &["diff", place, "cache"],
            &["diff", "cache", place],
            &["diff", "cache", place, "clip_v1"],
            &["report", place, "--to", "out.html"],
            &["top", place],
        ];
        for command in commands {
            let output = tcx(dir.path(), command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{command:?}: {said}");
            assert!(said.contains(&format!("no modules in {place};")) && said.contains(advice), "{said}");
        }
    }
}

#[test]
fn a_url_is_refused_where_a_directory_is_copied_with_the_command_that_makes_one() {
    let dir = workplace();
    let url = "s3://key:hunter2@bucket/prefix";
    for command in ["push", "pull", "sync"] {
        let said = refused(dir.path(), &[command, url, "s3://bucket/other"]);
        let why = if cfg!(feature = "remote") { "found a URL (s3://…)" } else { "--features remote" };
        assert!(said.contains(why), "{said}");
        assert!(said.contains("`tcx pull DIR URL`") == cfg!(feature = "remote"), "{said}");
    }
}

#[test]
fn a_url_that_cannot_be_opened_is_refused_without_its_credentials() {
    let dir = workplace();
    let url = "s3://key:hunter2@bucket/prefix";
    let commands: [&[&str]; 12] = [
        &["ls", url],
        &["top", url],
        &["prune", url, "clip_v1", "--max-size", "1", "--yes"],
        &["merge", url, "cache", "--create"],
        &["info", url, "clip_v1"],
        &["stats", url],
        &["verify", url],
        &["gc", url, "--yes"],
        &["rm", url, "clip_v1", "--yes"],
        &["merge", "cache", url],
        &["diff", "cache", url],
        &["report", url, "--to", "out.html"],
    ];
    for command in commands {
        let said = refused(dir.path(), command);
        let why = if cfg!(feature = "remote") { "credentials belong into" } else { "--features remote" };
        assert!(said.contains(why), "{said}");
    }
}

/// What a command that is refused says.
fn refused(dir: &Path, command: &[&str]) -> String {
    let output = tcx(dir, command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
    assert!(!said.contains("hunter2") && !dir.join("s3:").exists(), "{said}");
    said
}

#[test]
fn remains_of_a_module_are_collected_where_no_module_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let remains = dir.path().join("cache/.removed-clip_v1-7");
    fs::create_dir_all(&remains).unwrap();
    assert_eq!(json(dir.path(), &["gc", "cache", "--yes"])["leftovers"].as_array().unwrap().len(), 1);
    assert!(!remains.exists());
    assert_eq!(tcx(dir.path(), &["gc", "cache", "--yes"]).status.code(), Some(3));
}

#[test]
fn a_merge_says_which_modules_are_new() {
    let dir = workplace();
    let new = |target: &str| {
        let merged = json(dir.path(), &["merge", target, "cache", "--create", "--dry-run"]);
        let modules = merged["modules"].as_array().unwrap().clone();
        modules.iter().map(|own| own["new"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((new("other"), new("copy")), (vec![false, true], vec![true, true]));
    let output = tcx(dir.path(), &["merge", "other", "cache"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        said,
        "clip_v1: 2 rows added, 1 already present\nresnet50_v1 (new): 1,000 rows added, 0 already present\n"
    );
}

#[test]
fn rows_are_merged_into_a_directory_without_modules_only_if_that_is_asked_for() {
    let dir = workplace();
    fs::create_dir(dir.path().join("empty")).unwrap();
    assert_eq!(tcx(dir.path(), &["merge", "empty", "other"]).status.code(), Some(3));
    assert!(fs::read_dir(dir.path().join("empty")).unwrap().next().is_none());
    assert_eq!(json(dir.path(), &["merge", "empty", "other", "--create"])["modules"][0]["added"], 2);
}
