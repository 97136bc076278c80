//! Compressed segments through the eyes of a store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::storage::name::{FileName, SegmentName};
use crate::storage::{LocalStorage, System};
use crate::sys::bytes::Random;
use crate::sys::checksum::checksum;
use crate::{
    Column, ColumnType, Compression, DType, Field, Identity, Inspection, KeyType, Keys, Lookup, Options,
    Spec, Store, verify,
};

/// Rows of a kibibyte and more, many of which make a record batch.
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[256] } },
    Field { name: "noise", column: ColumnType::Dense { dtype: DType::U8, shape: &[100] } },
    Field { name: "text", column: ColumnType::Text },
]);
const CODECS: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

pub(crate) fn options(compression: Compression) -> Options {
    Options {
        flush_interval: Duration::from_hours(1),
        refresh_every: Duration::ZERO,
        compression,
        ..Options::default()
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap()
}

pub(crate) fn open_with(dir: &Path, options: &Options) -> Store {
    let storage = LocalStorage::new(dir.join("m_v1"), System).reading(options.read_mode);
    Store::with_storage(Arc::new(storage), spec(), options).unwrap()
}

fn open(dir: &Path, compression: Compression) -> Store {
    open_with(dir, &options(compression))
}

type Row = (Vec<u8>, Vec<u8>, String);

fn row(id: i64) -> Row {
    let vector = (0..256).flat_map(|i| ((id + i / 10) as f32).to_le_bytes()).collect();
    // Bytes that no codec can compress.
    let noise =
        (0..100_u64).map(|i| (xxhash_rust::xxh3::xxh3_64_with_seed(&i.to_le_bytes(), id as u64)) as u8);
    (vector, noise.collect(), "é".repeat(id as usize % 50))
}

pub(crate) fn add(store: &Store, ids: std::ops::Range<i64>) {
    let rows: Vec<_> = ids.clone().map(row).collect();
    let column = |part: fn(&Row) -> &[u8]| {
        Column::dense(&rows.iter().flat_map(|row| part(row).to_vec()).collect::<Vec<_>>())
    };
    let columns =
        vec![column(|row| &row.0), column(|row| &row.1), Column::text(rows.iter().map(|row| &row.2))];
    let mut lookup = store.lookup(Keys::ints(ids.clone(), 0)).unwrap();
    let positions: Vec<usize> = (0..rows.len()).collect();
    store.insert(&mut lookup, &positions, columns).unwrap();
    store.flush().unwrap();
}

fn lookup(store: &Store, ids: impl IntoIterator<Item = i64>) -> Lookup {
    // If no file can be read, the refresh fails, but the lookup still works.
    store.refresh().unwrap_or_else(|error| assert_eq!(error.kind(), crate::ErrorKind::Io));
    store.lookup(Keys::ints(ids, 0)).unwrap()
}

/// The rows that are found are those of their ids; tells how many are missing.
pub(crate) fn check(store: &Store, ids: &[i64]) -> usize {
    let rows = lookup(store, ids.iter().copied());
    for (position, &id) in ids.iter().enumerate().filter(|(position, _)| !rows.is_missing(*position)) {
        let expected = row(id);
        assert!(rows.bytes(0, position) == expected.0 && rows.bytes(1, position) == expected.1, "row {id}");
        assert_eq!(rows.text(2, position).unwrap(), expected.2, "row {id}");
    }
    rows.missing()
}

/// The segments of a folder, and their names.
pub(crate) fn segments(dir: &Path) -> Vec<(std::path::PathBuf, SegmentName)> {
    let files = std::fs::read_dir(dir.join("m_v1")).unwrap().map(|file| file.unwrap().path());
    let named = files.filter_map(|path| match FileName::parse(path.file_name()?.to_str()?) {
        Some(FileName::Segment(name)) => Some((path.clone(), name)),
        _ => None,
    });
    named.collect()
}

/// Where the tail of a segment begins.
fn tail(bytes: &[u8]) -> usize {
    let footer = u32::from_le_bytes(*bytes[bytes.len() - 10..].first_chunk().unwrap());
    bytes.len() - 10 - footer as usize - 8
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Puts other bytes in the place of a folder's only segment, with checksums that say they are right: as a writer might have
/// made them who is no tcx.
fn forge(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let [(path, _)] = &segments(dir)[..] else { panic!("one segment") };
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    crate::segment::fuzzing::seal(&mut bytes).unwrap();
    let name = SegmentName { random: Random::new(), tail: checksum(&bytes[tail(&bytes)..]) };
    std::fs::remove_file(path).unwrap();
    std::fs::write(dir.join("m_v1").join(name.to_string()), bytes).unwrap();
}

#[test]
fn rows_of_several_codecs_live_in_one_cache_and_compaction_writes_that_of_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<i64> = (0..900).rev().collect();
    let codecs = [Compression::None, Compression::Lz4, Compression::Zstd];
    for (number, codec) in codecs.into_iter().enumerate() {
        add(&open(dir.path(), codec), 300 * number as i64..300 * (number as i64 + 1));
    }
    for reader in codecs {
        assert_eq!(check(&open(dir.path(), reader), &ids), 0);
    }
    let names = [(Compression::Zstd, "zstd"), (Compression::None, "none"), (Compression::Lz4, "lz4")];
    for ((codec, name), more) in names.into_iter().zip(900..) {
        let store = open(dir.path(), codec);
        // One more row, so that there is a segment to join.
        add(&store, more..more + 1);
        store.compact().unwrap();
        assert_eq!(check(&store, &ids), 0);
        let newest = store.core.snapshot().segments[0].name().to_string();
        let bytes = std::fs::read(dir.path().join("m_v1").join(newest)).unwrap();
        assert_eq!(store.stats().segments, 1);
        for other in ["zstd", "lz4"] {
            let found = position(&bytes[tail(&bytes)..], format!("{other}\0").as_bytes());
            assert_eq!(found.is_some(), other == name, "{other} in one of {name}");
        }
    }
}

#[test]
fn a_compressed_cache_is_smaller_and_one_row_of_it_costs_one_small_batch() {
    for codec in CODECS {
        let (plain, packed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        add(&open(plain.path(), Compression::None), 0..1000);
        add(&open(packed.path(), codec), 0..1000);
        let bytes = |dir: &Path| segments(dir)[0].0.metadata().unwrap().len();
        assert!(bytes(packed.path()) * 2 < bytes(plain.path()), "{codec:?}");
        let store = open(packed.path(), codec);
        assert_eq!(check(&store, &[500]), 0);
        assert!(
            (1..100_000).contains(&store.stats().memory_cache_bytes),
            "{} bytes",
            store.stats().memory_cache_bytes
        );
    }
}

#[test]
fn the_hot_tier_keeps_no_more_bytes_than_it_may_and_rows_are_right_without_it() {
    let dir = tempfile::tempdir().unwrap();
    add(&open(dir.path(), Compression::Lz4), 0..2000);
    for memory_cache_bytes in [0, 1, 100_000, 500_000, usize::MAX] {
        let store = open_with(dir.path(), &Options { memory_cache_bytes, ..options(Compression::Lz4) });
        for round in 0..3 {
            let ids: Vec<i64> = (0..2000).map(|i| i * 977 % 2000).skip(round * 500).take(700).collect();
            assert_eq!(check(&store, &ids), 0);
            let kept = store.stats().memory_cache_bytes as usize;
            assert!(kept <= memory_cache_bytes, "{kept} bytes of {memory_cache_bytes}");
            assert_eq!(kept > 0, memory_cache_bytes >= 100_000);
        }
    }
}

#[test]
fn a_damaged_block_is_a_miss_and_is_counted() {
    for codec in CODECS {
        let dir = tempfile::tempdir().unwrap();
        add(&open(dir.path(), codec), 0..1000);
        let [(path, _)] = &segments(dir.path())[..] else { panic!("one segment") };
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, bytes).unwrap();
        let store = open(dir.path(), codec);
        let ids: Vec<i64> = (0..1000).collect();
        assert!(check(&store, &ids) > 0);
        assert_eq!(store.stats().damaged_segments, 1);
    }
}

#[test]
fn a_segment_of_an_unknown_codec_is_left_alone_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    add(&open(dir.path(), Compression::Zstd), 0..10);
    forge(dir.path(), |bytes| {
        let at = tail(bytes);
        let at = at + position(&bytes[at..], b"zstd\0").unwrap();
        bytes[at..at + 4].copy_from_slice(b"what");
    });
    let store = open(dir.path(), Compression::Zstd);
    assert_eq!(check(&store, &[1, 2]), 2);
    assert_eq!((store.stats().unknown_segments, store.stats().damaged_segments), (1, 0));
    // A program that knows the codec would go on serving them.
    assert!(store.invalidate_where(|_| true).is_err());
    drop(store);
    assert_eq!(segments(dir.path()).len(), 1);
}

/// Overwrites the last occurrence, which has to exist.
fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let at = bytes.windows(old.len()).rposition(|window| window == old).unwrap();
    bytes[at..at + new.len()].copy_from_slice(new);
}

#[test]
fn a_length_that_no_writer_would_claim_is_damage() {
    for codec in CODECS {
        for claimed in [u64::MAX - 1, 1 << 62, (16 << 20) + 1, 62 * 1024 + 1, 1, 0] {
            let dir = tempfile::tempdir().unwrap();
            add(&open(dir.path(), codec), 0..52);
            // The vectors of all rows are in one buffer, whose length is read where the file says nothing of chunks.
            forge(dir.path(), |bytes| {
                let own = (52 * 1024_u64).to_le_bytes();
                let at = position(bytes, &own).unwrap();
                bytes[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
                replace(bytes, b"tcx.chunk_rows", b"tcx.other_rows");
            });
            let store = open(dir.path(), codec);
            assert_eq!(check(&store, &[1, 2]), 2, "{claimed}");
            assert_eq!(store.stats().damaged_segments, 1, "{claimed}");
        }
    }
}

#[test]
fn a_table_of_chunks_that_no_writer_would_make_is_damage() {
    for codec in CODECS {
        for claimed in ["99999", "53247", "00001", "00000", "-1000", "1 2 3", ";;;;;"] {
            let dir = tempfile::tempdir().unwrap();
            add(&open(dir.path(), codec), 0..52);
            forge(dir.path(), |bytes| {
                let own = (52 * 1024_u64).to_string();
                replace(bytes, format!(";{own} ").as_bytes(), format!(";{claimed} ").as_bytes());
            });
            let store = open(dir.path(), codec);
            assert_eq!(check(&store, &[1, 2]), 2, "{claimed}");
            assert_eq!(store.stats().damaged_segments, 1, "{claimed}");
        }
    }
}

#[test]
fn compressed_segments_are_listed_and_verified() {
    for codec in CODECS {
        let dir = tempfile::tempdir().unwrap();
        add(&open(dir.path(), codec), 0..200);
        let folder = dir.path().join("m_v1");
        let damage = || verify(&folder, &mut |_, _| {}).unwrap().damage;
        assert_eq!(damage(), []);
        let inspection = Inspection::open(&folder).unwrap();
        let ids = inspection.rows().map(|found| {
            let found = found.unwrap();
            let id = i64::from_le_bytes(*found.key.first_chunk().unwrap());
            let (vector, noise, text) = row(id);
            let expected = [vector, noise, text.into_bytes()];
            assert!((0..3).all(|leaf| found.leaf(leaf) == Some(&expected[leaf])), "row {id}");
            id
        });
        assert!(ids.eq(0..200));
        // The length of the vectors, which only other programs read.
        forge(dir.path(), |bytes| {
            let at = position(bytes, &(200 * 1024_u64).to_le_bytes()).unwrap();
            bytes[at] ^= 1;
        });
        let [damage] = &damage()[..] else { panic!("one damaged segment") };
        assert!(damage.what.contains("row 0"), "{}", damage.what);
    }
}
