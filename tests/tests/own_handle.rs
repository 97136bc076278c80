//! A handle that computes returns an error if its thread requests more missing samples from it: it would wait for itself.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
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
    std::thread::spawn(move || done.send(work()));
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
