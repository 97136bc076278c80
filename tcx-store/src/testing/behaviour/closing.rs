//! A module is opened while the process drops its last handle, and what was buffered is being written.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::testing::{column, keys, spec, values};
use crate::{Attestation, OnMismatch, Options, Store};

fn options() -> Options {
    Options { flush_interval: Duration::from_hours(1), ..Options::default() }
}

/// Puts a row that is written once `attestation` has answered.
fn put(store: &Store, attestation: &Arc<Attestation>) {
    let mut rows = store.lookup_to_put(keys(&["x"]), None).unwrap();
    store.insert_attested(&mut rows, &[0], column(&[1]), attestation).unwrap();
}

#[test]
fn a_module_that_is_opened_while_it_is_closed_has_the_rows_that_were_buffered() {
    for on_mismatch in [OnMismatch::Refuse, OnMismatch::Separate] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { on_mismatch, ..options() };
        let (asked, is_asked) = channel();
        let (answer, answered) = channel::<()>();
        let answered = Mutex::new(answered);
        let attestation = Attestation::new(move || {
            let _ = asked.send(());
            let _ = answered.lock().unwrap().recv();
            Ok(())
        });
        let first = Store::open(dir.path(), spec(), &options).unwrap();
        put(&first, &attestation);
        thread::scope(|scope| {
            scope.spawn(|| drop(first));
            is_asked.recv().unwrap();
            let second = scope.spawn(|| {
                let second = Store::open(dir.path(), spec(), &options).unwrap();
                let missing = second.lookup_to_put(keys(&["x"]), None).unwrap().missing();
                (missing, second)
            });
            // Long enough that it would have opened the folder without the row.
            thread::sleep(Duration::from_millis(100));
            drop(answer);
            let (missing, second) = second.join().unwrap();
            assert_eq!((missing, values(&second, &["x"])), (0, vec![1]));
        });
    }
}

#[test]
fn a_thread_that_writes_the_rows_may_open_the_module_that_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let (opened, is_opened) = channel();
    let attestation = Attestation::new(move || {
        let second = Store::open(&path, spec(), &options()).unwrap();
        let _ = opened.send(second.lookup(keys(&["x"])).unwrap().missing());
        Ok(())
    });
    let first = Store::open(dir.path(), spec(), &options()).unwrap();
    put(&first, &attestation);
    drop(first);
    assert_eq!(is_opened.recv().unwrap(), 1, "it is not written yet");
    let second = Store::open(dir.path(), spec(), &options()).unwrap();
    assert_eq!(values(&second, &["x"]), [1]);
}
