//! Processes with several identities of one module, each in a folder of its own.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::sync::Arc;

use tcx_engine_tests::child::in_child;
use tcx_engine_tests::{check, get_or_compute, lookup, options, spec};
use tcx_store::{OnMismatch, Options, Store, modules};

fn open(dir: &Path, size: &str) -> Arc<Store> {
    let options = Options { on_mismatch: OnMismatch::Separate, ..options() };
    Store::open(dir, spec(size), &options).unwrap()
}

#[test]
fn processes_of_one_new_identity_meet_in_one_folder_and_others_do_not_refuse_them() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    // Nothing is written when it is opened.
    let store = open(&cache, "1");
    get_or_compute(&store, &["a"]);
    in_child(dir.path(), || {
        let (same, other) = (open(&cache, "1"), open(&cache, "2"));
        assert_eq!(get_or_compute(&same, &["b"]), 1);
        assert_eq!(get_or_compute(&other, &["b", "c"]), 2);
        same.flush().unwrap();
        other.flush().unwrap();
    });
    store.flush().unwrap();
    store.refresh().unwrap();
    check(&lookup(&store, &["a", "b"]), &["a", "b"]);
    assert_eq!(lookup(&store, &["c"]).missing(), 1, "a row of another identity");
    let other = open(&cache, "2");
    check(&lookup(&other, &["b", "c"]), &["b", "c"]);
    assert_eq!(lookup(&other, &["a"]).missing(), 1, "a row of another identity");
    assert_eq!(modules(&cache).unwrap().len(), 2);
}
