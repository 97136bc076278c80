//! Caches that earlier versions of the format have written stay readable: each is in the folder `golden` for good, byte for byte.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::{Path, PathBuf};

use tcx_engine_tests::{check, columns, get_or_compute, lookup, options, spec};
use tcx_store::{Compression, Inspection, Keys, Options, RecomputeSession, SegmentState, Store};

const CODECS: [(&str, Compression); 3] =
    [("plain", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

/// The rows of a golden cache; one more is invalidated, and three have been replaced.
fn ids() -> Vec<String> {
    (0..400).map(|number| format!("sample {number}")).collect()
}

fn open(dir: &Path, compression: Compression) -> std::sync::Arc<Store> {
    Store::open(dir, spec("224"), &Options { compression, ..options() }).unwrap()
}

/// Writes a cache with segments that replace rows and such that do not, tombstones and an index.
fn write(dir: &Path, compression: Compression) {
    let store = open(dir, compression);
    let ids = ids();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (first, others) = ids.split_at(300);
    // Other rows than those of their ids, which are replaced.
    let mut rows = lookup(&store, &first[..3]);
    store.insert(&mut rows, &[0, 1, 2], columns(&["a", "b", "c"])).unwrap();
    get_or_compute(&store, &first[3..]);
    get_or_compute(&store, &["invalidated"]);
    store.flush().unwrap();
    get_or_compute(&store, others);
    store.flush().unwrap();
    store.invalidate(&Keys::text(["invalidated"], 0).unwrap()).unwrap();
    let session = RecomputeSession::new();
    let mut rows = store.lookup_to_put(Keys::text(&first[..3], 0).unwrap(), Some(&session)).unwrap();
    store.insert(&mut rows, &[0, 1, 2], columns(&first[..3])).unwrap();
    store.flush().unwrap();
}

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(version)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).unwrap();
        }
    }
}

#[test]
fn caches_of_every_version_of_the_format_are_read_and_joined() {
    let versions: Vec<_> =
        std::fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!versions.is_empty());
    let ids = ids();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for version in versions {
        for (codec, compression) in CODECS {
            let dir = tempfile::tempdir().unwrap();
            copy(&version.join(codec), dir.path());
            let store = open(dir.path(), compression);
            check(&lookup(&store, &ids), &ids);
            assert_eq!(lookup(&store, &["invalidated"]).missing(), 1);
            let stats = store.stats();
            assert_eq!((stats.unknown_segments, stats.damaged_segments, stats.segments), (0, 0, 3));
            // Beside segments of this version.
            get_or_compute(&store, &["another"]);
            store.flush().unwrap();
            check(&lookup(&store, &ids), &ids);
            store.compact().unwrap();
            // Rows are joined with others of about their age.
            assert_eq!(store.stats().segments, 2, "{}, {codec}", version.display());
            let inspection = Inspection::open(&dir.path().join("m_v1")).unwrap();
            let mut served = inspection.segments().filter(|segment| segment.state == SegmentState::Served);
            assert!(served.all(|segment| segment.format == 3), "{}, {codec}", version.display());
            check(&lookup(&store, &ids), &ids);
            drop(store);
            let store = open(dir.path(), compression);
            check(&lookup(&store, &ids), &ids);
            assert_eq!(lookup(&store, &["invalidated"]).missing(), 1);
        }
    }
}

#[test]
#[ignore = "writes the caches of the version that it is compiled with to TCX_GOLDEN"]
fn the_caches_of_this_version_are_written() {
    let version = golden(&std::env::var("TCX_GOLDEN").unwrap());
    for (codec, compression) in CODECS {
        let (dir, to) = (tempfile::tempdir().unwrap(), version.join(codec));
        write(dir.path(), compression);
        std::fs::remove_dir_all(dir.path().join("m_v1/sessions")).unwrap_or_default();
        copy(dir.path(), &to);
    }
}
