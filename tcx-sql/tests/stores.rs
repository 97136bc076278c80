//! A cache in an object store: a query reads it there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;

use support::{add, clip, ids};
use tcx_remote::{Bucket, ClientOptions, Location, RemoteCache, push};
use tcx_sql::{Cache, Database, Value};
use tcx_store::Keys;
use tcx_test_s3::Server;

fn cache(server: &Server, near: &Path) -> (RemoteCache, Bucket) {
    let client = server.settings().into_iter();
    let client = client.fold(ClientOptions::default(), |client, (name, value)| client.set(name, value));
    match Location::parse(&server.url("p")).unwrap() {
        Location::Store(url) => {
            let bucket = Bucket::new(url.clone(), client.clone()).unwrap();
            (RemoteCache::new(url, near, client).unwrap(), bucket)
        }
        Location::Directory(path) => panic!("{} is a directory", path.display()),
    }
}

#[test]
fn modules_in_a_store_are_tables_and_no_copy_of_them_is_made() {
    let (dir, near, server) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Server::start());
    let store = clip(dir.path());
    let all = ids(0..20_000);
    add(&store, &all, 1);
    add(&store, &ids(["cat", "dog"]), 7);
    store.invalidate(&Keys::text(["dog"], 0).unwrap()).unwrap();
    let (remote, bucket) = cache(&server, near.path());
    push(dir.path(), &bucket, "clip_v1", &mut |_, _| {}).unwrap();

    let database = Database::of(remote.into()).unwrap();
    let answer =
        database.query("select id, vector[1] as first, caption from clip_v1 where score > 5").unwrap();
    let rows: Vec<Vec<Value>> = answer.collect::<Result<_, _>>().unwrap();
    let text = |text: &str| Value::Text(text.to_owned());
    assert_eq!(rows, [[text("cat"), Value::Single(3.0), text("a picture of a cat")]]);
    let answer = database.query("select count(*) from clip_v1").unwrap();
    let rows: Vec<Vec<Value>> = answer.collect::<Result<_, _>>().unwrap();
    assert_eq!(rows, [[Value::Int(20_001)]]);
    // The segment of 20,000 rows has more than five MB.
    assert!(size(near.path()) < 1 << 20, "{} bytes are in the near tier", size(near.path()));
}

fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let sizes = entries.map(|entry| {
        if entry.file_type().unwrap().is_dir() {
            size(&entry.path())
        } else {
            entry.metadata().unwrap().len()
        }
    });
    sizes.sum()
}

#[test]
fn a_cache_is_called_by_its_url() {
    let (near, server) = (tempfile::tempdir().unwrap(), Server::start());
    let (remote, _) = cache(&server, near.path());
    let url = remote.url().to_string();
    let cache = Cache::from(remote);
    assert_eq!((cache.to_string(), cache.modules().unwrap().len()), (url, 0));
}
