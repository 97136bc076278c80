//! What holds while a machine has no valid credentials: the store, or what hands credentials out, answers and refuses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/buckets.rs"]
mod buckets;
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use buckets::{bucket, bucket_with};
use support::options;
use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::{Fault, Server};

fn open(server: &Server, near: &Path) -> Arc<Store> {
    let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
    let cache = RemoteCache::new(url, near, options(server)).unwrap();
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[] };
    let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    cache.open(spec, &Options::default()).unwrap()
}

/// Computes these rows, each with its key as the value.
fn compute(store: &Store, keys: &[i64]) {
    let mut rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let values: Vec<u8> = missing.iter().flat_map(|position| keys[*position].to_le_bytes()).collect();
    store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
}

fn missing(store: &Store, keys: &[i64]) -> Vec<usize> {
    store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap().distinct_missing_positions()
}

#[test]
fn rows_wait_while_a_token_has_expired_and_the_next_process_sends_them() {
    let (server, near) = (Server::start(), tempfile::tempdir().unwrap());
    let store = open(&server, near.path());
    compute(&store, &[1]);
    store.flush().unwrap();
    server.fail(|faults| faults.permille = vec![(Fault::Expired, 1000)]);
    compute(&store, &[2, 3]);
    store.flush_local().unwrap();
    assert_eq!(missing(&store, &[1, 2, 3]), Vec::<usize>::new());
    let refused = format!("{:#}", store.flush().unwrap_err());
    assert!(refused.contains("expired"), "{refused}");
    let stats = store.stats();
    assert_eq!((stats.rows_dropped, stats.traffic.waiting_files), (0, 1));
    drop(store);
    server.fail(|faults| faults.permille.clear());
    open(&server, near.path()).flush().unwrap();
    let other = tempfile::tempdir().unwrap();
    assert_eq!(missing(&open(&server, other.path()), &[1, 2, 3]), Vec::<usize>::new());
}

#[test]
fn a_message_names_an_expired_token_and_does_not_repeat_it() {
    let server = Server::start();
    let bucket = bucket(&server, "p");
    server.fail(|faults| faults.permille = vec![(Fault::Expired, 1000)]);
    for refused in [
        bucket.list("m_v1", None).unwrap_err(),
        bucket.read("m_v1/x", 10).unwrap_err(),
        bucket.put("m_v1/x", vec![1]).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        assert!(refused.to_string().contains("the credentials have expired"), "{refused}");
    }
    // The answer has no body.
    let refused = bucket.head("m_v1/x").unwrap_err().to_string();
    assert!(refused.contains("whether the credentials have expired"), "{refused}");
}

/// Says of everything that it is not there, as the metadata service of a machine does for a moment.
fn without_anything() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A request without a body.
            let _ = stream.read(&mut [0; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn credentials_that_cannot_be_obtained_do_not_mean_that_there_is_no_such_object() {
    let server = Server::start();
    server.put("p/m_v1/x", b"x");
    let client = ClientOptions::default().deadline(Duration::from_millis(300)).set("aws_region", "us-east-1");
    let bucket = bucket_with(&server.url("p"), client.set("aws_metadata_endpoint", without_anything()));
    for refused in [
        bucket.head("m_v1/x").map(drop).unwrap_err(),
        bucket.read("m_v1/x", 10).map(drop).unwrap_err(),
        bucket.list("m_v1", None).map(drop).unwrap_err(),
        bucket.delete("m_v1/x").unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        assert!(refused.to_string().contains("the credentials cannot be obtained"), "{refused}");
    }
    assert_eq!(server.counts().all(), 0);
}
