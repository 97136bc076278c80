//! The objects of a bucket on a server that fails in every way that is known of stores.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/buckets.rs"]
mod buckets;
mod support;

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use buckets::{bucket, bucket_with};
use support::options;
use tcx_remote::{Bucket, ClientOptions, Created};
use tcx_test_s3::{Fault, Operation, Server};

fn names(bucket: &Bucket, folder: &str, after: Option<&str>) -> Vec<String> {
    bucket.list(folder, after).unwrap().into_iter().map(|object| object.name).collect()
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn file(bytes: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.into()
}

#[test]
fn objects_are_written_read_listed_and_removed_under_the_prefix_only() {
    let server = Server::start();
    server.put("elsewhere/m/x", b"other");
    let bucket = bucket(&server, "p/q/");
    bucket.put("m/a", b"1".to_vec()).unwrap();
    bucket.put("m/b", b"23".to_vec()).unwrap();
    bucket.put("m/sessions/s", b"4".to_vec()).unwrap();
    assert_eq!(server.keys(), ["elsewhere/m/x", "p/q/m/a", "p/q/m/b", "p/q/m/sessions/s"]);
    assert_eq!(names(&bucket, "m", None), ["a", "b"]);
    assert_eq!(names(&bucket, "m", Some("a")), ["b"]);
    assert_eq!(names(&bucket, "n", None), Vec::<String>::new());
    assert_eq!(bucket.folders("").unwrap(), ["m"]);
    assert_eq!(bucket.folders("m").unwrap(), ["sessions"]);
    assert_eq!(bucket.read("m/b", 10).unwrap().unwrap(), b"23");
    assert_eq!(bucket.read("m/c", 10).unwrap(), None);
    assert_eq!(bucket.read_range("m/b", 1..2).unwrap().unwrap(), b"3");
    assert_eq!(bucket.head("m/b").unwrap().unwrap().bytes, 2);
    assert_eq!(bucket.head("m/c").unwrap(), None);
    bucket.delete("m/b").unwrap();
    bucket.delete("m/b").unwrap();
    assert_eq!(names(&bucket, "m", None), ["a"]);
    for name in ["", "../x", "m//a", "m/./a"] {
        assert_eq!(bucket.read(name, 1).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
    }
}

#[test]
fn a_listing_has_all_pages_and_begins_where_it_should_though_the_store_ignores_that() {
    let server = Server::start();
    (0..2500).for_each(|number| server.put(&format!("p/m/change-{number:05}"), b"x"));
    let bucket = bucket(&server, "p");
    assert_eq!(names(&bucket, "m", None).len(), 2500);
    assert_eq!(bucket.requests().lists, 3);
    assert_eq!(names(&bucket, "m", Some("change-02497")), ["change-02498", "change-02499"]);
    assert_eq!(bucket.requests().lists, 4);
    server.fail(|faults| faults.ignores_start = true);
    assert_eq!(names(&bucket, "m", Some("change-02497")), ["change-02498", "change-02499"]);
}

#[test]
fn a_key_that_no_file_can_have_is_named_and_is_no_outage() {
    for key in ["p/m//x", "p/m/./x"] {
        let server = Server::start();
        server.put("p/m/a", b"1");
        server.put(key, b"1");
        let error = bucket(&server, "p").list("m", None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        let (shown, folder) = (error.to_string(), key.strip_suffix('x').unwrap());
        assert!(shown.contains(folder) && shown.contains("remove the objects"), "{shown}");
    }
}

#[test]
fn a_bucket_that_does_not_exist_is_no_empty_one() {
    let server = Server::start();
    let url = server.url("").replace("/tcx/", "/other/p");
    let bucket = bucket_with(&url, options(&server));
    let error = bucket.list("m", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("no such object or bucket"), "{error}");
}

#[test]
fn what_is_large_is_transferred_in_parts() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    let long = bytes((33 << 20) + 5);
    // A part that fails is sent again, alone.
    server.fail_next(Operation::Put, "long", Fault::Before);
    server.fail_next(Operation::Put, "long", Fault::Throttled);
    bucket.upload("m/long", &file(&long), long.len() as u64).unwrap();
    assert!(server.object("p/m/long").unwrap() == long);
    assert_eq!(bucket.requests().puts, 6, "the beginning, two parts and the end, and two tries");
    let to = file(b"");
    assert!(bucket.download("m/long", long.len() as u64, &to).unwrap());
    let mut found = Vec::new();
    (&*to).rewind().unwrap();
    (&*to).read_to_end(&mut found).unwrap();
    assert!(found == long);
    assert!(bucket.read("m/long", 1 << 30).unwrap().unwrap() == long);
    assert!(bucket.read_range("m/long", 5..17 << 20).unwrap().unwrap() == long[5..17 << 20]);
    assert!(!bucket.download("m/none", 3, &to).unwrap());
    assert_eq!(bucket.read("m/long", 3).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn an_upload_that_is_given_up_leaves_neither_an_object_nor_parts() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    let short = file(b"a few bytes");
    let wrong = bucket.upload("m/other", &short, 33 << 20).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::UnexpectedEof, "{wrong}");
    assert_eq!((server.open_uploads(), server.object("p/m/other")), (0, None));
}

#[test]
fn failures_that_pass_are_not_seen() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    let short = bytes(100_000);
    for fault in [Fault::Before, Fault::After, Fault::Throttled] {
        server.fail_next(Operation::Put, "a", fault);
        bucket.put("m/a", short.clone()).unwrap();
        for operation in [Operation::Get, Operation::Head, Operation::List, Operation::Delete] {
            server.fail_next(operation, "p/m", fault);
        }
        assert_eq!(bucket.head("m/a").unwrap().unwrap().bytes, 100_000);
        assert!(bucket.read("m/a", 1 << 20).unwrap().unwrap() == short);
        assert_eq!(names(&bucket, "m", None), ["a"]);
        bucket.delete("m/a").unwrap();
        assert_eq!(server.planned(), 0);
    }
    bucket.put("m/a", short.clone()).unwrap();
    for _ in 0..3 {
        server.fail_next(Operation::Get, "a", Fault::Cut);
    }
    assert!(bucket.read("m/a", 1 << 20).unwrap().unwrap() == short);
    assert!(bucket.read_range("m/a", 7..90_000).unwrap().unwrap() == short[7..90_000]);
    server.fail_next(Operation::Get, "a", Fault::Cut);
    let to = file(b"");
    assert!(bucket.download("m/a", 100_000, &to).unwrap());
    assert_eq!((server.planned(), to.metadata().unwrap().len()), (0, 100_000));
}

#[test]
fn of_all_that_create_one_object_exactly_one_has_it() {
    let server = Server::start();
    server.fail(|faults| {
        faults.permille = vec![(Fault::Before, 100), (Fault::After, 200), (Fault::Conflict, 100)];
    });
    for round in 0..10 {
        let (name, server) = (format!("m/change-{round}"), &server);
        let winners: Vec<String> = std::thread::scope(|scope| {
            let create = |own: usize| {
                let name = &name;
                scope.spawn(move || {
                    let nonce = format!("nonce {own}");
                    match bucket(server, "p").create(name, nonce.as_bytes()).unwrap() {
                        Created::Own => nonce,
                        Created::Other(found) => String::from_utf8(found).unwrap(),
                    }
                })
            };
            let threads: Vec<_> = (0..4).map(create).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let stored = server.object(&format!("p/{name}")).unwrap();
        assert!(winners.iter().all(|winner| winner.as_bytes() == stored), "{winners:?}");
    }
}

#[test]
fn an_object_is_the_callers_own_though_the_store_says_that_it_exists() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    // It was created, the answer was a failure, and the second try is refused.
    server.fail_next(Operation::Put, "own", Fault::After);
    assert_eq!(bucket.create("m/own", b"mine").unwrap(), Created::Own);
    assert!(bucket.requests().gets > 0, "whose it is, a read shows");
    // A conflict was reported, and nothing was created.
    server.fail_next(Operation::Put, "conflict", Fault::Conflict);
    assert_eq!(bucket.create("m/conflict", b"mine").unwrap(), Created::Own);
    assert_eq!(server.object("p/m/conflict").unwrap(), b"mine");
    server.put("p/m/other", b"theirs");
    assert_eq!(bucket.create("m/other", b"mine").unwrap(), Created::Other(b"theirs".to_vec()));
    assert_eq!(server.planned(), 0);
}

#[test]
fn a_creation_without_an_answer_is_an_error_and_removes_nothing() {
    let server = Server::start();
    let bucket = bucket_with(&server.url("p"), options(&server).deadline(Duration::from_millis(900)));
    server.fail(|faults| faults.permille = vec![(Fault::After, 1000)]);
    let error = bucket.create("m/change", b"mine").unwrap_err();
    assert_ne!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(server.object("p/m/change").unwrap(), b"mine");
    assert_eq!(server.counts().deletes, 0);
}

#[test]
fn a_store_that_ignores_the_condition_of_a_write_is_refused_by_name() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    bucket.check_conditional_puts().unwrap();
    assert_eq!(server.keys(), Vec::<String>::new());
    server.fail(|faults| faults.ignores_conditions = true);
    let error = bucket.check_conditional_puts().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("ignores `If-None-Match: *`"), "{error}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_probe_that_cannot_be_removed_changes_no_answer() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    server.fail_next(Operation::Delete, ".tcx-probe-", Fault::Denied);
    bucket.check_conditional_puts().unwrap();
    assert_eq!(server.keys().len(), 1);
    assert!(bucket.list("", None).unwrap().iter().all(|object| object.name.starts_with(".tcx-probe-")));
}

#[test]
fn an_answer_that_stops_in_the_middle_is_read_on_by_another_request() {
    let server = Server::start();
    let bucket = bucket_with(&server.url("p"), options(&server).deadline(Duration::from_secs(3)));
    let bytes: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    server.put("p/long", &bytes);
    for fault in [Fault::Stalled(Duration::from_mins(10)), Fault::Cut] {
        let before = (server.counts().gets, bucket.requests().received);
        (0..3).for_each(|_| server.fail_next(Operation::Get, "long", fault));
        assert_eq!(
            bucket.read_range("long", 5..3_000_000).unwrap().unwrap(),
            bytes[5..3_000_000],
            "{fault:?}"
        );
        assert_eq!(server.counts().gets - before.0, 4);
        // Each request asks for what is missing still.
        assert!(bucket.requests().received - before.1 < 6_000_000, "{fault:?}");
    }
}

#[test]
fn a_call_whose_answers_all_stop_in_the_middle_ends_at_its_deadline() {
    let server = Server::start();
    let bucket = bucket_with(&server.url("p"), options(&server).deadline(Duration::from_millis(600)));
    server.put("p/long", &[7; 1000]);
    server.fail(|faults| faults.permille = vec![(Fault::Stalled(Duration::from_mins(10)), 1000)]);
    let start = std::time::Instant::now();
    let failed = bucket.read_range("long", 0..1000).unwrap_err().to_string();
    assert!(failed.contains("stopped in the middle") || failed.contains("in time"), "{failed}");
    assert!(start.elapsed() < Duration::from_mins(5));
}

#[test]
fn a_call_ends_at_its_deadline_and_names_the_object_but_no_credential() {
    let server = Server::start();
    let url = server.url("p");
    let bucket = bucket_with(&url, options(&server).deadline(Duration::from_secs(1)));
    server.fail(|faults| faults.latency = Duration::from_mins(1));
    let start = Instant::now();
    let error = bucket.head("m/a").unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(30), "a minute was to be waited for");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.to_string(), format!("cannot look for {url}/m/a: the store did not answer in time"));
    server.fail(|faults| faults.latency = Duration::ZERO);
    server.fail_next(Operation::Get, "a", Fault::Denied);
    let denied = bucket.read("m/a", 9).unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
    let wrong = bucket_with(&url, options(&server).set("aws_secret_access_key", "a wrong secret"));
    for error in [denied, wrong.read("m/a", 9).unwrap_err()] {
        let shown = format!("{error} {error:?}");
        let has_secret = ["hunter2", "a wrong secret", "AKIA"].iter().any(|secret| shown.contains(secret));
        assert!(!has_secret && shown.contains("check the credentials"), "{shown}");
    }
}

#[test]
fn a_store_that_is_away_is_an_error_that_says_so() {
    let server = Server::start();
    let (url, options) = (server.url("p"), options(&server).deadline(Duration::from_millis(500)));
    drop(server);
    let error = bucket_with(&url, options).list("m", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}

#[test]
fn settings_that_are_not_known_are_refused_without_their_value() {
    let server = Server::start();
    let url = match tcx_remote::Location::parse(&server.url("p")).unwrap() {
        tcx_remote::Location::Store(url) => url,
        tcx_remote::Location::Directory(_) => unreachable!("it is a URL"),
    };
    let refused = Bucket::new(url, ClientOptions::default().set("aws_secret", "hunter2")).unwrap_err();
    assert!(refused.to_string().contains("`aws_secret`") && !refused.to_string().contains("hunter2"));
}

#[test]
fn requests_are_counted_as_the_server_counts_them() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    server.fail_next(Operation::Put, "a", Fault::Before);
    bucket.put("m/a", bytes(1000)).unwrap();
    bucket.read("m/a", 1000).unwrap();
    bucket.head("m/a").unwrap();
    bucket.list("m", None).unwrap();
    bucket.delete("m/a").unwrap();
    let (own, theirs) = (bucket.requests(), server.counts());
    assert_eq!(
        (own.puts, own.gets, own.heads, own.lists, own.deletes),
        (theirs.puts, theirs.gets, theirs.heads, theirs.lists, theirs.deletes)
    );
    assert_eq!((own.puts, own.all(), own.sent), (2, 6, 2000));
    assert!(own.received >= 1000);
}

#[test]
fn a_bucket_serves_callers_with_and_without_runtimes_of_their_own() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    bucket.put("m/a", b"1".to_vec()).unwrap();
    std::thread::scope(|scope| {
        for with_runtime in [false, true, true, false] {
            let bucket = &bucket;
            scope.spawn(move || {
                let read = || assert_eq!(bucket.read("m/a", 9).unwrap().unwrap(), b"1");
                if with_runtime {
                    // The runtime of a caller ends, and connections that it opened would end with it.
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async { (0..5).for_each(|_| read()) });
                } else {
                    (0..5).for_each(|_| read());
                }
            });
        }
    });
}
