//! Segments that are received in the background: a lookup waits for those that may come soon, and each is received once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use machines::{Machine, cache_at, segments, spec};
use support::options;
use tcx_store::Options;
use tcx_test_s3::Server;

/// Rows of a segment that is not received before a listing returns.
const ROWS: i64 = 40_000;

fn filled(server: &Server) {
    let one = Machine::new(server);
    one.compute(&(0..ROWS).collect::<Vec<_>>(), 10);
    one.store().flush().unwrap();
    assert_eq!(segments(server), 1);
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("{what}");
}

fn folder(near: &Path, name: &str) -> PathBuf {
    let store = fs::read_dir(near).unwrap().map(|entry| entry.unwrap().path());
    let store = store.filter(|path| !path.ends_with(".budget")).last().unwrap();
    store.join("m_v1").join(name)
}

/// The name of the only segment.
fn name(server: &Server) -> String {
    let key = server.keys().into_iter().find(|key| key.contains("/seg-")).unwrap();
    key.rsplit('/').next().unwrap().to_owned()
}

#[test]
fn a_lookup_waits_for_a_segment_that_may_come_soon_and_reads_no_part_of_it_in_the_store() {
    let server = Server::start();
    filled(&server);
    // It takes a third of a second.
    server.fail(|faults| faults.bandwidth = 16 << 20);
    let machine = Machine::new(&server);
    let opened = machine.store().stats().traffic.ranged_gets;
    let keys: Vec<i64> = (0..ROWS).step_by(1000).collect();
    assert_eq!(machine.values(&keys), vec![Some(10); keys.len()]);
    assert_eq!(machine.store().stats().traffic.ranged_gets, opened);
    assert_eq!(machine.files("files").len(), 1);
}

#[test]
fn a_segment_that_does_not_come_is_read_in_the_store() {
    let server = Server::start();
    filled(&server);
    let near = tempfile::tempdir().unwrap();
    let cache = cache_at(&server.url("p"), near.path(), options(&server)).near_bytes(Some(1 << 20));
    let machine = Machine { store: Some(cache.open(spec(), &Options::default()).unwrap()), near, cache };
    // As that of another process, which has been killed.
    let arriving = format!("get-{:032x}-{}", 0, name(&server));
    File::create(folder(machine.near.path(), "files").join(arriving)).unwrap();
    assert_eq!(machine.values(&[1, 20_000, ROWS - 1]), [Some(10); 3]);
    assert!(machine.store().stats().traffic.ranged_gets > 0 && machine.files("files").is_empty());
}

#[test]
fn a_segment_is_received_while_its_rows_are_read_and_then_it_is_mapped() {
    let server = Server::start();
    filled(&server);
    let name = name(&server);
    let near = tempfile::tempdir().unwrap();
    let cache = cache_at(&server.url("p"), near.path(), options(&server));
    // Makes the folder.
    drop(cache.open(spec(), &Options { read_only: true, ..Options::default() }).unwrap());
    let lock = folder(near.path(), "locks").join(&name);
    until("the segment is received", || folder(near.path(), "files").join(&name).exists());
    fs::remove_file(folder(near.path(), "files").join(&name)).unwrap();
    // As another process that receives it, and does not come to an end.
    let other = File::options().create(true).truncate(false).write(true).open(lock).unwrap();
    other.lock().unwrap();
    let mut machine = Machine { near, cache, store: None };
    machine.open();
    assert_eq!(machine.values(&[1, 20_000, ROWS - 1]), [Some(10); 3]);
    assert!(machine.store().stats().traffic.ranged_gets > 0 && machine.files("files").is_empty());
    other.unlock().unwrap();
    machine.store().refresh().unwrap();
    until("the segment is received", || machine.files("files").len() == 1);
    machine.store().refresh().unwrap();
    let gets = server.counts().gets;
    let keys: Vec<i64> = (0..ROWS).step_by(1000).collect();
    assert_eq!(machine.values(&keys), vec![Some(10); keys.len()]);
    assert_eq!(server.counts().gets, gets, "rows of the copy cost no request");
}
