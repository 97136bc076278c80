//! `tcx push`, `pull` and `sync` on an S3 server.

#![cfg(feature = "remote")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use support::{TCX, workplace};
use tcx_test_s3::Server;

fn tcx(server: &Server, dir: &Path, arguments: &[&str]) -> Output {
    let mut tcx = Command::new(TCX);
    tcx.args(arguments).current_dir(dir);
    for (name, value) in server.settings() {
        tcx.env(name.to_uppercase(), value);
    }
    tcx.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

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
