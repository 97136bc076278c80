//! Machines that could join the same segments.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use machines::{Machine, segments};
use tcx_test_s3::Server;

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
    // It reads the copies that it has, and what it opens next is what is there.
    assert_eq!(other.values(&[0, 1, 2, 3]), [Some(1); 4]);
    let late = Machine::new(&server);
    assert_eq!(late.values(&[0, 1, 2, 3]), [Some(1); 4]);
    other.store().refresh().unwrap();
    assert_eq!(other.values(&[0, 1, 2, 3]), [Some(1); 4]);
}
