//! What a module in a store costs, in requests that read no rows and write none.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use std::time::{Duration, Instant};

use machines::Machine;
use tcx_store::{Keys, Options};
use tcx_test_s3::{Counts, Server};

/// Another machine joins segments, as far as this one can tell: it leaves them as they are.
fn leave_segments(server: &Server) {
    server.put("p/m_v1/leases/claim-0000000000", b"of another version");
}

/// What is asked of the server while this happens.
fn asked(server: &Server, happen: impl FnOnce()) -> Counts {
    let before = server.counts();
    happen();
    let after = server.counts();
    Counts {
        puts: after.puts - before.puts,
        gets: after.gets - before.gets,
        heads: after.heads - before.heads,
        lists: after.lists - before.lists,
        deletes: after.deletes - before.deletes,
    }
}

/// A machine with a row in the store, and an invalidation.
fn machine(server: &Server) -> Machine {
    let machine = Machine::new(server);
    machine.compute(&[0], 1);
    machine.store().flush().unwrap();
    machine.store().invalidate(&Keys::ints([7], 0)).unwrap();
    machine.store().refresh().unwrap();
    leave_segments(server);
    machine
}

#[test]
fn a_look_for_rows_of_others_that_finds_none_is_one_request() {
    let server = Server::start();
    let machine = machine(&server);
    let looked = asked(&server, || machine.store().refresh().unwrap());
    assert_eq!(looked, Counts { lists: 1, ..Counts::default() });
}

#[test]
fn rows_that_are_found_cost_no_request() {
    let server = Server::start();
    let machine = machine(&server);
    let found = asked(&server, || (0..100).for_each(|_| assert_eq!(machine.values(&[0]), [Some(1)])));
    assert_eq!(found.all(), 0, "{found:?}");
}

#[test]
fn batches_that_miss_rows_ask_for_the_next_change_by_its_name_once_a_second() {
    let server = Server::start();
    let machine = machine(&server);
    let start = Instant::now();
    let missed = asked(&server, || (100..120).for_each(|key| machine.compute(&[key], 1)));
    assert_eq!(missed, Counts { heads: missed.heads, ..Counts::default() });
    assert!(missed.heads <= start.elapsed().as_secs() + 1, "{missed:?}");
}

#[test]
fn each_batch_that_misses_rows_asks_for_the_next_change_if_looks_are_to_be_made_at_any_time() {
    let server = Server::start();
    let mut machine = machine(&server);
    machine.open_with(&Options { refresh_every: Duration::ZERO, ..Options::default() });
    machine.compute(&[99], 1);
    let missed = asked(&server, || (100..120).for_each(|key| machine.compute(&[key], 1)));
    assert_eq!(missed, Counts { heads: 20, ..Counts::default() });
}

#[test]
fn a_sealed_segment_costs_two_requests_beside_its_upload() {
    let server = Server::start();
    let machine = machine(&server);
    let segments = 20;
    let filled = asked(&server, || {
        for key in 0..segments {
            machine.compute(&[100 + key], 1);
            machine.store().flush().unwrap();
        }
    });
    let segments = segments as u64;
    assert_eq!((filled.puts, filled.deletes), (segments, 0), "{filled:?}");
    let others = filled.heads + filled.gets + filled.lists;
    // A batch asks for the next change at most, and the first attempt to join segments finds that another machine does.
    assert!(others <= segments + 2 * segments + 2, "{filled:?}");
}

#[test]
fn opening_a_module_costs_two_requests_and_two_for_each_segment() {
    let server = Server::start();
    let machine = machine(&server);
    for key in 1..10 {
        machine.compute(&[key], 1);
        machine.store().flush().unwrap();
    }
    let segments = 10;
    let opened = asked(&server, || {
        let reader = Machine::new(&server);
        assert_eq!(reader.values(&[1, 9]), [Some(1); 2]);
    });
    assert!(opened.all() <= 2 + 2 * segments, "{opened:?}");
}
