//! Flushing and inserting do not wait for background upkeep.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::Store;
use crate::testing::Faulty;
use crate::testing::{compute, names, process, seal_all, values, with_operations};

/// Ends a test that would hang; nothing is measured.
const HANGS_AFTER: Duration = Duration::from_secs(20);

/// Holds up the first thread that does a step, until it is let go on.
struct Gate {
    steps: Faulty,
    reached: Receiver<()>,
    go_on: Sender<()>,
}

impl Gate {
    fn at(is_held: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        let (reach, reached) = channel();
        let (go_on, wait) = channel();
        let once = Mutex::new(Some((reach, wait)));
        let steps = Faulty::with(move |_, step, path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_held(step, &name) {
                let held = once.lock().unwrap().take();
                if let Some((reach, wait)) = held {
                    reach.send(()).unwrap();
                    // The test has failed if the receiver is gone.
                    let _: Result<(), _> = wait.recv();
                }
            }
            None
        });
        Self { steps, reached, go_on }
    }
}

fn flushes(store: &Arc<Store>, key: &'static str) {
    let (done, flushed) = channel();
    let store = store.clone();
    thread::spawn(move || {
        compute(&store, &[key], 7);
        drop(done.send(store.flush()));
    });
    flushed.recv_timeout(HANGS_AFTER).expect("inserting and flushing wait for upkeep").unwrap();
}

/// Runs `upkeep` on a thread of its own, holds it up where the gate is, and flushes meanwhile.
fn flush_during(dir: &Path, gate: Gate, upkeep: impl FnOnce(&Store) + Send + 'static) {
    let store = Arc::new(with_operations(dir, gate.steps));
    for key in ["a", "b", "c"] {
        compute(&store, &[key], 1);
        seal_all(&store);
    }
    let other = store.clone();
    let thread = thread::Builder::new().name("upkeep of a test".to_owned());
    let thread = thread.spawn(move || upkeep(&other)).unwrap();
    gate.reached.recv_timeout(HANGS_AFTER).unwrap();
    // Twice: the first is followed by what the writer does itself.
    flushes(&store, "d");
    flushes(&store, "e");
    gate.go_on.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(values(&store, &["a", "b", "c", "d", "e"]), [1, 1, 1, 7, 7]);
    drop(store);
    assert_eq!(values(&process(dir), &["a", "b", "c", "d", "e"]), [1, 1, 1, 7, 7]);
}

fn is_of_upkeep() -> bool {
    thread::current().name() == Some("upkeep of a test")
}

#[test]
fn a_flush_does_not_wait_for_another_threads_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::at(|step, _| step == "create_file" && is_of_upkeep());
    flush_during(dir.path(), gate, |store| store.compact().unwrap());
}

#[test]
fn a_flush_does_not_wait_for_another_threads_collection() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::at(|step, name| step == "remove" && name.starts_with("seg-") && is_of_upkeep());
    flush_during(dir.path(), gate, |store| {
        store.compact().unwrap();
        store.collect(Duration::ZERO).unwrap();
    });
}

#[test]
fn a_flush_does_not_wait_for_what_the_writer_joins_and_removes_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    // Joining leaves an index run of segments that are gone.
    let gate = Gate::at(|step, name| step == "remove" && name.starts_with("run-"));
    let store = Arc::new(with_operations(dir.path(), gate.steps));
    for key in ["a", "b", "c", "d"] {
        flushes(&store, key);
    }
    gate.reached.recv_timeout(HANGS_AFTER).unwrap();
    for key in ["e", "f"] {
        flushes(&store, key);
    }
    gate.go_on.send(()).unwrap();
    drop(store);
    assert_eq!(values(&process(dir.path()), &["a", "b", "c", "d", "e", "f"]), [7; 6]);
}

#[test]
fn a_store_that_is_closed_leaves_nothing_that_it_has_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let ids: Vec<String> = (0..20).map(|id| format!("key {id}")).collect();
    for id in &ids {
        compute(&store, &[id], 7);
        store.flush().unwrap();
    }
    drop(store);
    let store = process(dir.path());
    assert_eq!(store.stats().segments as usize, names(dir.path(), "seg-").len());
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(values(&store, &ids), [7; 20]);
}
