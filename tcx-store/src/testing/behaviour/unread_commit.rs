//! A change that commits rows and cannot be read for a while: whatever is computed meanwhile displaces none of them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use crate::changes::Doomed;
use crate::testing::{Fault, Faulty};
use crate::testing::{compute, keys, names, process, replace, seal_all, values, with_operations};
use crate::upkeep::tasks::merge_changes;
use crate::{RecomputeSession, Store};

/// A process that cannot read the file of change 1 as long as the flag is set.
fn without_change_1(dir: &Path, fails: &Arc<AtomicBool>) -> Store {
    let fails = fails.clone();
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_change = path.file_name().is_some_and(|name| name == "change-00000000000000000001");
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
        let other = without_change_1(dir.path(), &fails);
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
