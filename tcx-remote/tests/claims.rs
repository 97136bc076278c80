//! Machines that could join the same segments.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use machines::{Machine, segments};
use tcx_test_s3::{Fault, Operation, Server};

/// Where a machine says that it joins segments.
const CLAIM: &str = "p/m_v1/leases/claim-0000000000";

/// A machine that has sealed these rows, each in a segment of its own.
fn fill(machine: &Machine, keys: std::ops::Range<i64>) {
    for key in keys {
        machine.compute(&[key], 1);
        machine.store().flush().unwrap();
    }
}

fn claims(server: &Server) -> Vec<String> {
    let claims = server.keys().into_iter().filter(|key| key.contains("/leases/claim-"));
    claims.map(|key| String::from_utf8(server.object(&key).unwrap()).unwrap()).collect()
}

#[test]
fn segments_are_joined_by_one_machine_at_a_time() {
    let server = Server::start();
    // Another machine has the claim, as far as this one can tell.
    server.put(CLAIM, b"of another version");
    let mut machine = Machine::new(&server);
    fill(&machine, 0..8);
    machine.store = None;
    assert_eq!(segments(&server), 8, "the other machine joins them");
    server.remove(CLAIM);
    machine.open();
    fill(&machine, 8..9);
    // What is done in the background has come to its end.
    machine.store = None;
    assert!(segments(&server) > 9, "replaced segments stay for an hour");
    let [claim] = &claims(&server)[..] else { panic!("{:?}", server.keys()) };
    assert!(claim.contains("state free"), "{claim}");
    let reader = Machine::new(&server);
    assert_eq!(reader.values(&(0..9).collect::<Vec<_>>()), [Some(1); 9]);
}

#[test]
fn a_caller_that_wants_segments_joined_does_not_wait_for_other_machines() {
    let server = Server::start();
    server.put(CLAIM, b"of another version");
    let machine = Machine::new(&server);
    fill(&machine, 0..4);
    machine.store().compact().unwrap();
    assert_eq!(machine.store().stats().segments, 1);
}

#[test]
fn a_reader_whose_segment_was_removed_finds_its_rows_where_they_are_now() {
    let server = Server::start();
    let (one, mut other) = (Machine::new(&server), Machine::new(&server));
    fill(&one, 0..4);
    other.open();
    one.store().compact().unwrap();
    assert!(one.store().collect(std::time::Duration::ZERO).unwrap() >= 4);
    // It reads the copies that it has: the segments were replaced, and not evicted. What it opens next is in the store.
    assert_eq!(other.values(&[0, 1, 2, 3]), [Some(1); 4]);
    let late = Machine::new(&server);
    assert_eq!(late.values(&[0, 1, 2, 3]), [Some(1); 4]);
    other.store().refresh().unwrap();
    assert_eq!(other.values(&[0, 1, 2, 3]), [Some(1); 4]);
}

#[test]
fn a_segment_that_another_machine_has_evicted_is_neither_served_from_the_copy_nor_joined() {
    let server = Server::start();
    // Nothing is joined until a caller wants it.
    server.put(CLAIM, b"of another version");
    let (one, mut other) = (Machine::new(&server), Machine::new(&server));
    fill(&one, 0..4);
    other.open();
    assert_eq!(other.values(&[0, 1, 2, 3]), [Some(1); 4]);
    let copies = other.files("files").len();
    let evicted: Vec<_> = server.keys().into_iter().filter(|key| key.contains("/seg-")).skip(2).collect();
    for key in &evicted {
        server.remove(key);
    }
    // Until it lists the store, it goes by what it has seen.
    assert_eq!(other.values(&[0, 1, 2, 3]), [Some(1); 4]);
    other.store().refresh().unwrap();
    assert_eq!(other.files("files").len(), copies, "copies are removed later");
    let left = |machine: &Machine| machine.values(&[0, 1, 2, 3]).iter().flatten().count();
    assert_eq!(left(&other), 2);
    other.store().compact().unwrap();
    other.store().flush().unwrap();
    assert_eq!((left(&other), left(&Machine::new(&server))), (2, 2));
}

#[test]
fn a_segment_stays_served_as_long_as_the_store_does_not_say_that_it_is_gone() {
    let server = Server::start();
    let (one, mut other) = (Machine::new(&server), Machine::new(&server));
    fill(&one, 0..2);
    other.open();
    let [first, ..] = &server.keys().into_iter().filter(|key| key.contains("/seg-")).collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", server.keys())
    };
    server.remove(first);
    server.fail_next(Operation::Head, "/seg-", Fault::Denied);
    assert_eq!(other.refreshed(&[0, 1]), [Some(1); 2]);
    assert_eq!(server.planned(), 0, "one request for each segment that a listing lacks");
    assert_eq!(other.refreshed(&[0, 1]).iter().flatten().count(), 1);
}
