//! A change that commits rows and cannot be read for a while: whatever is computed meanwhile displaces none of them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use crate::changes::Doomed;
use crate::testing::{Fault, Faulty};
use crate::testing::{column, compute, keys, names, process, replace, seal_all, values, with_operations};
use crate::upkeep::tasks::merge_changes;
use crate::{LookupOptions, RecomputeSession, Store};

/// A process that cannot read the file of this change as long as the flag is set.
fn without_change(number: u64, dir: &Path, fails: &Arc<AtomicBool>) -> Store {
    let (fails, file) = (fails.clone(), format!("change-{number:020}"));
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| *name == *file);
        (step == "open" && is_change && fails.load(SeqCst)).then_some(Fault::Refused(ErrorKind::Other))
    });
    with_operations(dir, steps)
}

#[test]
fn what_is_computed_meanwhile_does_not_displace_a_replacement_whether_changes_are_merged_or_not() {
    for is_merged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        seal_all(&store);
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&store);
        for _ in 0..20 {
            store.core.kill(Doomed::Keys(vec![b"other".as_slice().into()])).unwrap();
        }
        if is_merged {
            merge_changes(&store.core);
        }
        assert_eq!(names(dir.path(), "merged-").len(), usize::from(is_merged));
        let fails = Arc::new(AtomicBool::new(true));
        let other = without_change(1, dir.path(), &fails);
        for session in [None, Some(&RecomputeSession::new())] {
            let refused = other.lookup_to_put(keys(&["y"]), session).unwrap_err().to_string();
            assert!(refused.contains("change-00000000000000000001"), "{refused}");
        }
        compute(&other, &["x"], 7);
        // Where it knows what the change kills, the row is dropped, and that is said; otherwise it waits for the change.
        let refused = other.flush().unwrap_err().to_string();
        assert_eq!(refused.contains("1 computed row was not kept"), is_merged, "{refused}");
        assert_eq!(other.stats().rows_not_kept(), u64::from(is_merged));
        fails.store(false, SeqCst);
        other.flush().unwrap();
        other.refresh().unwrap();
        assert_eq!(other.lookup_to_put(keys(&["y"]), None).unwrap().missing(), 1);
        other.compact().unwrap();
        assert_eq!(
            (values(&other, &["x"]), values(&process(dir.path()), &["x"])),
            (vec![1000], vec![1000]),
            "merged: {is_merged}"
        );
    }
}

#[test]
fn what_is_computed_while_a_later_change_hides_a_replacement_does_not_displace_it() {
    for session in [None, Some(RecomputeSession::new())] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x", "y", "z"], 1);
        seal_all(&store);
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&store);
        let fails = Arc::new(AtomicBool::new(false));
        let other = without_change(2, dir.path(), &fails);
        assert_eq!(values(&other, &["x", "y"]), [1000, 1]);
        fails.store(true, SeqCst);
        store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
        other.refresh().unwrap();
        // Change 2 names neither, and hides both.
        let recompute = LookupOptions { recompute: session.as_ref(), ..LookupOptions::default() };
        let mut rows = other.lookup_with(keys(&["x"]), recompute).unwrap();
        assert_eq!(rows.missing(), 1);
        other.insert(&mut rows, &[0], column(&[7])).unwrap();
        compute(&other, &["y"], 1);
        // A row that no change names is kept: no value was put in its place.
        assert_eq!(other.stats().rows_not_kept(), u64::from(session.is_none()));
        fails.store(false, SeqCst);
        let flushed = other.flush();
        assert_eq!(flushed.is_err(), session.is_none(), "{flushed:?}");
        other.refresh().unwrap();
        other.compact().unwrap();
        let expected = [if session.is_none() { 1000 } else { 7 }, 1];
        assert_eq!(values(&other, &["x", "y"]), expected);
        assert_eq!(values(&process(dir.path()), &["x", "y"]), expected);
    }
}
