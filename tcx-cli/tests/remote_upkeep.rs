//! What the commands say of modules in an object store, and remove there.

#![cfg(feature = "remote")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/store.rs"]
mod store;
mod support;

use std::path::Path;

use store::{json, printed, segments, tcx, text};
use support::{remove_runs, workplace};
use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Keys, Options};
use tcx_test_s3::{Fault, Operation, Server};

#[test]
fn the_oldest_rows_of_a_module_in_a_store_make_room_and_those_that_are_too_old_go() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let run = |arguments: &[&str]| printed(&server, dir.path(), arguments);
    run(&["push", "cache", &url]);
    let before = segments(&server, "clip_v1").len();
    for (arguments, part) in [
        (&["--max-size", "1kB", "--yes"] as &[&str], "name the module"),
        (&["clip_v1", "--max-size", "1kB", "--dry-run"], "--dry-run works on directories"),
        (&["--unused-for", "30d", "--yes"], "--unused-for works on directories"),
    ] {
        let refused = tcx(&server, dir.path(), &[&["prune", &url], arguments].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(part), "{}", text(&refused.stderr));
    }
    assert_eq!(segments(&server, "clip_v1").len(), before);
    assert_eq!(
        json(&server, dir.path(), &["prune", &url, "--older-than", "30d", "--yes"])["modules"],
        serde_json::json!([])
    );
    let pruned = json(&server, dir.path(), &["prune", &url, "clip_v1", "--max-size", "4kB", "--yes"]);
    let module = &pruned["modules"][0];
    assert_eq!((&module["module"], &module["segments"]), (&"clip_v1".into(), &1.into()), "{pruned}");
    assert_eq!(segments(&server, "clip_v1").len(), before - 1);
    let left = 3 - module["rows"].as_u64().unwrap();
    assert_eq!(json(&server, dir.path(), &["stats", &url, "clip_v1"])["rows"], left);
    let shown = run(&["prune", &url, "clip_v1", "--older-than", "1ms", "--yes"]);
    assert!(shown.starts_with("clip_v1: removed "), "{shown}");
    assert_eq!(segments(&server, "clip_v1").len(), 0);
    assert_eq!(json(&server, dir.path(), &["stats", &url, "clip_v1"])["rows"], 0);
}

#[test]
fn a_module_with_a_change_that_is_missing_is_repaired_in_a_directory_and_pushed_to_another_prefix() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let run = |arguments: &[&str]| printed(&server, dir.path(), arguments);
    run(&["push", "cache", &url]);
    for id in ["1", "2", "3"] {
        run(&["rm", &url, "resnet50_v1", "--id", id, "--yes"]);
    }
    let lost = server
        .keys()
        .into_iter()
        .find(|key| key.ends_with("resnet50_v1/change-00000000000000000002"))
        .unwrap();
    server.remove(&lost);
    std::fs::remove_dir_all(dir.path().join("near")).unwrap();
    let refused = tcx(&server, dir.path(), &["rm", &url, "resnet50_v1", "--id", "4", "--yes"]);
    let refused = text(&refused.stderr);
    assert!(
        refused.contains("change 2 is missing") && refused.contains("`tcx push` it to another prefix"),
        "{refused}"
    );
    // As another program copies them.
    let copy = dir.path().join("copy/resnet50_v1");
    std::fs::create_dir_all(&copy).unwrap();
    for key in server.keys().iter().filter(|key| key.contains("/resnet50_v1/")) {
        std::fs::write(copy.join(key.rsplit('/').next().unwrap()), server.object(key).unwrap()).unwrap();
    }
    run(&["verify", "copy", "--repair", "--yes"]);
    let repaired = server.url("repaired");
    run(&["push", "copy", &repaired]);
    // All rows are older than the change, which may have named each of them. Others can be written.
    assert_eq!(json(&server, dir.path(), &["stats", &repaired, "resnet50_v1"])["rows"], 0);
    let written = tcx(&server, dir.path(), &["rm", &repaired, "resnet50_v1", "--id", "4", "--yes"]);
    assert_eq!((written.status.code(), text(&written.stderr)), (Some(1), String::new()), "it has no row");
    run(&["verify", &repaired]);
}

/// The cache as a program on the machine of `dir` has it.
fn cache(server: &Server, dir: &Path, url: &str) -> RemoteCache {
    let Location::Store(url) = Location::parse(url).unwrap() else { panic!("{url} is a directory") };
    let set = |client: ClientOptions, (name, value)| client.set(name, value);
    let client = server.settings().into_iter().fold(ClientOptions::default(), set);
    RemoteCache::new(url, &dir.join("near"), client).unwrap()
}

#[test]
fn statistics_of_a_module_in_a_store_have_the_sessions_of_this_machine_and_the_price_of_their_requests() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    let cache = cache(&server, dir.path(), &url);
    let store = cache.open(cache.spec("resnet50_v1").unwrap().unwrap(), &Options::default()).unwrap();
    store.lookup(Keys::ints([1, 2, 3], 0)).unwrap();
    drop(store);
    let asked = ["stats", &url, "resnet50_v1", "--prices", "1000,0"];
    let stats = json(&server, dir.path(), &asked);
    let module = &stats["modules"][0];
    assert_eq!((&module["sessions"], &module["hits"]), (&1.into(), &3.into()), "{stats}");
    let requests = module["puts_and_lists"].as_u64().unwrap();
    assert!(requests > 0 && module["gets"].as_u64().unwrap() > 0, "{stats}");
    assert!(module["bytes_received"].as_u64().unwrap() > 0, "{stats}");
    assert_eq!(stats["price"].as_f64(), Some(requests as f64));
    let shown = printed(&server, dir.path(), &asked);
    let priced = format!("; the requests have cost {requests}.0000");
    assert!(shown.contains("PUT or LIST requests, sent") && shown.contains(&priced), "{shown}");
}

#[test]
fn modules_in_a_store_are_shown_as_those_of_the_directory_that_was_sent() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    remove_runs(&dir.path().join("cache"));
    let (local, shown) =
        (json(&server, dir.path(), &["top", "cache"]), json(&server, dir.path(), &["top", &url]));
    let modules = |of: &serde_json::Value| of["modules"].as_array().unwrap().clone();
    assert_eq!(modules(&shown).len(), 2);
    for (own, local) in modules(&shown).iter().zip(modules(&local)) {
        for figure in ["module", "rows", "bytes", "segments", "temporary"] {
            assert_eq!(own[figure], local[figure], "{figure}: {own} {local}");
        }
        // It arrived after it was computed; the store counts seconds.
        assert!(
            own["newest_ms"].as_u64().unwrap() + 1000 > local["newest_ms"].as_u64().unwrap(),
            "{own} {local}"
        );
    }
    server.fail_next(Operation::List, "clip_v1", Fault::Denied);
    let failed = tcx(&server, dir.path(), &["top", &url]);
    assert_eq!(failed.status.code(), Some(6), "not a table without the module: {}", text(&failed.stderr));
    server.remove(&server.keys().into_iter().find(|key| key.contains("resnet50_v1/change-")).unwrap());
    let shown = json(&server, dir.path(), &["top", &url]);
    assert_eq!(modules(&shown).len(), 1, "one has no change 0: {shown}");
}
