//! One cache for many machines: what one computes, no other does, and the store may be away.

use tcx::{ErrorKind, Mode};
use tcx_remote_tests::{Machine, load};
use tcx_test_s3::Server;

#[test]
fn what_one_machine_has_computed_another_reads() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    let squares = one.squares();
    assert_eq!(squares.forward(&[1, 2, 3], &vec![1, 2, 3]).unwrap(), [1, 4, 9]);
    squares.flush().unwrap();
    let others = other.squares();
    assert_eq!(others.fetch(&[3, 2, 1], load).unwrap(), [9, 4, 1]);
    assert_eq!(other.computed(), 0);
    assert!(server.keys().iter().all(|key| key.starts_with("features/squares_v1/")));
    let received = others.stats().traffic;
    assert!(received.bytes_received > 0 && received.waiting_files == 0, "{received}");
}

#[test]
fn forward_passes_go_on_while_the_store_is_away_and_their_rows_are_sent_when_it_is_back() {
    let server = Server::start();
    let (one, other) = (Machine::impatient(&server), Machine::new(&server));
    let cache = one.open();
    let squares = cache.module(one.module()).unwrap();
    squares.forward(&[1], &vec![1]).unwrap();
    squares.flush().unwrap();
    server.fail(|faults| faults.is_away = true);
    assert_eq!(squares.forward(&[1, 2, 3], &vec![1, 2, 3]).unwrap(), [1, 4, 9]);
    squares.flush_local().unwrap();
    cache.flush_local().unwrap();
    let failed = cache.flush().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    assert!(format!("{failed:#}").contains("features/squares_v1"), "{failed:#}");
    let computed = one.computed();
    assert_eq!(squares.forward(&[2, 3], &vec![2, 3]).unwrap(), [4, 9]);
    let stats = squares.stats();
    assert_eq!((one.computed(), stats.traffic.waiting_files, stats.rows_dropped), (computed, 1, 0));
    assert!(stats.to_string().contains("; 1 file waits to be sent"), "{stats}");
    server.fail(|faults| faults.is_away = false);
    cache.flush().unwrap();
    assert_eq!(squares.stats().traffic.waiting_files, 0);
    assert_eq!(other.squares().fetch(&[1, 2, 3], load).unwrap(), [1, 4, 9]);
    assert_eq!(other.computed(), 0);
}

#[test]
fn rows_that_wait_are_sent_by_the_next_process_of_the_machine() {
    let server = Server::start();
    let one = Machine::impatient(&server);
    let squares = one.squares();
    squares.forward(&[1], &vec![1]).unwrap();
    squares.flush().unwrap();
    server.fail(|faults| faults.is_away = true);
    squares.forward(&[2], &vec![2]).unwrap();
    squares.flush_local().unwrap();
    drop(squares);
    server.fail(|faults| faults.is_away = false);
    let squares = one.squares();
    squares.flush().unwrap();
    let other = Machine::new(&server);
    assert_eq!(other.squares().fetch(&[1, 2], load).unwrap(), [1, 4]);
    assert_eq!(other.computed(), 0);
}

#[test]
fn a_module_is_not_opened_while_the_store_is_away_unless_the_mode_is_off() {
    let server = Server::start();
    server.fail(|faults| faults.is_away = true);
    let one = Machine::impatient(&server);
    let cache = one.open();
    let failed = cache.module(one.module()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    let failed = format!("{failed:#}");
    assert!(failed.contains(&server.url("features/squares_v1")), "{failed}");
    let asked = server.counts().all();
    let off = cache.with_mode(Mode::Off).module(one.module()).unwrap();
    assert_eq!(off.forward(&[2], &vec![2]).unwrap(), [4]);
    assert_eq!(server.counts().all(), asked);
}

#[test]
fn a_reader_writes_nothing_to_the_store() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    let squares = one.squares();
    squares.forward(&[1, 2], &vec![1, 2]).unwrap();
    squares.flush().unwrap();
    let (keys, puts) = (server.keys(), server.counts().puts);
    let cache = other.builder().mode(Mode::ReadOnly).open(server.url("features")).unwrap();
    let reader = cache.module(other.module()).unwrap();
    assert_eq!(reader.fetch(&[1, 2, 3], load).unwrap(), [1, 4, 9]);
    assert_eq!(reader.invalidate(&[1]).unwrap_err().kind(), ErrorKind::WrongMode);
    cache.close().unwrap();
    assert_eq!((server.keys(), server.counts().puts), (keys, puts));
}

#[test]
fn another_identity_is_refused_or_has_a_cache_of_its_own_as_in_a_directory() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    let squares = one.squares();
    squares.forward(&[1], &vec![1]).unwrap();
    squares.flush().unwrap();
    let refused = other.open().module(other.module_of(2)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    let refused = refused.to_string();
    assert!(refused.contains(&server.url("features/squares_v1")) && refused.contains("`size`"), "{refused}");
    let separate = other.builder().on_mismatch(tcx::OnMismatch::Separate);
    let separate = separate.open(server.url("features")).unwrap().module(other.module_of(2)).unwrap();
    separate.forward(&[1], &vec![1]).unwrap();
    separate.flush().unwrap();
    assert!(server.keys().iter().any(|key| key.starts_with("features/squares_v1+")));
}
