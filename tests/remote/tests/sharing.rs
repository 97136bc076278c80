//! Machines divide a list of ids by leases, which are objects that all of them see.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tcx::{Missing, Sequence, SharedReport};
use tcx_remote_tests::{Machine, load};
use tcx_test_s3::{Fault, Server};

const SAMPLES: i64 = 400;

/// Of ids. There are twenty work ranges.
const RANGE: u64 = 20;

fn ids() -> Sequence<'static, i64> {
    Sequence::by_position(SAMPLES as u64, |position| position as i64)
}

fn share(
    machine: &Machine,
    expiry: Duration,
    load: impl Fn(Missing<'_, i64>) -> tcx::Result<Vec<i64>> + Sync,
) -> SharedReport {
    let squares = machine.squares();
    let warming = squares.warming().range_size(RANGE).expiry(expiry);
    warming.run_shared(ids(), load).unwrap()
}

/// Every row is in the store, and is right.
fn check(server: &Server) {
    let reader = Machine::new(server);
    let ids = (0..SAMPLES).collect::<Vec<_>>();
    let squares: Vec<i64> = ids.iter().map(|id| id * id).collect();
    assert_eq!(reader.squares().fetch(&ids, load).unwrap(), squares);
    assert_eq!(reader.computed(), 0);
}

#[test]
fn machines_that_share_a_list_compute_each_sample_once() {
    let server = Server::start();
    let machines: Vec<Machine> = (0..3).map(|_| Machine::new(&server)).collect();
    let begin = Barrier::new(machines.len());
    let reports: Vec<SharedReport> = thread::scope(|scope| {
        let share = |machine| {
            begin.wait();
            share(machine, Duration::from_mins(2), load)
        };
        let workers: Vec<_> = machines.iter().map(|machine| scope.spawn(move || share(machine))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(reports.iter().map(|report| report.computed).sum::<u64>(), SAMPLES as u64);
    assert!(reports.iter().all(|report| report.asked == SAMPLES as u64 && !report.stopped));
    check(&server);
    for machine in &machines {
        assert!(!machine.has_file("leases"), "leases are in no near tier");
    }
}

#[test]
fn what_a_machine_that_hangs_has_leased_is_taken_over() {
    let server = Server::start();
    let (hanging, other) = (Machine::new(&server), Machine::new(&server));
    let expiry = Duration::from_millis(300);
    let (begun, is_over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let hangs = scope.spawn(|| {
            share(&hanging, expiry, |missing| {
                if hanging.computed() == 0 && !is_over.load(Ordering::Acquire) {
                    begun.wait();
                    while !is_over.load(Ordering::Acquire) {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
                load(missing)
            })
        });
        begun.wait();
        let report = share(&other, expiry, load);
        is_over.store(true, Ordering::Release);
        assert_eq!((report.asked, report.computed), (SAMPLES as u64, SAMPLES as u64));
        let own = &report.workers[0];
        assert_eq!((own.ranges, own.taken_over), (SAMPLES as u64 / RANGE, 1));
        let late = hangs.join().unwrap();
        assert!(late.computed <= RANGE, "{late:?}");
    });
    check(&server);
}

#[test]
fn a_part_whose_rows_vanish_before_they_are_sent_is_left_to_others() {
    let server = Server::start();
    let (one, other) = (Machine::impatient(&server), Machine::new(&server));
    let squares = one.squares();
    squares.forward(&[0], &vec![0]).unwrap();
    squares.flush().unwrap();
    let expiry = Duration::from_secs(2);
    let (begun, goes_on) = (Barrier::new(2), Barrier::new(2));
    let (has_begun, has_lost) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let late = scope.spawn(|| {
            share(&other, expiry, |missing| {
                if !has_begun.swap(true, Ordering::Relaxed) {
                    begun.wait();
                    goes_on.wait();
                }
                load(missing)
            })
        });
        begun.wait();
        // It believes the reports of workers that join after it has looked for others.
        let looks = server.counts().lists;
        while server.counts().lists < looks + 2 {
            thread::sleep(Duration::from_millis(10));
        }
        let warming = squares.warming().range_size(RANGE).expiry(expiry);
        let failed = warming.run_shared(ids(), |missing| {
            if !has_lost.load(Ordering::Relaxed) {
                server.fail(|faults| faults.permille = vec![(Fault::Denied, 1000)]);
                let _ = squares.flush();
                if squares.stats().traffic.waiting_files > 0 {
                    one.lose_what_waits();
                    has_lost.store(true, Ordering::Relaxed);
                }
                server.fail(|faults| faults.permille.clear());
            }
            load(missing)
        });
        goes_on.wait();
        let failed = format!("{:#}", failed.unwrap_err());
        assert!(failed.contains("have vanished before they were sent"), "{failed}");
        assert_eq!(late.join().unwrap().asked, SAMPLES as u64);
    });
    check(&server);
}

#[test]
fn sharing_goes_on_while_the_store_is_away_and_when_answers_are_lost() {
    let server = Server::start();
    let (one, other) = (Machine::impatient(&server), Machine::impatient(&server));
    // The module is made while nothing fails.
    let (squares, others) = (one.squares(), other.squares());
    for squares in [&squares, &others] {
        squares.forward(&[0], &vec![0]).unwrap();
        squares.flush().unwrap();
    }
    let faults = vec![(Fault::Before, 30), (Fault::After, 30), (Fault::Conflict, 30), (Fault::Stale, 30)];
    server.fail(|all| all.permille = faults);
    let went_away = AtomicBool::new(false);
    thread::scope(|scope| {
        let (server, went_away) = (&server, &went_away);
        for squares in [&squares, &others] {
            let load = move |missing: Missing<'_, i64>| {
                if missing.ids().count() > 0 && !went_away.swap(true, Ordering::Relaxed) {
                    server.fail(|faults| faults.is_away = true);
                    scope.spawn(|| {
                        thread::sleep(Duration::from_secs(1));
                        server.fail(|faults| faults.is_away = false);
                    });
                }
                load(missing)
            };
            scope.spawn(move || {
                let warming = squares.warming().range_size(RANGE).expiry(Duration::from_mins(1));
                let report = warming.run_shared(ids(), load).unwrap();
                assert_eq!(report.asked, SAMPLES as u64);
            });
        }
    });
    server.fail(|faults| faults.permille.clear());
    check(&server);
}

#[test]
fn a_work_range_costs_few_requests() {
    let server = Server::start();
    let machine = Machine::new(&server);
    let squares = machine.squares();
    let before = server.counts();
    let warming = squares.warming().range_size(RANGE);
    warming.run_shared(ids(), load).unwrap();
    let (after, ranges) = (server.counts(), SAMPLES as u64 / RANGE);
    // A lease each; besides that, the job, its end, records, the probe, and the rows.
    assert!(after.puts - before.puts <= ranges + 16, "{:?}", (before, after));
    // Each batch asks for the next change.
    assert!(after.all() - before.all() <= 6 * ranges, "{:?}", (before, after));
}
