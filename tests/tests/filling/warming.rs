//! Filling a cache with threads that load ahead of the one that computes, and ending it early.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tcx::{Cache, Cached, Error, Extractor, Missing, Result, Stop, cached_module};

/// Gives its inputs back; in between, waits until the loader has come further.
#[cached_module(id = "loaded_ahead_v1", key = i64)]
struct Waits {
    #[tcx(assume_stateless)]
    loading: Option<Mutex<Receiver<i64>>>,
    #[tcx(assume_stateless)]
    computed: Arc<Mutex<Vec<i64>>>,
}

impl Extractor for Waits {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        let last = *inputs.last().unwrap();
        // Not those that are computed alone, to see that the module is what it promises.
        if let Some(loading) = self.loading.as_ref().filter(|_| inputs.len() == 10) {
            // The end of the channel is the end of the list.
            while loading.lock().unwrap().recv().is_ok_and(|begun| begun <= last) {}
        }
        self.computed.lock().unwrap().extend(inputs);
        Ok(inputs.clone())
    }
}

fn open(cache: &Cache, loading: Option<Receiver<i64>>) -> (Cached<Waits>, Arc<Mutex<Vec<i64>>>) {
    let computed = Arc::<Mutex<Vec<i64>>>::default();
    let module = Waits { loading: loading.map(Mutex::new), computed: computed.clone() };
    (cache.module(module).unwrap().batch_size(10), computed)
}

fn cache(dir: &tempfile::TempDir) -> Cache {
    Cache::builder().recheck(0.).open(dir.path()).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "a loader may fail")]
fn load(missing: Missing<'_, i64>) -> Result<Vec<i64>> {
    Ok(missing.ids().copied().collect())
}

#[test]
fn the_next_batch_is_being_loaded_while_one_is_computed_and_the_order_is_kept() {
    for workers in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let (begins, begun) = channel();
        let (waits, computed) = open(&cache(&dir), Some(begun));
        let ids: Vec<i64> = (0..100).collect();
        // Dropped with the loader of the last batch.
        let begins: Mutex<Option<Sender<i64>>> = Mutex::new(Some(begins));
        let report = waits.warming().workers(workers).run(&ids, |missing| {
            let first = *missing.ids().next().unwrap();
            let mut begins = begins.lock().unwrap();
            if let Some(begins) = &*begins {
                begins.send(first).unwrap();
            }
            if first == 90 {
                *begins = None;
            }
            load(missing)
        });
        let report = report.unwrap();
        assert_eq!((report.asked, report.computed, report.not_kept, report.stopped), (100, 100, 0, false));
        let mut computed = computed.lock().unwrap().clone();
        // Samples of the first batch are computed again, to see that the module is what it promises.
        let mut seen = std::collections::HashSet::new();
        computed.retain(|id| seen.insert(*id));
        assert_eq!(computed, ids);
        assert_eq!(waits.stats().rows_sealed, 100, "durable");
    }
}

#[test]
fn a_request_to_stop_ends_it_and_what_was_computed_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<i64> = (0..1_000).collect();
    let (waits, _) = open(&cache(&dir), None);
    let flag = Arc::new(AtomicBool::new(false));
    let stops = |missing: Missing<'_, i64>| {
        if missing.ids().any(|id| *id == 200) {
            flag.store(true, Ordering::Release);
        }
        load(missing)
    };
    let report = waits.warming().workers(2).stop(flag.clone()).run(&ids, stops).unwrap();
    assert!(report.stopped);
    // What was under way is kept: at most three batches.
    assert!((210..=230).contains(&report.computed), "{report:?}");
    assert_eq!(waits.stats().rows_sealed, report.computed as u64);
    let stopped = Stop::from(flag);
    let report = waits.view(1).warming().stop(&stopped).run(&ids, |_| panic!("it was stopped before"));
    assert_eq!(report.unwrap().computed, 0);
    let report = waits.warming().stop(Stop::new()).run(&ids, load).unwrap();
    assert!(!report.stopped && waits.coverage(&ids).unwrap().is_complete());
    let report = waits.warming().stop(&stopped).run(&ids, |_| panic!("everything is there")).unwrap();
    assert!(!report.stopped, "it came to its end");
}

#[test]
fn an_error_or_a_panic_of_the_loader_ends_it_after_the_batches_before() {
    for panics in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (waits, _) = open(&cache(&dir), None);
        let ids: Vec<i64> = (0..200).collect();
        let fails = |missing: Missing<'_, i64>| match missing.positions()[0] {
            50 if panics => panic!("as asked"),
            50 => Err(Error::loader("as asked")),
            _ => load(missing),
        };
        let done = catch_unwind(AssertUnwindSafe(|| waits.warming().workers(3).run(&ids, fails)));
        match done {
            Ok(done) => {
                assert!(!panics && format!("{:#}", done.unwrap_err()).contains("as asked"));
                assert_eq!(waits.stats().rows_sealed, 50, "on disk, although it ended with an error");
            }
            Err(panic) => assert!(panics && panic.downcast_ref() == Some(&"as asked")),
        }
        let coverage = waits.coverage(&ids).unwrap();
        assert_eq!(coverage.missing(), (50..200).collect::<Vec<_>>());
        let (done, computed) = channel();
        thread::spawn(move || {
            let report = waits.warming().run(&ids, load).unwrap();
            drop(waits);
            done.send(report.computed)
        });
        // Half of the time that a request waits for samples that stay claimed.
        assert_eq!(computed.recv_timeout(Duration::from_secs(30)), Ok(150), "nothing is left claimed");
    }
}

#[test]
fn several_at_once_share_the_work_and_load_each_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(&dir);
    let ids: Vec<i64> = (0..500).collect();
    let loads = Mutex::new(HashMap::<i64, usize>::new());
    let counted = |missing: Missing<'_, i64>| {
        for id in missing.ids() {
            *loads.lock().unwrap().entry(*id).or_default() += 1;
        }
        load(missing)
    };
    let computed: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|at| {
                let (ids, cache, counted) = (&ids, &cache, &counted);
                scope.spawn(move || {
                    let (waits, _) = open(cache, None);
                    let report = match at {
                        0 => waits.warm(ids, counted),
                        at => waits.warming().workers(at).run(ids, counted),
                    };
                    assert!(waits.coverage(ids).unwrap().is_complete());
                    report.unwrap().computed
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(computed, 500);
    let loads = loads.into_inner().unwrap();
    assert!(loads.len() == 500 && loads.values().all(|count| *count == 1), "{loads:?}");
}

#[cfg(target_os = "linux")]
mod interrupted {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Duration;

    use tcx::Cache;
    use tcx_tests::Scaled;

    /// A process that fills a cache, and the lines that it prints. Its Ctrl-C is the usual one, or ignored, as that of jobs in the
    /// background.
    fn start(dir: &Path, ctrl_c: &str) -> (Child, impl Iterator<Item = String>) {
        let mut child = Command::new("env")
            .args([ctrl_c, env!("CARGO_BIN_EXE_interrupted")])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(std::io::Result::unwrap);
        (child, lines)
    }

    fn press_ctrl_c(child: &Child) {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    }

    #[test]
    fn ctrl_c_ends_it_and_every_computed_row_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, mut lines) = start(dir.path(), "--default-signal=INT");
        assert_eq!(lines.next().as_deref(), Some("began"));
        press_ctrl_c(&child);
        let computed: usize = lines.next().unwrap().parse().unwrap();
        child.wait().unwrap();
        assert!(computed > 0 && computed < 1_000_000);
        let scaled = Cache::open(dir.path()).unwrap().module(Scaled::new(2.)).unwrap();
        assert_eq!(scaled.stats().rows, computed as u64);
    }

    #[test]
    fn a_process_that_ignores_ctrl_c_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, mut lines) = start(dir.path(), "--ignore-signal=INT");
        assert_eq!(lines.next().as_deref(), Some("began"));
        press_ctrl_c(&child);
        // Time to end, if it does not ignore the signal.
        thread::sleep(Duration::from_millis(500));
        assert_eq!(child.try_wait().unwrap(), None, "it goes on");
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "ended by SIGKILL, not by Ctrl-C");
    }
}
