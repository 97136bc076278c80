//! Workers that are threads of one process, each with a cache of its own in the same directory.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::rank::Rank;
use super::sequence::Sequence;
use crate::cache::stop::Stop;
use crate::{Cache, Cached, Error, ErrorKind, Extractor, Missing, Result, cached_module};

#[cached_module(id = "shared_squares_v1", key = i64)]
struct Squares {}

impl Extractor for Squares {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, x: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(x.iter().map(|x| x * x).collect())
    }
}

fn open(dir: &Path) -> Cached<Squares> {
    Cache::open(dir).unwrap().module(Squares {}).unwrap().batch_size(16)
}

#[expect(clippy::unnecessary_wraps, reason = "it is a loader")]
fn load(missing: Missing<'_, i64>) -> Result<Vec<i64>> {
    Ok(missing.ids().copied().collect())
}

fn up_to(end: i64) -> Vec<i64> {
    (0..end).collect()
}

fn in_memory() -> Cached<Squares> {
    Cache::in_memory().module(Squares {}).unwrap().batch_size(16)
}

#[test]
fn workers_divide_the_ids_and_each_sees_the_end() {
    let (dir, ids) = (tempfile::tempdir().unwrap(), up_to(3000));
    let loaded = AtomicUsize::new(0);
    let counted = |missing: Missing<'_, i64>| {
        loaded.fetch_add(missing.len(), Ordering::Relaxed);
        // The others get their turn.
        thread::sleep(Duration::from_millis(1));
        load(missing)
    };
    let reports: Vec<_> = thread::scope(|scope| {
        let work = || open(dir.path()).warming().range_size(100).run_shared(&ids, counted).unwrap();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let computed: u64 = reports.iter().map(|report| report.computed).sum();
    assert_eq!((computed, loaded.into_inner()), (3000, 3000), "each sample once");
    assert!(reports.iter().all(|report| report.asked == 3000 && !report.stopped));
    let last =
        reports.iter().map(|report| report.workers.iter().map(|worker| worker.ranges).sum::<u64>()).max();
    assert_eq!(last, Some(30), "{reports:?}");
    assert!(open(dir.path()).coverage(&ids).unwrap().is_complete());
}

#[test]
fn a_call_after_the_end_looks_everything_up_again() {
    let (squares, ids) = (in_memory(), up_to(200));
    assert_eq!(squares.warm_shared(&ids, load).unwrap().computed, 200);
    let report = squares.warm_shared(&ids, load).unwrap();
    assert_eq!((report.computed, report.workers[0].found), (0, 200));
    squares.invalidate(&[7, 99]).unwrap();
    assert_eq!(squares.warm_shared(&ids, load).unwrap().computed, 2);
}

/// Makes a sequence of a list.
type Form = fn(&[i64]) -> Sequence<'_, i64>;

#[test]
fn ids_of_every_form_are_filled_at_their_positions() {
    let dir = tempfile::tempdir().unwrap();
    let lines = dir.path().join("ids.txt");
    let texts: Vec<String> = (0..150).map(|id| format!("{id}")).collect();
    std::fs::write(&lines, texts.join("\n\n")).unwrap();
    let listed: Vec<i64> = (0..150).collect();
    let forms: [Form; 3] = [
        |listed| listed.into(),
        |listed| Sequence::by_position(150, move |at| listed[at as usize]),
        |listed| Sequence::repeated(move || listed.iter().copied()),
    ];
    for form in forms {
        let (squares, seen) = (in_memory(), Mutex::new(Vec::new()));
        let warming = squares.warming().range_size(40).workers(2);
        let report = warming.run_shared(form(&listed), |missing| {
            assert!(missing.positions().iter().zip(missing.ids()).all(|(at, id)| *at as i64 == *id));
            seen.lock().unwrap().extend_from_slice(missing.positions());
            load(missing)
        });
        let report = report.unwrap();
        assert_eq!((report.asked, report.computed, report.workers[0].ranges), (150, 150, 4));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (0..150).collect::<Vec<_>>());
    }
    let mut read = Sequence::lines(&lines);
    assert_eq!(read.read(140, 20).unwrap(), &texts[140..]);
    assert_eq!(read.len(), Some(150));
    assert_eq!(read.read(0, 2).unwrap(), &texts[..2]);
    let error = Sequence::lines(dir.path().join("no.txt")).read(0, 1).unwrap_err();
    assert!(error.to_string().contains("cannot read ids from"), "{error}");
}

#[test]
fn what_workers_of_an_interrupted_call_had_finished_is_looked_up_again() {
    let (dir, ids) = (tempfile::tempdir().unwrap(), up_to(400));
    let loaded = AtomicUsize::new(0);
    let fails_later = |missing: Missing<'_, i64>| {
        if loaded.fetch_add(missing.len(), Ordering::Relaxed) < 200 {
            return load(missing);
        }
        Err(Error::loader(std::io::Error::other("the disk is gone")))
    };
    open(dir.path()).warming().range_size(50).run_shared(&ids, fails_later).unwrap_err();
    let folder = dir.path().join("shared_squares_v1");
    let mut segments = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("seg-") {
            std::fs::remove_file(path).unwrap();
            segments += 1;
        }
    }
    assert!(segments > 0);
    let report = open(dir.path()).warming().range_size(50).run_shared(&ids, load).unwrap();
    assert_eq!((report.asked, report.computed), (400, 400));
    assert!(open(dir.path()).coverage(&ids).unwrap().is_complete());
}

#[test]
fn an_empty_list_ends_at_once() {
    let (empty, none): (&[i64], _) = (&[], Sequence::repeated(std::iter::empty::<i64>));
    assert_eq!(in_memory().warm_shared(empty, load).unwrap().asked, 0);
    assert_eq!(in_memory().warm_shared(none, load).unwrap().asked, 0);
}

#[test]
fn a_worker_that_fails_leaves_its_ranges_to_the_next() {
    let (dir, ids) = (tempfile::tempdir().unwrap(), up_to(300));
    let failing = |missing: Missing<'_, i64>| {
        if missing.ids().any(|id| *id == 150) { Err(crate::Error::loader("no input")) } else { load(missing) }
    };
    let squares = open(dir.path());
    let error = squares.warming().range_size(50).run_shared(&ids, failing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Loader);
    let before = squares.stats().rows;
    let report = open(dir.path()).warming().range_size(50).run_shared(&ids, load).unwrap();
    assert_eq!(report.computed + before, 300);
    assert!(report.workers[0].taken_over >= 1, "at once, without waiting for the expiry time: {report}");
}

/// Whether a worker has written its record.
fn has_joined(dir: &Path) -> bool {
    let Ok(files) = std::fs::read_dir(dir.join("shared_squares_v1/leases")) else { return false };
    files.map(|file| file.unwrap().file_name()).any(|name| name.to_string_lossy().starts_with("worker-"))
}

#[test]
fn other_ids_under_the_name_of_a_job_that_is_running_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, mut reversed) = (up_to(200), up_to(200));
    reversed.reverse();
    let expiry = Duration::from_secs(2);
    let stop = Stop::new();
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let squares = open(dir.path());
            let warming = squares.warming().expiry(expiry).stop(&stop);
            warming.run_shared(&ids, |missing| {
                while !stop.is_stopped() {
                    thread::sleep(Duration::from_millis(10));
                }
                load(missing)
            })
        });
        let other = open(dir.path());
        while !has_joined(dir.path()) {
            thread::sleep(Duration::from_millis(10));
        }
        let error = other.warming().expiry(expiry).run_shared(&reversed, load).unwrap_err();
        assert!(error.to_string().contains("the same ids in another order"), "{error}");
        let error = other.warming().expiry(expiry).range_size(100).run_shared(&ids, load).unwrap_err();
        assert!(error.to_string().contains("work ranges of 64 ids, here of 100"), "{error}");
        other
            .warming()
            .job("others")
            .run_shared(Sequence::by_position(100, |at| 1000 + at as i64), load)
            .unwrap();
        stop.stop();
        assert!(running.join().unwrap().unwrap().stopped);
    });
    // No worker of it is alive any more.
    open(dir.path()).warming().expiry(expiry).run_shared(&reversed, load).unwrap();
}

#[test]
fn ids_that_differ_behind_the_first_range_are_refused_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, mut others) = (up_to(1000), up_to(1000));
    others[500..].reverse();
    let squares = open(dir.path());
    // A worker begins with any range, and ends when it comes to the first range: the last one is finished then.
    while squares.stats().rows == 0 {
        let failing = |missing: Missing<'_, i64>| {
            if missing.ids().any(|id| *id < 64) {
                Err(crate::Error::loader("no input"))
            } else {
                load(missing)
            }
        };
        squares.warm_shared(&ids, failing).unwrap_err();
    }
    let error = squares.warm_shared(&others, load).unwrap_err();
    assert!(error.to_string().contains("has other ids in work range 15"), "{error}");
    squares.warm_shared(&ids, load).unwrap();
}

#[test]
fn modes_and_settings_that_make_no_sense_are_refused() {
    let (cache, ids) = (Cache::in_memory(), [1, 2, 3]);
    let kind = |mode| {
        let squares = cache.with_mode(mode).module(Squares {}).unwrap();
        squares.warm_shared(&ids, load).unwrap_err().kind()
    };
    for mode in [crate::Mode::ReadOnly, crate::Mode::Recompute, crate::Mode::Off] {
        assert_eq!(kind(mode), ErrorKind::WrongMode, "{mode:?}");
    }
    let squares = in_memory();
    let none = squares.warming().range_size(0).run_shared(&ids, load).unwrap_err();
    assert!(none.to_string().contains("`range_size` is 0; expected 1 or more"), "{none}");
    let many = Sequence::by_position(1 << 40, |at| at as i64);
    let many = squares.warming().range_size(1).run_shared(many, load).unwrap_err();
    assert!(many.to_string().contains("set 1048576 or more"), "{many}");
    let short = squares.warming().expiry(Duration::ZERO).run_shared(&ids, load).unwrap_err();
    assert!(short.to_string().contains("expected 100 ms or more"), "{short}");
    for threads in [1025, usize::MAX] {
        let warming = || squares.warming().workers(threads).rank(Rank::new(0, 1).unwrap());
        for refused in [
            warming().run(&ids, load).unwrap_err(),
            warming().run_shared(&ids, load).unwrap_err(),
            warming().run_sharded(&ids, load).unwrap_err(),
        ] {
            assert_eq!(refused.kind(), ErrorKind::InvalidSettings);
            let expected = format!("`workers` is {threads}; expected at most 1024 threads");
            assert!(refused.to_string().contains(&expected), "{refused}");
        }
    }
}

#[test]
fn ranks_divide_the_ids_and_a_later_call_says_what_one_has_left() {
    let (squares, ids) = (in_memory(), up_to(1000));
    let run = |rank| {
        let warming = squares.warming().rank(Rank::new(rank, 3).unwrap()).range_size(70);
        warming.run_sharded(&ids, load).unwrap()
    };
    let first: Vec<_> = [0, 2].map(run).into();
    assert!(first.iter().all(|report| report.computed == report.asked));
    // Rank 1 died.
    let left = 1000 - first.iter().map(|report| report.asked).sum::<u64>();
    let computed = [0, 1, 2].map(|rank| run(rank).computed);
    assert_eq!(computed, [0, left, 0]);
    assert!(squares.coverage(&ids).unwrap().is_complete());
    assert_eq!(run(1).to_string(), format!("rank 1 of 3: 0 of {left} samples computed"));
}

#[test]
fn the_report_of_a_rank_counts_rows_that_a_full_folder_did_not_keep() {
    let (dir, ids) = (tempfile::tempdir().unwrap(), up_to(30));
    open(dir.path()).warm(&ids[..10], load).unwrap();
    let cache = Cache::builder().max_bytes(1, crate::WhenFull::StopWriting).open(dir.path()).unwrap();
    let squares = cache.module(Squares {}).unwrap();
    let report = squares.warming().rank(Rank::new(0, 1).unwrap()).run_sharded(&ids, load).unwrap();
    assert_eq!((report.computed, report.not_kept), (20, 20));
    assert_eq!(report.to_string(), "rank 0 of 1: 20 of 30 samples computed, 20 not kept");
}

#[test]
fn a_work_range_is_as_long_as_in_python() {
    // Workers of both languages may share a job. The Python package has the same list in its tests.
    let size = |ids| super::settings::Sharing::default().range_size(ids).unwrap();
    let ids = [0, 1000, 262_144, 266_240, 100_000_000].map(Some);
    assert_eq!(ids.map(size), [64, 64, 64, 128, 24_448]);
    assert_eq!(size(None), 4096);
}
