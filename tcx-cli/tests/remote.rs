//! The commands that change or copy, on an S3 server.

#![cfg(feature = "remote")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/store.rs"]
mod store;
mod support;

use store::{json, printed, segments, segments_received, tcx, text};
use support::workplace;
use tcx_test_s3::{Fault, Operation, Server};

#[test]
fn modules_are_pushed_and_pulled_and_synced() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let pushed = tcx(&server, dir.path(), &["push", "cache", &url]);
    let shown = text(&pushed.stdout);
    assert_eq!(pushed.status.code(), Some(0), "{}", text(&pushed.stderr));
    assert!(shown.contains("clip_v1: sent ") && shown.contains("resnet50_v1: sent "), "{shown}");
    assert!(shown.contains("PUT or LIST requests and "), "{shown}");
    let pulled = tcx(&server, dir.path(), &["pull", "copy", &url, "clip_v1", "--json"]);
    assert_eq!(pulled.status.code(), Some(0), "{}", text(&pulled.stderr));
    let json: serde_json::Value = serde_json::from_slice(&pulled.stdout).unwrap();
    assert_eq!(json["modules"][0]["module"], "clip_v1");
    assert_eq!(json["modules"][0]["direction"], "pull");
    assert!(json["requests"]["gets"].as_u64().unwrap() > 2);
    let difference = tcx(&server, dir.path(), &["diff", "cache", "copy", "clip_v1"]);
    assert_eq!(difference.status.code(), Some(0), "{}", text(&difference.stdout));
    let removed = tcx(&server, dir.path(), &["rm", "copy", "clip_v1", "--id", "cat", "--yes"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    let synced = tcx(&server, dir.path(), &["sync", "copy", &url]);
    assert_eq!(synced.status.code(), Some(0), "{}", text(&synced.stderr));
    assert!(text(&synced.stdout).contains("resnet50_v1: received "), "{}", text(&synced.stdout));
    let pulled = tcx(&server, dir.path(), &["pull", "cache", &url]);
    assert_eq!(pulled.status.code(), Some(0), "{}", text(&pulled.stderr));
    std::fs::write(dir.path().join("ids.txt"), "cat\ndog\n").unwrap();
    let coverage = tcx(&server, dir.path(), &["coverage", "cache", "clip_v1", "ids.txt", "--json"]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&coverage.stdout).unwrap()["present"], 1);
}

#[test]
fn a_module_that_is_refused_does_not_keep_the_others_from_being_copied() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let run = |arguments: &[&str]| {
        let output = tcx(&server, dir.path(), arguments);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    printed(&server, dir.path(), &["push", "cache", &url]);
    // Rows of the first module are invalidated on both sides, and the second one has something new on both.
    printed(&server, dir.path(), &["rm", "cache", "clip_v1", "--id", "cat", "--yes"]);
    printed(&server, dir.path(), &["rm", &url, "clip_v1", "--id", "dog", "--yes"]);
    printed(&server, dir.path(), &["rm", "cache", "resnet50_v1", "--id", "7", "--yes"]);
    let before = server.keys();
    let (code, shown, error) = run(&["sync", "cache", &url]);
    assert_eq!(code, Some(5), "{shown}{error}");
    assert!(
        shown.contains("resnet50_v1: received 0 files") && shown.contains("resnet50_v1: sent 1 file"),
        "{shown}"
    );
    assert!(!shown.contains("clip_v1") && error.contains("on both sides"), "{shown}{error}");
    let new: Vec<_> = server.keys().into_iter().filter(|key| !before.contains(key)).collect();
    assert!(new.len() == 1 && new[0].contains("/resnet50_v1/change-"), "{new:?}");
    for command in ["push", "pull"] {
        let (code, shown, error) = run(&[command, "cache", &url, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((code, &json["modules"][0]["module"]), (Some(5), &"resnet50_v1".into()), "{error}");
        assert_eq!(json["failed"][0]["module"], "clip_v1");
        assert_eq!(json["failed"][0]["direction"], command);
        assert!(error.contains(r#"{"error":{"code":"unfit""#), "{error}");
    }
}

#[test]
fn mistakes_have_exit_codes_and_no_credentials_in_them() {
    let (server, dir) = (Server::start(), workplace());
    let run = |arguments: &[&str]| {
        let output = tcx(&server, dir.path(), arguments);
        (output.status.code(), text(&output.stderr))
    };
    let url = server.url("features");
    let with_password = url.replace("http://", "http://user:hunter2@");
    for (arguments, code, part) in [
        (["pull", "copy", &url], 3, "no modules in http://"),
        (["push", "cache", "other"], 2, "expected the URL of an object store"),
        (["push", "cache", "ftp://host/x"], 2, "expected s3://"),
        (["push", "cache", &with_password], 2, "credentials belong into the environment"),
        (["push", "nothing", &url], 3, "no directory nothing"),
        (["push", "cache", &server.url("").replace("/tcx/", "/none/x")], 3, "no such object or bucket"),
    ] {
        let (found, error) = run(&arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {error}");
        assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
    }
    assert_eq!(run(&["push", "cache", &url]).0, Some(0));
    let (code, error) = run(&["push", "another", &url]);
    assert_eq!(code, Some(5), "{error}");
    assert!(error.contains("another cache of this name"), "{error}");
}

#[test]
fn rows_are_invalidated_and_segments_joined_and_removed_in_a_store() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let run = |arguments: &[&str]| printed(&server, dir.path(), arguments);
    run(&["push", "cache", &url]);
    assert!(run(&["head", &url, "clip_v1"]).contains("cat"));
    let asked = run(&["rm", &url, "clip_v1", "--id", "cat", "--dry-run"]);
    assert!(asked.contains("would be invalidated: cat (1 row)"), "{asked}");
    assert!(run(&["head", &url, "clip_v1"]).contains("cat"));
    run(&["rm", &url, "clip_v1", "--id", "cat", "--yes"]);
    let before = segments(&server, "clip_v1");
    assert_eq!(run(&["compact", &url, "clip_v1"]), "clip_v1: 2 → 1 segment\n");
    let kept = run(&["gc", &url, "clip_v1", "--yes"]);
    assert!(kept.contains("removed 0 files"), "machines read them for an hour: {kept}");
    run(&["gc", &url, "--older-than", "0s", "--yes"]);
    let after = segments(&server, "clip_v1");
    assert!(after.len() == 1 && !before.contains(&after[0]), "{before:?}, {after:?}");
    let removed = run(&["rm", &url, "clip_v1", "--prefix", "hor", "--yes"]);
    assert!(removed.contains("invalidated: hor… (1 row)"), "{removed}");
    let left = run(&["head", &url, "clip_v1"]);
    assert!(left.contains("dog") && !left.contains("cat") && !left.contains("horse"), "{left}");
    // The mirror has the same segments.
    assert_eq!(json(&server, dir.path(), &["stats", &url, "clip_v1"])["modules"][0]["segments"], 1);
    for (arguments, part) in [
        (&["gc", &url, "--dry-run"][..], "--dry-run works on directories"),
        (&["gc", &url], "without confirmation"),
        (&["rm", &url, "clip_v1", "--yes"], "from directories only"),
        (&["verify", &url, "--repair", "--yes"], "--repair works on directories"),
        (&["info", &url, "clip_v2"], "no module `clip_v2` in http://"),
        (&["rm", &url, "clip_v2", "--id", "cat", "--yes"], "its modules are clip_v1, resnet50_v1"),
    ] {
        let error = text(&tcx(&server, dir.path(), arguments).stderr);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn a_module_under_another_name_is_not_changed_at_a_url() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url, "clip_v1"]);
    for key in server.keys() {
        server.put(&key.replace("clip_v1", "clip_v2"), &server.object(&key).unwrap());
    }
    let before = server.keys();
    for arguments in [
        &["rm", &url, "clip_v2", "--id", "cat", "--yes"][..],
        &["compact", &url, "clip_v2"],
        &["gc", &url, "clip_v2", "--older-than", "0s", "--yes"],
    ] {
        let output = tcx(&server, dir.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{arguments:?}: {error}");
        assert!(error.contains("the folder clip_v2 contains the module `clip_v1`"), "{error}");
    }
    assert_eq!(server.keys(), before);
    assert!(printed(&server, dir.path(), &["head", &url, "clip_v1"]).contains("cat"));
}

#[test]
fn segments_that_are_joined_and_not_sent_are_an_error() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url, "clip_v1"]);
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
    let output = tcx(&server, dir.path(), &["compact", &url, "clip_v1"]);
    assert_eq!(output.status.code(), Some(6), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_target_that_cannot_be_written_is_refused_before_anything_is_received() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    std::fs::write(dir.path().join("rows.csv"), "id").unwrap();
    let before = server.counts().all();
    for (arguments, part) in [
        (&["export", &url, "clip_v1", "--to", "rows.csv"][..], "rows.csv exists"),
        (&["pack", &url, "clip_v1", "--to", "rows.csv"], "rows.csv exists"),
        (&["report", &url, "--to", "rows.csv"], "rows.csv exists"),
        (&["merge", "nothing", &url], "--create"),
    ] {
        let error = text(&tcx(&server, dir.path(), arguments).stderr);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    assert_eq!(server.counts().all(), before);
}

#[test]
fn rows_are_merged_unpacked_and_imported_into_a_store() {
    let (server, dir) = (Server::start(), workplace());
    let run = |arguments: &[&str]| printed(&server, dir.path(), arguments);
    let url = server.url("features");
    let refused = tcx(&server, dir.path(), &["merge", &url, "cache"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("pass --create"), "{}", text(&refused.stderr));
    let merged = run(&["merge", &url, "cache", "resnet50_v1", "--create", "--dry-run"]);
    assert!(merged.contains("resnet50_v1 (new): ") && merged.contains("would be added"), "{merged}");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    run(&["merge", &url, "cache", "resnet50_v1", "--create"]);
    run(&["diff", "cache", &url, "resnet50_v1"]);
    run(&["pack", "cache", "clip_v1", "--to", "clip.tcxpack"]);
    let unpacked = run(&["unpack", &url, "clip.tcxpack"]);
    assert!(unpacked.contains("clip_v1 (new): "), "{unpacked}");
    run(&["diff", "cache", &url, "clip_v1"]);
    run(&["export", "cache", "clip_v1", "--to", "clip"]);
    run(&["rm", &url, "clip_v1", "--id", "cat", "--yes"]);
    let left_out = run(&["import", &url, "clip_v1", "clip"]);
    assert!(left_out.contains("1 row left out"), "{left_out}");
    let revived = run(&["import", &url, "clip_v1", "clip", "--revive"]);
    assert!(revived.contains("1 row added"), "{revived}");
    run(&["diff", "cache", &url, "clip_v1"]);
    let missing = tcx(&server, dir.path(), &["import", &url, "other_v1", "clip"]);
    assert!(text(&missing.stderr).contains("flush one batch with it"), "{}", text(&missing.stderr));
}

#[test]
fn a_job_in_a_store_is_watched_without_its_rows_and_its_requests_have_a_price() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    // All of these ids have rows, so the command is not run.
    let ids = (0..1000).map(|id| format!("{id}\n")).collect::<Vec<_>>().concat();
    std::fs::write(dir.path().join("ids.txt"), ids).unwrap();
    let work = ["--json", "work", &url, "resnet50_v1", "--ids", "ids.txt", "--", "false"];
    let worked: serde_json::Value = serde_json::from_str(&printed(&server, dir.path(), &work)).unwrap();
    assert_eq!((&worked["runs"], &worked["workers"][0]["found"]), (&0.into(), &1000.into()));
    std::fs::remove_dir_all(dir.path().join("near")).unwrap();
    let watched = json(&server, dir.path(), &["jobs", &url, "--prices", "1000,0"]);
    let job = &watched["jobs"][0];
    assert_eq!(
        (&job["module"], &job["ended"], &job["finished"]),
        (&"resnet50_v1".into(), &true.into(), &1000.into())
    );
    let requests = job["puts_and_lists"].as_u64().unwrap();
    // A lease of each of 16 parts, at the least.
    assert!(requests >= 16 && job["gets"].as_u64().unwrap() > 0, "{job}");
    assert_eq!(job["price"].as_f64(), Some(requests as f64));
    assert_eq!(segments_received(dir.path()), 0);
    let shown = printed(&server, dir.path(), &["jobs", &url, "resnet50_v1"]);
    assert!(shown.contains(" PUT or LIST requests and "), "{shown}");
}

#[test]
fn a_part_is_finished_when_its_rows_are_in_the_store() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "other", &url, "clip_v1"]);
    std::fs::write(dir.path().join("ids.txt"), "cat\ndog\nhorse\n").unwrap();
    // As a command of `work` that ends with status 0 although its flush has failed.
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
    assert_ne!(tcx(&server, dir.path(), &["merge", &url, "cache", "clip_v1"]).status.code(), Some(0));
    // What it leases cannot be given up while the store does not answer.
    let work = ["--json", "work", &url, "clip_v1", "--ids", "ids.txt", "--expiry", "1s", "--", "false"];
    let waits = tcx(&server, dir.path(), &work);
    let json: serde_json::Value = serde_json::from_slice(&waits.stdout).unwrap();
    assert_eq!((waits.status.code(), &json["runs"]), (Some(1), &0.into()), "{json}");
    let why = json["failure"].as_str().unwrap();
    assert!(why.contains("the rows of work range 0 are not all durable in http://"), "{why}");
    assert_eq!(json["workers"][0]["ranges"], 0);
    assert_eq!(segments(&server, "clip_v1").len(), 1);
    server.forget_planned();
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(2);
    while tcx(&server, dir.path(), &work).status.code() != Some(0) {
        assert!(std::time::Instant::now() < deadline);
    }
    assert!(segments(&server, "clip_v1").len() > 1);
}
