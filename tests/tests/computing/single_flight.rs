//! Samples that several requests miss at the same time: one loads them, the others wait for it, and none waits for ever.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::collections::HashMap;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use tcx::{Cache, Cached, Error, Extractor, Missing, Mode, Result, WhenFull, cached_module};
use tcx_tests::StampedEcho;
use tcx_tests::threads::{Random, ends_within};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Twice the input.
#[cached_module(id = "flight_doubles_v1", key = i64)]
struct Doubles {}

impl Extractor for Doubles {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(inputs.iter().map(|x| 2 * x).collect())
    }
}

/// How often each sample was loaded.
#[derive(Clone, Default)]
struct Loads(Arc<Mutex<HashMap<i64, usize>>>);

impl Loads {
    #[expect(clippy::unnecessary_wraps, reason = "a loader may fail")]
    fn load(&self, missing: Missing<'_, i64>) -> Result<Vec<i64>> {
        let ids: Vec<i64> = missing.ids().copied().collect();
        for id in &ids {
            *self.0.lock().unwrap().entry(*id).or_default() += 1;
        }
        thread::yield_now();
        Ok(ids)
    }

    fn take(&self) -> HashMap<i64, usize> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn open(cache: &Cache) -> Arc<Cached<Doubles>> {
    Arc::new(cache.module(Doubles {}).unwrap())
}

fn doubled(ids: &[i64]) -> Vec<i64> {
    ids.iter().map(|id| 2 * id).collect()
}

fn once(ids: impl IntoIterator<Item = i64>) -> HashMap<i64, usize> {
    ids.into_iter().map(|id| (id, 1)).collect()
}

/// The limit is half of the time after which a request that waits for nothing goes on.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    ends_within(Duration::from_secs(30), work)
}

#[test]
fn threads_and_tasks_that_ask_for_the_same_ids_load_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let (handles, loads) = ([open(&cache), open(&Cache::open(dir.path()).unwrap())], Loads::default());
    thread::scope(|scope| {
        for at in 0..32 {
            let (own, loads) = (&handles[at % 2], &loads);
            scope.spawn(move || {
                let ids: Vec<i64> = (0..8).collect();
                assert_eq!(own.fetch(&ids, |missing| loads.load(missing)).unwrap(), doubled(&ids));
            });
        }
    });
    assert_eq!(loads.take(), once(0..8));

    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap().block_on(async {
        let tasks: Vec<_> = (0..32)
            .map(|at| {
                let (own, loads) = (handles[at % 2].clone(), loads.clone());
                tokio::spawn(async move {
                    if at % 4 < 2 {
                        let ids: Vec<i64> = (8..16).collect();
                        return own.fetch_owned(ids, move |missing| loads.load(missing)).await;
                    }
                    let load = async |missing: Missing<'_, i64>| {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        loads.load(missing)
                    };
                    own.fetch_async(&(8..16).collect::<Vec<i64>>(), load).await
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap(), doubled(&(8..16).collect::<Vec<_>>()));
        }
    });
    assert_eq!(loads.take(), once(8..16));
}

#[test]
fn overlapping_requests_load_each_id_once() {
    let dir = tempfile::tempdir().unwrap();
    let (doubles, loads) = (open(&Cache::open(dir.path()).unwrap()), Loads::default());
    ends(move || {
        thread::scope(|scope| {
            for seed in 0..16 {
                let (doubles, loads) = (&doubles, &loads);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..20 {
                        let ids = random.ids(24, 200);
                        let found = doubles.fetch(&ids, |missing| loads.load(missing)).unwrap();
                        assert_eq!(found, doubled(&ids));
                    }
                });
            }
        });
        let loads = loads.take();
        assert!(loads.len() > 100 && loads.values().all(|count| *count == 1), "{loads:?}");
    });
}

/// Requests of every kind with loaders that fail, panic and ask for other samples, in any order.
#[test]
fn requests_that_fail_panic_and_ask_for_each_other_end_and_return_the_right_rows() {
    let dir = tempfile::tempdir().unwrap();
    let doubles = open(&Cache::builder().recheck(0.).open(dir.path()).unwrap());
    ends(move || {
        thread::scope(|scope| {
            for seed in 100..108 {
                let doubles = &doubles;
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..60 {
                        random_request(doubles, &mut random);
                    }
                });
            }
        });
        let all: Vec<i64> = (0..60).collect();
        let found = doubles.fetch(&all, |missing| Ok(missing.ids().copied().collect())).unwrap();
        assert_eq!(found, doubled(&all));
    });
}

fn random_request(doubles: &Cached<Doubles>, random: &mut Random) {
    let ids = random.ids(12, 60);
    if random.below(20) == 0 {
        doubles.invalidate(&ids).unwrap();
        return;
    }
    if random.below(5) == 0 {
        assert_eq!(doubles.forward(&ids, &ids).unwrap(), doubled(&ids));
        return;
    }
    let (end, nested) = (random.below(6), random.ids(6, 60));
    let request = || {
        doubles.fetch(&ids, |missing| {
            match end {
                0 => return Err(Error::loader("as asked")),
                1 => std::panic::panic_any("as asked"),
                2 => {
                    let load = |missing: Missing<'_, i64>| Ok(missing.ids().copied().collect());
                    assert_eq!(doubles.fetch(&nested, load)?, doubled(&nested));
                }
                3 => assert_eq!(doubles.forward(&nested, &nested)?, doubled(&nested)),
                _ => thread::yield_now(),
            }
            Ok(missing.ids().copied().collect())
        })
    };
    match catch_unwind(AssertUnwindSafe(request)) {
        Ok(Ok(found)) => assert_eq!(found, doubled(&ids)),
        Ok(Err(error)) => assert!(end == 0 && format!("{error:#}").contains("as asked"), "{error:#}"),
        Err(panic) => assert!(end == 1 && panic.downcast_ref() == Some(&"as asked"), "another panic"),
    }
}

#[test]
fn loaders_that_ask_for_the_samples_of_each_other_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let doubles = open(&Cache::open(dir.path()).unwrap());
    let both = Arc::new(Barrier::new(2));
    ends(move || {
        let request = |own: i64, other: i64| {
            doubles.fetch(&[own], |_| {
                both.wait();
                assert_eq!(doubles.fetch(&[other], |_| Ok(vec![other]))?, [2 * other]);
                // Its own sample, too.
                assert_eq!(doubles.fetch(&[own], |_| Ok(vec![own]))?, [2 * own]);
                Ok(vec![own])
            })
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| request(1, 2).unwrap());
            assert_eq!((request(2, 1).unwrap(), first.join().unwrap()), (vec![4], vec![2]));
        });
    });
}

#[test]
fn those_that_wait_for_a_loader_that_fails_load_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let doubles = open(&Cache::open(dir.path()).unwrap());
    for (id, panics) in [(1, false), (2, true)] {
        let doubles = doubles.clone();
        ends(move || {
            let (begins, begun) = channel();
            let (go, goes) = channel::<()>();
            let goes = Mutex::new(goes);
            thread::scope(|scope| {
                let first = scope.spawn(|| {
                    doubles.fetch(&[id], |_| {
                        begins.send(()).unwrap();
                        goes.lock().unwrap().recv().unwrap();
                        if panics { panic!("as asked") } else { Err(Error::loader("as asked")) }
                    })
                });
                begun.recv().unwrap();
                let others: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| doubles.fetch(&[id], |_| Ok(vec![id])))).collect();
                go.send(()).unwrap();
                assert_eq!(first.join().is_err(), panics);
                for other in others {
                    assert_eq!(other.join().unwrap().unwrap(), [2 * id]);
                }
            });
        });
    }
}

#[test]
fn a_future_that_is_dropped_while_it_loads_gives_its_samples_back() {
    let dir = tempfile::tempdir().unwrap();
    let doubles = open(&Cache::open(dir.path()).unwrap());
    ends(move || {
        Builder::new_current_thread().build().unwrap().block_on(async {
            let (begins, begun) = oneshot::channel();
            let own = doubles.clone();
            let first = tokio::spawn(async move {
                let load = async |_: Missing<'_, i64>| {
                    begins.send(()).unwrap();
                    pending().await
                };
                own.fetch_async(&[1], load).await
            });
            begun.await.unwrap();
            let loads = Loads::default();
            let others: Vec<_> = (0..8)
                .map(|_| {
                    let (own, loads) = (doubles.clone(), loads.clone());
                    tokio::spawn(own.fetch_owned(vec![1], move |missing| loads.load(missing)))
                })
                .collect();
            tokio::task::yield_now().await;
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            for other in others {
                assert_eq!(other.await.unwrap().unwrap(), [2]);
            }
            assert_eq!(loads.take(), once([1]), "one of them took over");
        });
    });
}

#[test]
fn an_asynchronous_loader_reports_errors_and_panics_and_may_ask_for_more() {
    let dir = tempfile::tempdir().unwrap();
    let doubles = open(&Cache::open(dir.path()).unwrap());
    ends(move || {
        Builder::new_current_thread().build().unwrap().block_on(async {
            let failed = doubles.fetch_async(&[1], async |_| Err(Error::loader("as asked"))).await;
            assert!(format!("{:#}", failed.unwrap_err()).ends_with("as asked"));
            let own = doubles.clone();
            let panics = async |_: Missing<'_, i64>| panic!("as asked");
            let panicked = tokio::spawn(async move { own.fetch_async(&[1], panics).await }).await;
            assert!(panicked.unwrap_err().is_panic());
            let short = doubles.fetch_async(&[1, 2], async |_| Ok(vec![1])).await.unwrap_err();
            assert_eq!(short.expected(), Some("2"));
            let nested = async |missing: Missing<'_, i64>| {
                // One of its own, and another one.
                assert_eq!(doubles.fetch_async(&[1, 2], async |_| Ok(vec![1, 2])).await?, [2, 4]);
                Ok(missing.ids().copied().collect())
            };
            assert_eq!(doubles.fetch_async(&[1, 3], nested).await.unwrap(), [2, 6]);
        });
    });
}

/// Two requests load the same sample at the same time.
fn load_at_once<T: Send>(request: impl Fn(usize, &Barrier) -> T + Sync) -> Vec<T> {
    let both = Barrier::new(2);
    thread::scope(|scope| {
        let requests: Vec<_> = (0..2)
            .map(|at| {
                let (request, both) = (&request, &both);
                scope.spawn(move || request(at, both))
            })
            .collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    })
}

#[test]
fn what_no_other_request_finds_keeps_none_waiting() {
    ends(|| {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let full = tempfile::tempdir().unwrap();
        open(&Cache::open(full.path()).unwrap()).forward(&[7], &vec![7]).unwrap();
        let full = Cache::builder().max_bytes(1, WhenFull::StopWriting).open(full.path()).unwrap();
        for cache in [cache.with_mode(Mode::Off), cache.with_mode(Mode::ReadOnly), full] {
            let doubles = open(&cache);
            let found = load_at_once(|_, both| {
                doubles.fetch(&[1], |_| {
                    both.wait();
                    Ok(vec![1])
                })
            });
            assert!(found.into_iter().all(|found| found.unwrap() == [2]));
        }
        // Another stamp, another view: another row.
        let echo = cache.module(StampedEcho {}).unwrap();
        let found = load_at_once(|at, both| {
            echo.fetch(&[(1, at as u64)], |_| {
                both.wait();
                Ok(vec![at as i64])
            })
        });
        let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
        assert_eq!(found, [[0], [1]]);
        let doubles = open(&cache);
        load_at_once(|at, both| {
            let load = |_: Missing<'_, i64>| {
                both.wait();
                Ok(vec![1])
            };
            assert_eq!(doubles.view(at as u32).fetch(&[1], load).unwrap(), [2]);
        });
    });
}

#[test]
fn each_recomputing_handle_loads_each_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let ids: Vec<i64> = (0..8).collect();
    open(&cache).forward(&ids, &ids).unwrap();
    for _ in 0..2 {
        let (doubles, loads) = (open(&cache.with_mode(Mode::Recompute)), Loads::default());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let found = doubles.fetch(&ids, |missing| loads.load(missing)).unwrap();
                    assert_eq!(found, doubled(&ids));
                });
            }
        });
        assert_eq!(loads.take(), once(0..8));
    }
}

#[test]
fn a_request_after_an_invalidation_does_not_take_the_row_of_a_loader_that_began_before() {
    let dir = tempfile::tempdir().unwrap();
    let doubles = open(&Cache::open(dir.path()).unwrap());
    ends(move || {
        let (begins, begun) = channel();
        let (go, goes) = channel::<()>();
        let goes = Mutex::new(goes);
        thread::scope(|scope| {
            let before = scope.spawn(|| {
                doubles.fetch(&[1], |_| {
                    begins.send(()).unwrap();
                    goes.lock().unwrap().recv().unwrap();
                    Ok(vec![1])
                })
            });
            begun.recv().unwrap();
            doubles.invalidate(&[1]).unwrap();
            let after = scope.spawn(|| doubles.fetch(&[1], |_| Ok(vec![5])));
            thread::sleep(Duration::from_millis(20));
            go.send(()).unwrap();
            assert_eq!(before.join().unwrap().unwrap(), [2]);
            assert_eq!(after.join().unwrap().unwrap(), [10]);
        });
        assert_eq!(doubles.forward(&[1], &vec![0]).unwrap(), [10]);
    });
}
