//! The command on an S3 server.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::Path;
use std::process::{Command, Output};

use tcx_test_s3::Server;

use crate::support::TCX;

pub(crate) fn tcx(server: &Server, dir: &Path, arguments: &[&str]) -> Output {
    let mut tcx = Command::new(TCX);
    tcx.args(arguments).current_dir(dir).env("TCX_NEAR_TIER", dir.join("near"));
    for (name, value) in server.settings() {
        tcx.env(name.to_uppercase(), value);
    }
    tcx.output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that succeeds prints.
pub(crate) fn printed(server: &Server, dir: &Path, arguments: &[&str]) -> String {
    let output = tcx(server, dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

pub(crate) fn json(server: &Server, dir: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&printed(server, dir, &[arguments, &["--json"]].concat())).unwrap()
}

/// The keys of the segments of a module.
pub(crate) fn segments(server: &Server, module: &str) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| key.contains(&format!("/{module}/seg-")));
    keys
}

/// How many segments the near tier has.
pub(crate) fn segments_received(dir: &Path) -> usize {
    fn count(dir: &Path) -> usize {
        let entries = std::fs::read_dir(dir).into_iter().flatten().map(Result::unwrap);
        entries
            .map(|entry| match entry.path() {
                path if path.is_dir() => count(&path),
                path => usize::from(path.to_string_lossy().contains("/files/seg-")),
            })
            .sum()
    }
    count(&dir.join("near"))
}
