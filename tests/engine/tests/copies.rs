//! A copy of a directory that is in use is a cache: what docs/operations.md says of backups.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tcx_engine_tests::churn::{block_ids, block_rows, values};
use tcx_engine_tests::{options, spec};
use tcx_store::{Keys, Options, Store};

const COPIES: usize = 12;

fn open(dir: &Path) -> Arc<Store> {
    Store::open(dir, spec("224"), &Options { gc_grace: Duration::ZERO, ..options() }).unwrap()
}

/// What the writer has said of the rows that come and go.
#[derive(Default)]
struct Said {
    /// Rows of this value are there, or have been.
    computing: AtomicI64,
    /// Rows up to this value are dead: durably.
    dead: AtomicI64,
    stop: AtomicBool,
}

/// Rows are computed, joined with others, and invalidated, again and again; files come and go.
fn write(store: &Store, said: &Said) {
    let ids = block_ids("changing", 0);
    for value in 1.. {
        said.computing.store(value, Ordering::SeqCst);
        let mut rows = store.lookup(Keys::text(&ids, 0).unwrap()).unwrap();
        let missing = rows.distinct_missing_positions();
        assert_eq!(missing.len(), ids.len());
        store.insert(&mut rows, &missing, block_rows(&ids, value)).unwrap();
        store.flush().unwrap();
        if value % 5 == 0 {
            store.compact().unwrap();
            store.collect(Duration::ZERO).unwrap();
        }
        store.invalidate(&Keys::text(&ids, 0).unwrap()).unwrap();
        said.dead.store(value, Ordering::SeqCst);
        if said.stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Brings the copy up to date as an operator would. Files that vanish meanwhile make `cp` complain.
fn copy(from: &Path, to: &Path) -> Output {
    Command::new("cp").arg("-au").arg(from).arg(to).output().unwrap()
}

/// What is found in the copy was not dead before it was begun, and was computed before it had ended. Tells how many rows
/// were found.
fn judge(copy: &Path, dead: i64, said: &Said) -> usize {
    let store = open(copy);
    let found: Vec<i64> = values(&store, &block_ids("changing", 0)).into_iter().flatten().collect();
    let computing = said.computing.load(Ordering::SeqCst);
    for &value in &found {
        assert!(value > dead && value <= computing, "{value} is not within {dead} and {computing}");
    }
    found.len()
}

#[test]
fn a_copy_of_a_directory_in_use_is_the_cache_of_some_moment() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, said) = (dir.path().join("cache"), Arc::new(Said::default()));
    let store = open(&cache);
    // Rows that stay, in a file of their own: every copy contains them, whatever else happens.
    let staying = block_ids("staying", 0);
    let mut rows = store.lookup(Keys::text(&staying, 0).unwrap()).unwrap();
    store.insert(&mut rows, &(0..staying.len()).collect::<Vec<_>>(), block_rows(&staying, 7)).unwrap();
    store.flush().unwrap();
    let writer = std::thread::spawn({
        let said = said.clone();
        move || write(&store, &said)
    });
    let mut found = 0;
    for number in 0..COPIES {
        let to = dir.path().join(format!("copy-{number}"));
        std::fs::create_dir(&to).unwrap();
        for _ in 0..2 {
            let dead = said.dead.load(Ordering::SeqCst);
            copy(&cache, &to);
            found += judge(&to.join("cache"), dead, &said);
        }
    }
    said.stop.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    assert!(found > 0, "no copy was made while rows were there: nothing has been judged");

    // A copy that is updated while no process writes contains everything, and works as an independent cache.
    for number in 0..COPIES {
        let to = dir.path().join(format!("copy-{number}"));
        let copied = copy(&cache, &to);
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let verified = tcx_store::verify(&to.join("cache/m_v1"), &mut |_, _| {}).unwrap();
        assert!(verified.damage.is_empty(), "{:?}", verified.damage);
        let store = open(&to.join("cache"));
        assert!(values(&store, &staying).iter().all(|value| *value == Some(7)));
        assert!(values(&store, &block_ids("changing", 0)).iter().all(Option::is_none));
        store.invalidate(&Keys::text(&staying, 0).unwrap()).unwrap();
        assert!(values(&store, &staying).iter().all(Option::is_none));
    }
}
