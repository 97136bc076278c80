//! Ids that were chosen to have the same hash.

use crate::index::Run;
use crate::live::run_set::publish_run;
use crate::schema::key::KeySeed;
use crate::storage::name::FileName;
use crate::storage::{LocalStorage, Storage, System};
use crate::sys::bytes::Random;
use crate::testing::{compute, names, process, seal_all, values};
use crate::upkeep::tasks::merge_runs;
use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

const PRIME: u64 = 0x9FB2_1C65_1E98_DF25;

/// What is multiplied with `PRIME` and wraps to 1.
fn inverse_prime() -> u64 {
    // Newton's iteration: each step doubles the bits that are right.
    (0..6).fold(PRIME, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(PRIME.wrapping_mul(inverse))))
}

/// The eight bytes whose XXH3-64 without a seed is this one.
fn with_hash(hash: u64) -> i64 {
    let mut h = hash ^ (hash >> 28) ^ (hash >> 56);
    h = h.wrapping_mul(inverse_prime());
    // The upper 35 bits are as they were, and say what was added to the others.
    h ^= (h >> 35) + 8;
    h = h.wrapping_mul(inverse_prime());
    // The 64th power of this step changes nothing.
    h = (0..63).fold(h, |h, _| h ^ h.rotate_left(49) ^ h.rotate_left(24));
    (h ^ FLIPPED).rotate_left(32) as i64
}

/// The bits that XXH3-64 flips in eight bytes before anything else.
const FLIPPED: u64 = 0xC73A_B174_C5EC_D5A2;

/// So many different ids, whose hashes without a seed begin with the same 48 bits.
fn chosen(count: u64) -> Vec<i64> {
    let ids: Vec<i64> = (0..count).map(|low| with_hash(0x1234_5678_9abc_0000 | low)).collect();
    let hashes = ids.iter().map(|id| KeySeed::NONE.hash(&id.to_le_bytes(), 0));
    assert!(hashes.enumerate().all(|(low, hash)| hash == 0x1234_5678_9abc_0000 | low as u64));
    ids
}

fn open(dir: &std::path::Path) -> Store {
    let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    let storage = LocalStorage::new(dir.join("m_v1"), System);
    Store::with_storage(std::sync::Arc::new(storage), spec, &Options::default()).unwrap()
}

/// How many rows of a run may be that of this hash.
fn candidates(run: &Run, hash: u64) -> usize {
    let (table, mut count) = (run.table(), 0);
    let mut place = table.home(hash);
    while let Some(found) = table.probe_from(hash, place).unwrap() {
        (place, count) = (found.next, count + 1);
    }
    count
}

#[test]
fn ids_that_were_chosen_to_share_a_hash_do_not_share_it_in_a_cache_or_in_memory() {
    let (dir, ids) = (tempfile::tempdir().unwrap(), chosen(2_000));
    let store = open(dir.path());
    let mut rows = store.lookup(Keys::ints(ids.clone(), 0)).unwrap();
    let positions: Vec<usize> = (0..ids.len()).collect();
    store.insert(&mut rows, &positions, vec![Column::dense(&vec![7; ids.len()])]).unwrap();
    seal_all(&store);
    let snapshot = store.core.snapshot();
    for indexed in &snapshot.runs {
        let hashes = ids.iter().map(|id| indexed.run.seed().hash(&id.to_le_bytes(), 0));
        assert_eq!(hashes.map(|hash| candidates(&indexed.run, hash)).max(), Some(1));
    }
    let in_memory = Keys::ints(ids, 0);
    let hashes = (0..in_memory.len()).map(|position| in_memory.hash(position, KeySeed::of_process()) >> 16);
    assert_eq!(hashes.collect::<std::collections::HashSet<_>>().len(), in_memory.len());
}

#[test]
fn each_cache_has_a_seed_of_its_own() {
    let seeds = [(); 2].map(|()| {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["x"], 1);
        seal_all(&store);
        store.core.snapshot().runs[0].run.seed()
    });
    assert_ne!(seeds[0], seeds[1]);
}

/// As the version before has written it.
fn without_seed(bytes: &[u8], hashes: &[(crate::storage::name::SegmentName, Vec<u64>)]) -> Vec<u8> {
    let seeded = crate::index::build_run(KeySeed::NONE, hashes);
    assert_eq!(seeded.len(), bytes.len());
    let mut own = seeded;
    own[..12].copy_from_slice(b"TCXRUN02\x02\0\0\0");
    // The segments follow at once.
    own.copy_within(48..72, 40);
    own[64..72].fill(0);
    let header = u64::from_le_bytes(own[32..40].try_into().unwrap()) as usize;
    let sum = crate::sys::checksum::checksum(&own[..header - 8]);
    own[header - 8..header].copy_from_slice(&sum.to_le_bytes());
    own
}

#[test]
fn runs_without_a_seed_are_used_beside_those_that_have_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x", "y"], 5);
    seal_all(&store);
    drop(store);
    let storage = LocalStorage::new(dir.path().join("m_v1"), System);
    let run = names(dir.path(), "run-").remove(0);
    let bytes = storage.map(&run).unwrap().to_vec();
    let Some(FileName::Segment(segment)) = FileName::parse(&names(dir.path(), "seg-")[0]) else { panic!() };
    let hashes = ["x", "y"].map(|key| KeySeed::NONE.hash(key.as_bytes(), 0)).to_vec();
    storage.remove(&run).unwrap();
    publish_run(&storage, Random::new(), &without_seed(&bytes, &[(segment, hashes)])).unwrap();
    let store = process(dir.path());
    assert_eq!(values(&store, &["x", "y", "z"]), [5, 5, -1]);
    compute(&store, &["a"], 7);
    seal_all(&store);
    assert_eq!(values(&store, &["x", "a", "y"]), [5, 7, 5]);
    assert_eq!((store.stats().rebuilt_runs, store.runs()), (0, 2));
    merge_runs(&store.core, true);
    assert_eq!((values(&store, &["x", "a", "y"]), store.runs()), (vec![5, 7, 5], 2));
    for key in ["b", "c", "d", "e"] {
        compute(&store, &[key], 7);
        seal_all(&store);
    }
    store.compact().unwrap();
    assert_eq!(values(&store, &["x", "a", "y", "e", "z"]), [5, 7, 5, 7, -1]);
    drop(store);
    assert_eq!(crate::verify(&dir.path().join("m_v1"), &mut |_, _| {}).unwrap().damage.len(), 0);
}
