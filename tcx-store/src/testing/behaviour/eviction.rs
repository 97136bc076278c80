//! Which rows make room in a full folder: those that the policy chooses, never rows that were just acknowledged.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::changes::now_millis;
use crate::storage::name::{FileName, SegmentName};
use crate::storage::{LocalStorage, System};
use crate::testing::{compute, go_ahead, keys, names, process, seal_all, spec, values};
use crate::{
    Compression, Eviction, EvictionCandidate, EvictionPolicy, LookupOptions, Options, ReadMode, Store,
    WhenFull,
};

pub(super) fn open(dir: &Path, options: &Options) -> Store {
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
    let options = Options { flush_interval, refresh_every, ..options.clone() };
    let storage = LocalStorage::new(dir.join("m_v1"), System).reading(options.read_mode);
    Store::with_storage(Arc::new(storage), spec(), &options).unwrap()
}

/// A process that evicts what exceeds the bytes that the folder has now.
fn evicting(dir: &Path, when_full: WhenFull) -> Store {
    open(dir, &Options { max_bytes: Some(bytes(dir)), when_full, ..Options::default() })
}

/// Another process adds half as much as there is, and this one makes room for it.
fn exceed(writer: &Store, evicting: &Store) {
    add(writer, SEGMENTS..SEGMENTS * 3 / 2);
    evicting.refresh().unwrap();
    evicting.core.keep_within_limits().unwrap();
}

pub(super) fn bytes(dir: &Path) -> u64 {
    let files = names(dir, "").into_iter();
    files.map(|name| std::fs::metadata(dir.join("m_v1").join(name)).unwrap().len()).sum()
}

const SEGMENTS: u64 = 12;

/// Segments of one row each, one a minute; the last is of this moment. The process that has written them joins them when it ends.
fn fill(dir: &Path) -> (Store, Vec<String>) {
    let store = process(dir);
    let ids = add(&store, 0..SEGMENTS);
    (store, ids)
}

fn add(store: &Store, numbers: std::ops::Range<u64>) -> Vec<String> {
    let add = |number: u64| {
        go_ahead(Duration::from_mins(number + 1));
        let id = number.to_string();
        compute(store, &[&id], 7);
        seal_all(store);
        id
    };
    numbers.map(add).collect()
}

/// The numbers of the rows that are left.
fn left(dir: &Path, ids: &[String]) -> Vec<usize> {
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let found = values(&process(dir), &ids).into_iter().enumerate();
    found.filter(|(_, value)| *value == 7).map(|(id, _)| id).collect()
}

fn serve(store: &Store, id: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(store.lookup(keys(&[id])).unwrap().missing(), 0);
    }
}

#[test]
fn the_least_used_rows_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, ids) = fill(dir.path());
    let store = evicting(dir.path(), WhenFull::EvictLeastUsed);
    for id in ["0", "1", "4", "11"] {
        serve(&store, id, 20);
    }
    serve(&store, "5", 1);
    exceed(&writer, &store);
    let left = left(dir.path(), &ids);
    assert!([0, 1, 4, 5, 11].iter().all(|id| left.contains(id)), "{left:?}");
    assert!(![9, 10].iter().any(|id| left.contains(id)), "{left:?}");
}

#[test]
fn uses_count_that_other_processes_have_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, ids) = fill(dir.path());
    let other = process(dir.path());
    for id in ["0", "1", "4", "11"] {
        serve(&other, id, 20);
    }
    other.end_session();
    let only_reads = crate::testing::reader(dir.path());
    serve(&only_reads, "10", 100);
    drop(only_reads);
    let store = evicting(dir.path(), WhenFull::EvictLeastUsed);
    exceed(&writer, &store);
    let left = left(dir.path(), &ids);
    assert!([0, 1, 4, 11].iter().all(|id| left.contains(id)), "{left:?}");
    assert!(!left.contains(&10), "a process that is open to read only records nothing: {left:?}");
    drop(other);
}

#[test]
fn uses_of_long_ago_count_less() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, ids) = fill(dir.path());
    let other = process(dir.path());
    serve(&other, "0", 40);
    other.end_session();
    let store = evicting(dir.path(), WhenFull::EvictLeastUsed);
    add(&writer, SEGMENTS..SEGMENTS * 3 / 2);
    go_ahead(Duration::from_hours(72));
    store.refresh().unwrap();
    // All that is old but five segments, and those that may not go.
    for id in ["1", "2", "3", "4", "5", "6", "7"] {
        serve(&store, id, 10);
    }
    for id in SEGMENTS..SEGMENTS * 3 / 2 {
        serve(&store, &id.to_string(), 10);
    }
    store.core.keep_within_limits().unwrap();
    let left = left(dir.path(), &ids);
    assert!(!left.contains(&0) && left.contains(&7), "{left:?}");
    drop(other);
}

fn segments(store: &Store) -> Vec<SegmentName> {
    store.core.snapshot().segments.iter().map(|segment| segment.name()).collect()
}

#[test]
fn a_joined_segment_has_the_uses_of_those_it_was_joined_from() {
    let dir = tempfile::tempdir().unwrap();
    let (_writer, ids) = fill(dir.path());
    let other = process(dir.path());
    serve(&other, "0", 30);
    other.end_session();
    drop(other);
    // So long that all segments are of one age.
    let time_to_live = Some(Duration::from_hours(24 * 365));
    let when_full = WhenFull::EvictLeastUsed;
    let store = open(
        dir.path(),
        &Options { max_bytes: Some(1 << 30), when_full, time_to_live, ..Options::default() },
    );
    for id in &ids {
        serve(&store, id, 5);
    }
    go_ahead(Duration::from_hours(1));
    while segments(&store).len() > 4 && store.core.compact(crate::upkeep::compaction::Effort::Steady).unwrap()
    {
    }
    let now = now_millis();
    let uses = store.core.uses(now);
    let all: f64 = segments(&store).into_iter().map(|name| uses.of(name, now).rows(now)).sum();
    assert!(segments(&store).len() < SEGMENTS as usize, "something was joined");
    assert!((80. ..=91.).contains(&all), "{all} uses of 90, an hour later");
}

#[test]
fn a_policy_of_ones_own_decides_and_does_not_see_the_newest_rows() {
    struct Chosen {
        seen: Mutex<Vec<EvictionCandidate>>,
    }
    impl EvictionPolicy for Chosen {
        fn name(&self) -> &'static str {
            "chosen"
        }

        fn choose(&self, candidates: &[EvictionCandidate], excess: u64) -> Vec<usize> {
            assert!(excess > 0);
            *self.seen.lock().unwrap() = candidates.to_vec();
            // Twice the same, and one that is not there.
            vec![3, 3, usize::MAX, 4, 5, 6, 7, 8, 9]
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (writer, ids) = fill(dir.path());
    let policy: &Chosen = Box::leak(Box::new(Chosen { seen: Mutex::default() }));
    let store = evicting(dir.path(), WhenFull::EvictBy(Eviction::new(policy)));
    serve(&store, "2", 3);
    exceed(&writer, &store);
    let seen = policy.seen.lock().unwrap();
    assert_eq!(seen.len() as u64, SEGMENTS * 3 / 2 - 2, "all but an eighth of the limit");
    assert!(seen.is_sorted_by_key(|candidate| candidate.born) && seen.iter().all(|own| own.rows == 1));
    assert_eq!((seen[2].uses, seen[2].last_used.is_some(), seen[3].uses), (3, true, 0));
    assert!(matches!(FileName::parse(&seen[0].name), Some(FileName::Segment(_))));
    let left = left(dir.path(), &ids);
    assert!([1, 2, 10, 11].iter().all(|id| left.contains(id)), "{left:?}");
    assert!(![3, 4, 5].iter().any(|id| left.contains(id)), "{left:?}");
}

#[test]
fn a_policy_that_answers_nothing_or_panics_does_not_keep_the_folder_above_its_limit() {
    struct Silent;
    impl EvictionPolicy for Silent {
        fn name(&self) -> &'static str {
            "silent"
        }

        fn choose(&self, _: &[EvictionCandidate], _: u64) -> Vec<usize> {
            Vec::new()
        }
    }
    struct Panics;
    impl EvictionPolicy for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn choose(&self, _: &[EvictionCandidate], _: u64) -> Vec<usize> {
            panic!("a mistake of the policy")
        }
    }
    for eviction in [Eviction::new(&Silent), Eviction::new(&Panics)] {
        let dir = tempfile::tempdir().unwrap();
        let (writer, ids) = fill(dir.path());
        let max = bytes(dir.path());
        let store = evicting(dir.path(), WhenFull::EvictBy(eviction));
        exceed(&writer, &store);
        let left = left(dir.path(), &ids);
        let gone = SEGMENTS as usize - left.len();
        assert_eq!(left, (gone..SEGMENTS as usize).collect::<Vec<_>>(), "{eviction:?}: the oldest go");
        assert!(bytes(dir.path()) <= max && gone > 3 && left.len() > 3, "{eviction:?}: {left:?}");
    }
}

#[test]
fn a_policy_may_open_a_store_while_one_is_opened() {
    struct Opens(std::path::PathBuf);
    impl EvictionPolicy for Opens {
        fn name(&self) -> &'static str {
            "opens"
        }

        fn choose(&self, _: &[EvictionCandidate], _: u64) -> Vec<usize> {
            drop(Store::open(&self.0, spec(), &Options::default()).unwrap());
            Vec::new()
        }
    }
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_writer, ids) = fill(dir.path());
    let policy: &Opens = Box::leak(Box::new(Opens(other.path().to_owned())));
    let max_bytes = Some(bytes(dir.path()) / 2);
    let when_full = WhenFull::EvictBy(Eviction::new(policy));
    let path = dir.path().to_owned();
    let opened = std::thread::spawn(move || {
        let options = Options { max_bytes, when_full, ..Options::default() };
        Store::open(&path, spec(), &options).map(drop).unwrap();
    });
    let start = std::time::Instant::now();
    while !opened.is_finished() {
        assert!(start.elapsed() < Duration::from_mins(1), "it waits for itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    opened.join().unwrap();
    assert!(left(dir.path(), &ids).len() < SEGMENTS as usize);
}

#[test]
fn random_rows_make_room_and_not_the_same_in_every_folder() {
    let runs: Vec<Vec<usize>> = (0..4)
        .map(|_| {
            let dir = tempfile::tempdir().unwrap();
            let (writer, ids) = fill(dir.path());
            exceed(&writer, &evicting(dir.path(), WhenFull::EvictRandom));
            left(dir.path(), &ids)
        })
        .collect();
    assert!(runs.iter().all(|left| left.len() < SEGMENTS as usize), "{runs:?}");
    // The probability that four runs choose the same is less than one in a million.
    assert!(runs.iter().any(|left| *left != runs[0]), "{runs:?}");
}

#[test]
fn rows_that_were_just_acknowledged_are_not_evicted_although_nothing_has_used_them() {
    for when_full in [WhenFull::EvictOldest, WhenFull::EvictLeastUsed, WhenFull::EvictRandom] {
        let dir = tempfile::tempdir().unwrap();
        let max = 60_000;
        let store = open(dir.path(), &Options { max_bytes: Some(max), when_full, ..Options::default() });
        let hot: Vec<String> = (0..4).map(|id| format!("hot {id}")).collect();
        for round in 1..=80 {
            go_ahead(Duration::from_mins(round));
            let id = format!("{round}");
            compute(&store, &[&id], 7);
            seal_all(&store);
            store.core.keep_within_limits().unwrap();
            assert_eq!(values(&store, &[&id]), [7], "{when_full:?}");
            if round <= 4 {
                let hot = &hot[round as usize - 1];
                compute(&store, &[hot], 7);
                seal_all(&store);
            }
            hot.iter().take(round as usize).for_each(|id| drop(store.lookup(keys(&[id])).unwrap()));
        }
        assert!(bytes(dir.path()) <= max + 10_000, "{when_full:?}: {} bytes", bytes(dir.path()));
        let hot: Vec<&str> = hot.iter().map(String::as_str).collect();
        let kept = values(&store, &hot).iter().filter(|value| **value == 7).count();
        match when_full {
            WhenFull::EvictOldest => assert_eq!(kept, 0, "the oldest"),
            WhenFull::EvictLeastUsed => assert_eq!(kept, 4, "what is used in every round stays"),
            _ => {}
        }
    }
}

#[test]
fn the_uses_of_segments_are_estimated_wherever_their_rows_are_read() {
    let options = [
        Options::default(),
        Options { compression: Compression::Lz4, ..Options::default() },
        Options { read_mode: ReadMode::Pread, ..Options::default() },
    ];
    for options in options {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), &options);
        // Of each batch, a fourth is in the first segment, and the rest in the second.
        let ids: Vec<String> = (0..64).map(|id| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        compute(&store, &ids[..16], 7);
        seal_all(&store);
        let first = segments(&store)[0];
        compute(&store, &ids[16..], 7);
        seal_all(&store);
        let second = segments(&store).into_iter().find(|name| *name != first).unwrap();
        store.lookup_with(keys(&ids), LookupOptions::uncounted()).unwrap();
        let now = now_millis();
        assert_eq!(store.core.uses(now).of(first, now).rows(now) as u64, 0, "what is not counted is no use");
        for _ in 0..400 {
            store.lookup(keys(&ids)).unwrap();
        }
        let uses = store.core.uses(now);
        let [first, second] = [first, second].map(|name| uses.of(name, now).rows(now));
        assert_eq!((first + second) as usize, 400 * 64, "{options:?}");
        assert!((0.19..0.31).contains(&(first / (first + second))), "{options:?}: {first} and {second}");
    }
}
