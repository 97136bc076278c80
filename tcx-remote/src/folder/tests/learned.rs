//! Changes of others that this process learns.

use std::time::Duration;

use tcx_store::Keys;
use tcx_test_s3::{Fault, Operation, Server};

use super::{has, invalidate, key, machine, wait_for_planned};
use crate::copy::files::change;

/// Its process takes it back soon: what counts on it would be behind a gap.
#[test]
fn no_process_goes_by_a_change_of_another_in_an_older_copy_that_lacks_those_before_it() {
    let server = Server::start();
    invalidate(&server, 3);
    let other = server.object(&key(&change(3))).unwrap();
    server.remove(&key(&change(3)));
    let (_tier, store) = machine(&server);
    store.refresh().unwrap();
    // After the comparison: an older copy comes into place, and with it the change of a process that has not noticed yet.
    server.fail_next(Operation::Put, &change(3), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_planned(&server);
            server.put(&key(&change(3)), &other);
            server.remove(&key(&change(2)));
        });
        let error = format!("{:#}", store.invalidate(&Keys::ints([7], 0)).unwrap_err());
        assert!(error.contains("its change 2 is not the one read before"), "{error}");
    });
    assert!(!has(&server, &change(4)));
}

/// As above, of a change that a listing has shown.
#[test]
fn no_process_learns_a_change_from_an_older_copy_that_lacks_those_before_it() {
    let server = Server::start();
    invalidate(&server, 3);
    let other = server.object(&key(&change(3))).unwrap();
    server.remove(&key(&change(3)));
    let (_tier, store) = machine(&server);
    store.refresh().unwrap();
    server.put(&key(&change(3)), &other);
    // After the comparison and the listing.
    server.fail_next(Operation::Get, &change(3), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_planned(&server);
            server.remove(&key(&change(2)));
        });
        let error = format!("{:#}", store.refresh().unwrap_err());
        assert!(error.contains(&format!("{} is missing", change(2))), "{error}");
    });
}
