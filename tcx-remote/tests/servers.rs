//! A module in the store of another server than ours: `cargo xtask remote` starts it and says where it is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/copies.rs"]
mod copies;
#[path = "support/machines.rs"]
mod machines;
mod support;

use machines::{Machine, cache_at};
use tcx_remote::{Bucket, ClientOptions, Created, Location};
use tcx_store::Keys;

/// The URL of a prefix without objects. Credentials and settings are in the environment, as for a program.
const URL: &str = "TCX_TEST_STORE";

fn url() -> String {
    std::env::var(URL).unwrap()
}

fn bucket(prefix: &str) -> Bucket {
    let Location::Store(url) = Location::parse(&format!("{}/{prefix}", url())).unwrap() else {
        panic!("it is a URL")
    };
    Bucket::new(url, ClientOptions::default()).unwrap()
}

#[test]
#[ignore = "needs a server: `cargo xtask remote`"]
fn objects_of_another_server_are_created_once_listed_in_order_and_removed() {
    let bucket = bucket("objects");
    bucket.check_conditional_puts().unwrap();
    assert_eq!(bucket.create("m/change", b"one").unwrap(), Created::Own);
    assert_eq!(bucket.create("m/change", b"two").unwrap(), Created::Other(b"one".to_vec()));
    // A key with each kind of character that names of tcx have.
    for name in ["a-1.arrow", "b_2+0123", "c@3"] {
        bucket.put(&format!("m/{name}"), name.into()).unwrap();
        assert_eq!(bucket.read(&format!("m/{name}"), 100).unwrap(), Some(name.into()));
    }
    let names = |after| {
        let listed = bucket.list("m", after).unwrap();
        listed.into_iter().map(|object| object.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["a-1.arrow", "b_2+0123", "c@3", "change"]);
    assert_eq!(names(Some("b_2+0123")), ["c@3", "change"]);
    assert_eq!(bucket.folders("").unwrap(), ["m"]);
    let before = bucket.head("m/change").unwrap().unwrap();
    assert_eq!((before.bytes, before.tag.is_some()), (3, true));
    for name in ["a-1.arrow", "b_2+0123", "c@3", "change"] {
        bucket.delete(&format!("m/{name}")).unwrap();
    }
    assert_eq!(bucket.head("m/change").unwrap(), None);
    assert!(bucket.list("m", None).unwrap().is_empty());
}

#[test]
#[ignore = "needs a server: `cargo xtask remote`"]
fn a_large_object_is_written_in_parts_and_read_in_ranges() {
    let (bucket, dir) = (bucket("large"), tempfile::tempdir().unwrap());
    let bytes: Vec<u8> = (0..70_u32 << 20).map(|byte| (byte / 251) as u8).collect();
    let path = dir.path().join("large");
    std::fs::write(&path, &bytes).unwrap();
    let file = std::sync::Arc::new(std::fs::File::open(&path).unwrap());
    bucket.upload("large", &file, bytes.len() as u64).unwrap();
    assert_eq!(bucket.read_range("large", 40 << 20..41 << 20).unwrap().unwrap(), bytes[40 << 20..41 << 20]);
    assert!(bucket.read("large", u64::MAX).unwrap().unwrap() == bytes);
    bucket.delete("large").unwrap();
}

#[test]
#[ignore = "needs a server: `cargo xtask remote`"]
fn two_machines_fill_a_module_in_another_server_one_after_the_other() {
    let url = format!("{}/machines", url());
    let machine = || Machine::with(&url, ClientOptions::default());
    let (one, other) = (machine(), machine());
    one.compute(&[1, 2, 3], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1, 2, 3]), [Some(10); 3]);
    other.store().invalidate(&Keys::ints([2], 0)).unwrap();
    other.compute(&[2, 4], 20);
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2, 3, 4]), [Some(10), Some(20), Some(10), Some(20)]);
    one.store().compact().unwrap();
    one.store().collect(std::time::Duration::ZERO).unwrap();
    let late = machine();
    assert_eq!(late.values(&[1, 2, 3, 4]), [Some(10), Some(20), Some(10), Some(20)]);
    let cache = cache_at(&url, late.near.path(), ClientOptions::default());
    assert_eq!(cache.modules().unwrap(), ["m_v1"]);
}

#[test]
#[ignore = "needs a server: `cargo xtask remote`"]
fn a_module_is_pushed_to_another_server_and_pulled_from_it() {
    let (bucket, here, there) =
        (bucket("copies"), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copies::compute(here.path(), &[1, 2], 10);
    copies::invalidate(here.path(), 2);
    copies::push_all(here.path(), &bucket).unwrap();
    copies::pull_all(&bucket, there.path()).unwrap();
    assert_eq!(copies::values(there.path(), &[1, 2]), [Some(10), None]);
}
