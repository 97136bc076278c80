//! The rows of a module in a store at one moment: what is wanted of them is read there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use machines::{Machine, segments};
use tcx_store::{
    Column, ColumnType, DType, ErrorKind, Field, Identity, KeyType, Keys, Options, Pin, PinnedRows, Result,
    Spec, Store,
};
use tcx_test_s3::{Fault, Operation, Server};

const ROWS: i64 = 8000;
const WIDTH: usize = 256;
const WIDE: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[WIDTH] } },
    Field { name: "score", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
]);
const MODULE: &str = "wide_v1";

fn wide(machine: &Machine) -> std::sync::Arc<Store> {
    let spec = Spec::new(MODULE, KeyType::Int, &WIDE, Identity::default(), Vec::new()).unwrap();
    let options = Options { gc_grace: Duration::from_millis(1), ..Options::default() };
    machine.cache.open(spec, &options).unwrap()
}

/// Rows whose score is their id, in a segment of their own.
fn compute(store: &Store, ids: std::ops::Range<i64>) {
    let mut rows = store.lookup(Keys::ints(ids.clone(), 0)).unwrap();
    let all: Vec<usize> = (0..rows.len()).collect();
    let vectors: Vec<u8> =
        ids.clone().flat_map(|id| vec![id as f32; WIDTH]).flat_map(f32::to_le_bytes).collect();
    let scores: Vec<u8> = ids.flat_map(i64::to_le_bytes).collect();
    store.insert(&mut rows, &all, vec![Column::dense(&vectors), Column::dense(&scores)]).unwrap();
    store.flush().unwrap();
}

/// The first elements of the vectors of the rows with these scores.
fn vectors(rows: &PinnedRows, wanted: &[i64]) -> Result<BTreeMap<i64, f32>> {
    let mut found = BTreeMap::new();
    for segment in 0..rows.segments() {
        for keys in rows.keys_of(segment)? {
            let keys = keys?;
            let all: Vec<usize> = (0..keys.len()).collect();
            let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
            let read = keys.read(&all, &[1])?;
            let score = |own: &usize| read[*own].as_ref().map(|row| number(row.leaf(0).unwrap()));
            let chosen: Vec<usize> = all
                .into_iter()
                .filter(|own| score(own).is_some_and(|score| wanted.contains(&score)))
                .collect();
            for row in keys.read(&chosen, &[0])?.into_iter().flatten() {
                let vector = row.leaf(0).unwrap();
                assert_eq!(vector.len(), 4 * WIDTH);
                found.insert(number(row.key), f32::from_le_bytes(vector[..4].try_into().unwrap()));
            }
        }
    }
    Ok(found)
}

#[test]
fn only_the_wanted_columns_of_the_wanted_rows_are_received() {
    let server = Server::start();
    compute(&wide(&Machine::new(&server)), 0..ROWS);
    let reader = Machine::new(&server);
    let rows = reader.cache.pinned_rows(MODULE, None).unwrap();
    let bytes = rows.pin().unwrap().segments[0].bytes;
    assert_eq!(
        vectors(&rows, &[5, 4000, 7999]).unwrap(),
        BTreeMap::from([(5, 5.0), (4000, 4000.0), (7999, 7999.0)])
    );
    let traffic = rows.traffic();
    assert!(traffic.bytes_received * 8 < bytes, "{} of {bytes} bytes", traffic.bytes_received);
    assert!(traffic.gets < 40, "{} requests", traffic.gets);
    assert!(reader.files("files").is_empty(), "no copy is made");
}

#[test]
fn machines_read_parts_of_the_same_moment_whatever_comes_later() {
    let server = Server::start();
    let store = wide(&Machine::new(&server));
    compute(&store, 0..2000);
    compute(&store, 2000..4000);
    let pin = Machine::new(&server).cache.pinned_rows(MODULE, None).unwrap().pin().unwrap();
    compute(&store, 4000..5000);
    let part = |segment: usize| {
        let machine = Machine::new(&server);
        let rows = machine.cache.pinned_rows(MODULE, Some(&pin)).unwrap();
        let keys = rows.keys_of(segment).unwrap().map(|keys| keys.unwrap().len());
        keys.sum::<usize>()
    };
    assert_eq!((pin.segments.len(), part(0), part(1)), (2, 2000, 2000));
    store.invalidate(&Keys::ints([7], 0)).unwrap();
    let machine = Machine::new(&server);
    let later = machine.cache.pinned_rows(MODULE, Some(&pin)).unwrap();
    let error = vectors(&later, &[7]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replaced);
}

#[test]
fn rows_whose_segments_were_joined_and_removed_are_an_error() {
    let server = Server::start();
    let store = wide(&Machine::new(&server));
    compute(&store, 0..1000);
    compute(&store, 1000..2000);
    let pin: Pin = Machine::new(&server).cache.pinned_rows(MODULE, None).unwrap().pin().unwrap();
    store.compact().unwrap();
    while segments(&server) > 1 {
        store.collect(Duration::ZERO).unwrap();
    }
    let machine = Machine::new(&server);
    let error = machine.cache.pinned_rows(MODULE, Some(&pin)).unwrap_err().to_string();
    assert!(error.contains("not there any more") && error.contains("run the query again"), "{error}");
    let rows = machine.cache.pinned_rows(MODULE, None).unwrap();
    assert_eq!(vectors(&rows, &[1, 1999]).unwrap().len(), 2);
}

#[test]
fn a_module_that_does_not_exist_is_an_error() {
    let server = Server::start();
    let machine = Machine::new(&server);
    for name in ["absent_v1", "../absent_v1"] {
        machine.cache.pinned_rows(name, None).unwrap_err();
    }
}

#[test]
fn a_store_that_is_away_is_an_error_and_no_row_is_left_out() {
    let server = Server::start();
    compute(&wide(&Machine::new(&server)), 0..ROWS);
    let rows = Machine::new(&server).cache.pinned_rows(MODULE, None).unwrap();
    for _ in 0..100 {
        server.fail_next(Operation::Get, "/seg-", Fault::Denied);
    }
    let error = format!("{:#}", vectors(&rows, &[5]).unwrap_err());
    assert!(error.contains("could not be read now"), "{error}");
}
