//! A handle that computes returns an error if its thread requests more missing samples from it: it would wait for itself. Tables do not wait for
//! each other either.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::Duration;

use tcx::{Cache, Cached, Extractor, Table, cached_module};

fn refused<T>(result: tcx::Result<T>) -> String {
    let Err(error) = result else { panic!("it was accepted") };
    assert_eq!(error.kind(), tcx::ErrorKind::ModuleViolation, "{error}");
    error.to_string()
}

/// Fails the test if `work` does not end; a hanging thread ends with the process.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    thread::spawn(move || done.send(work()));
    match result.recv_timeout(Duration::from_mins(1)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("it waits for itself"),
        Err(RecvTimeoutError::Disconnected) => panic!("it panicked"),
    }
}

static OWN: OnceLock<Cached<AsksItself>> = OnceLock::new();

/// Requests the previous sample from its own handle.
#[cached_module(id = "asks_itself_v1", key = i64)]
struct AsksItself;

impl Extractor for AsksItself {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        let own = OWN.get().unwrap();
        match inputs[0] {
            0 => Ok(inputs.clone()),
            // A network that is in use stays.
            -1 => Ok(vec![i64::from(own.release())]),
            -2 => Ok(vec![own.verify(1., 0, |asked| Ok(vec![0; asked.len()]))?.checked as i64]),
            id => Ok(vec![own.forward(&[id - 1], &vec![id - 1])?[0] + 1]),
        }
    }
}

#[test]
fn a_forward_that_asks_its_own_handle_is_an_error_and_no_hang() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let own = || OWN.get().unwrap();
    assert!(OWN.set(cache.module(AsksItself).unwrap()).is_ok());
    let said = ends(move || refused(own().forward(&[5], &vec![5])));
    assert!(said.starts_with("module `asks_itself_v1`: "), "{said}");
    assert!(said.contains("its own handle") && said.contains("; "), "{said}");
    // Found rows are not computed.
    assert_eq!(ends(move || own().forward(&[0], &vec![0]).unwrap()), [0]);
    assert_eq!(ends(move || own().forward(&[1], &vec![1]).unwrap()), [1]);
    assert_eq!(ends(move || own().forward(&[-1], &vec![-1]).unwrap()), [0]);
    let said = ends(move || refused(own().forward(&[-2], &vec![-2])));
    assert!(said.contains("its own handle"), "{said}");
    // A loader may use the handle, and another handle of the module may be used.
    let loads = move || {
        own().fetch(&[2], |_| own().forward(&[3], &vec![0]).map(|_| vec![2])).map_err(|e| format!("{e:#}"))
    };
    assert_eq!(ends(loads).unwrap(), [2]);
}

static TABLE: OnceLock<Table<Vec<i64>>> = OnceLock::new();

#[test]
fn a_closure_that_asks_its_own_table_is_an_error_and_no_hang() {
    let dir = tempfile::tempdir().unwrap();
    let table = || TABLE.get().unwrap();
    assert!(TABLE.set(Cache::open(dir.path()).unwrap().table("asks_itself_too_v1").unwrap()).is_ok());
    let inner: [fn() -> tcx::Result<Vec<i64>>; 3] = [
        || TABLE.get().unwrap().get_or_compute(&["b"], |_| Ok(vec![1])),
        || TABLE.get().unwrap().put(&["b"], &vec![1]).map(|_| vec![1]),
        || TABLE.get().unwrap().replace(&["b"], &vec![1]).map(|()| vec![1]),
    ];
    for inner in inner {
        let said = ends(move || refused(table().get_or_compute(&["a"], |_| inner())));
        assert!(said.starts_with("module `asks_itself_too_v1`: ") && said.contains("its own"), "{said}");
    }
    assert_eq!(ends(move || table().get_or_compute(&["a"], |_| Ok(vec![3])).unwrap()), [3]);
}

#[test]
fn a_closure_may_use_another_handle_of_its_table_for_its_own_values() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Cache::open(dir.path()).unwrap().table::<Vec<i64>>("numbers_v1").unwrap();
    let (first, second) = (open(), open());
    let (done, result) = channel();
    thread::spawn(move || {
        let nested = first.get_or_compute(&["a"], |_| second.get_or_compute(&["a"], |_| Ok(vec![5])));
        done.send(nested.unwrap()).unwrap();
    });
    // Half of the time after which a request that waits for nothing goes on.
    assert_eq!(result.recv_timeout(Duration::from_secs(30)).expect("it waits for itself"), [5]);
}

/// With other ids, so that neither waits for a value of the other.
#[test]
fn closures_that_use_the_table_of_each_other_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let open = |name| Arc::new(cache.table::<Vec<i64>>(name).unwrap());
    for (one, other) in [(open("a_v1"), open("b_v1")), (open("c_v1"), open("c_v1"))] {
        let (both, (tell, told)) = (Arc::new(Barrier::new(2)), channel());
        for (own, its, ids) in [(one.clone(), other.clone(), ["x", "y"]), (other, one, ["z", "w"])] {
            let (both, tell) = (both.clone(), tell.clone());
            thread::spawn(move || {
                let found = own.get_or_compute(&[ids[0]], |_| {
                    both.wait();
                    its.get_or_compute(&[ids[1]], |_| Ok(vec![1]))
                });
                tell.send(found.unwrap()).unwrap();
            });
        }
        for _ in 0..2 {
            assert_eq!(told.recv_timeout(Duration::from_mins(1)).unwrap(), [1]);
        }
    }
}

#[test]
fn functions_that_validate_by_the_table_of_each_other_do_not_wait_for_each_other() {
    type Numbers = Arc<OnceLock<Table<Vec<i64>>>>;
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let (one, other) = (Numbers::default(), Numbers::default());
    let both = Arc::new(Barrier::new(2));
    for (name, own, its) in [("a_v1", &one, &other), ("b_v1", &other, &one)] {
        let (its, both, has_asked) = (its.clone(), both.clone(), AtomicBool::new(false));
        let table = Table::builder(name).validate(move |_| {
            if !has_asked.swap(true, Ordering::Relaxed) {
                both.wait();
                its.get().unwrap().get_or_compute(&["inner"], |_| Ok(vec![2]))?;
            }
            Ok(())
        });
        own.set(table.open(&cache).unwrap()).ok().unwrap();
    }
    let (tell, found) = channel();
    for own in [one, other] {
        let tell = tell.clone();
        thread::spawn(move || {
            let found = own.get().unwrap().get_or_compute(&["outer"], |_| Ok(vec![1]));
            tell.send(found.unwrap()).unwrap();
        });
    }
    for _ in 0..2 {
        assert_eq!(found.recv_timeout(Duration::from_mins(1)).unwrap(), [1]);
    }
}
