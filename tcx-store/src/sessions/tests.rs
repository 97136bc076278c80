//! Records say what was done, and no other part of a store depends on them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::record::{SegmentUses, decode, encode, with_checksum};
use super::recorder::remove_old;
use super::{FOLDER, MOST_BYTES, RecordName, Recorder, Session, sessions};
use crate::LookupOptions;
use crate::stats::Stats;
use crate::storage::{LocalStorage, Storage, System};
use crate::sys::bytes::Random;
use crate::testing::{Fault, Faulty};
use crate::testing::{compute, keys, process, reader, spec, values, with_operations};
use crate::write::{Writer, WriterIntervals};
use crate::{Inspection, Options, OtherFiles, Store, verify};

fn recorded(dir: &Path) -> Vec<Session> {
    sessions(&dir.join("m_v1")).unwrap()
}

fn records(dir: &Path) -> PathBuf {
    dir.join("m_v1").join(FOLDER)
}

/// A store with a row on the disk.
fn filled(dir: &Path) -> Store {
    let store = process(dir);
    compute(&store, &["a"], 7);
    store.flush().unwrap();
    store
}

fn a_session() -> Session {
    let mut stats = Stats { hits: 3, rows_computed: 2, ..Stats::default() };
    (stats.misses, stats.miss_causes.absent, stats.miss_causes.recomputed) = (5, 4, 1);
    stats.seal_times.count = 7;
    stats.seal_times.total = Duration::from_nanos(12_345);
    for (bucket, count) in [(7, 12), (90, 1)] {
        stats.hit_times.add(bucket, count).unwrap();
    }
    stats.miss_times.add(0, 3).unwrap();
    let [started, ended] = [1000, 2000].map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
    let provenance = vec![("host".to_owned(), "a host".to_owned())];
    let uses = vec![SegmentUses { segment: 0xfe, rows: 70, seconds_ago: 9 }];
    Session {
        module: "m_v1".to_owned(),
        started,
        ended,
        is_closed: true,
        process: 9,
        provenance,
        stats,
        uses,
    }
}

#[test]
fn a_closed_store_tells_what_was_done_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a", "b"], 7);
    store.computed(2, std::time::Instant::now());
    store.lookup(keys(&["a"])).unwrap();
    assert!(recorded(dir.path()).is_empty(), "it is not closed");
    drop(store);
    let [session] = &recorded(dir.path())[..] else { panic!("one session") };
    let Stats { hits, misses, rows_computed, rows_sealed, seal_times, compute_times, .. } = session.stats;
    assert_eq!((hits, misses, rows_computed, rows_sealed), (1, 2, 2, 2));
    assert_eq!((seal_times.count, compute_times.count), (1, 1));
    assert!(session.is_closed && session.started <= session.ended);
    assert_eq!((&*session.module, session.process), ("m_v1", std::process::id()));
    let again = process(dir.path());
    assert_eq!(values(&again, &["a", "b"]), [7, 7]);
    drop(again);
    let hits: Vec<u64> = recorded(dir.path()).iter().map(|session| session.stats.hits).collect();
    assert_eq!(hits, [1, 2], "in the order in which they began");
}

#[test]
fn a_session_that_was_ended_may_go_on_and_is_told_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    store.end_session();
    assert!(recorded(dir.path())[0].is_closed);
    store.lookup(keys(&["a"])).unwrap();
    drop(store);
    let [session] = &recorded(dir.path())[..] else { panic!("one session") };
    assert_eq!((session.stats.hits, session.is_closed), (1, true));
}

#[test]
fn a_session_has_one_record_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let mut recorder = Recorder::new(store.core.clone());
    for hits in 1..4 {
        store.lookup(keys(&["a"])).unwrap();
        recorder.record(false);
        let [session] = &recorded(dir.path())[..] else { panic!("one session") };
        assert_eq!((session.stats.hits, session.is_closed), (hits, false));
    }
    recorder.record(true);
    assert!(recorded(dir.path())[0].is_closed);
    assert_eq!(std::fs::read_dir(records(dir.path())).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_process_that_is_killed_has_told_what_it_did_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let often = WriterIntervals {
        record_every: Duration::from_millis(5),
        ..WriterIntervals::new(&Options::default())
    };
    let writer = Writer::start(store.core.clone(), often, ()).unwrap();
    while recorded(dir.path()).is_empty() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!recorded(dir.path())[0].is_closed);
    drop(writer);
}

#[test]
fn a_store_that_is_open_to_read_only_or_was_not_asked_tells_nothing() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    std::fs::remove_dir_all(records(dir.path())).unwrap();
    let store = process(dir.path());
    store.refresh().unwrap();
    store.lookup_with(keys(&["a"]), LookupOptions::uncounted()).unwrap();
    store.end_session();
    drop(store);
    let reader = reader(dir.path());
    assert_eq!(values(&reader, &["a"]), [7]);
    reader.end_session();
    drop(reader);
    assert!(!records(dir.path()).exists());
}

#[test]
fn a_folder_that_is_not_there_or_was_removed_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(values(&process(dir.path()), &["a"]), [-1]);
    assert!(!dir.path().join("m_v1").exists(), "nothing was sealed");
    let store = filled(dir.path());
    let folder = store.core.storage.folder(FOLDER).unwrap();
    std::fs::remove_dir_all(dir.path().join("m_v1")).unwrap();
    folder.draft().map(drop).unwrap_err();
    drop(store);
    assert!(!dir.path().join("m_v1").exists());
}

#[test]
fn a_folder_that_was_emptied_is_written_to_again_whatever_records_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let mut recorder = Recorder::new(store.core.clone());
    recorder.record(false);
    for entry in std::fs::read_dir(dir.path().join("m_v1")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(recorded(dir.path()).len(), 1);
    compute(&store, &["b"], 7);
    store.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["b"]), [7]);

    std::fs::remove_dir_all(dir.path().join("m_v1")).unwrap();
    std::fs::create_dir(dir.path().join("m_v1")).unwrap();
    store.lookup(keys(&["b"])).unwrap();
    recorder.record(false);
    assert!(!records(dir.path()).exists());
}

#[test]
fn a_record_that_cannot_be_written_keeps_nothing_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let refused = Fault::Refused(std::io::ErrorKind::StorageFull);
    let of_record = |path: &Path| path.components().any(|part| part.as_os_str() == FOLDER);
    let steps = Faulty::with(move |_, _, path| of_record(path).then_some(refused));
    let store = with_operations(dir.path(), steps.clone());
    compute(&store, &["a"], 7);
    Recorder::new(store.core.clone()).record(false);
    store.flush().unwrap();
    Recorder::new(store.core.clone()).record(false);
    assert!(steps.has_failed() && store.write_failure().is_none());
    drop(store);
    assert_eq!(values(&process(dir.path()), &["a"]), [7]);
}

#[test]
fn a_link_in_the_place_of_the_records_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(
        outside.join(RecordName { started: 1, random: Random::new() }.to_string()),
        encode(&a_session()),
    )
    .unwrap();
    std::os::unix::fs::symlink(&outside, records(dir.path())).unwrap();
    drop(store);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert!(recorded(dir.path()).is_empty());
}

#[test]
fn what_is_no_record_is_left_out_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a"], 7);
    drop(store);
    let name = |started| RecordName { started, random: Random::new() }.to_string();
    std::fs::write(records(dir.path()).join("notes.txt"), "mine").unwrap();
    std::fs::write(records(dir.path()).join(name(1)), "tcx session 1\n").unwrap();
    std::fs::write(records(dir.path()).join(name(2)), vec![b'x'; 1 << 20]).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", records(dir.path()).join(name(3))).unwrap();
    std::fs::create_dir(records(dir.path()).join(name(4))).unwrap();
    assert_eq!(recorded(dir.path()).len(), 1);
    assert_eq!(std::fs::read_dir(records(dir.path())).unwrap().count(), 6);
}

#[test]
fn nothing_else_takes_records_for_a_part_of_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let before = store.disk_usage().unwrap();
    drop(store);
    std::fs::write(records(dir.path()).join("0-0.txt"), "anything").unwrap();
    let store = process(dir.path());
    assert_eq!(store.disk_usage().unwrap(), before);
    assert_eq!(store.collect(Duration::ZERO).unwrap(), 0);
    drop(store);
    let module = dir.path().join("m_v1");
    assert_eq!(OtherFiles::read(&module).unwrap().unrecognised, [""; 0]);
    assert!(verify(&module, &mut |_, _| {}).unwrap().damage.is_empty());
    let used = Inspection::open(&module).unwrap().last_used();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(recorded(dir.path()).len(), 1);
    assert_eq!(Inspection::open(&module).unwrap().last_used(), used, "looking is no use");
}

#[test]
fn every_number_of_a_record_is_read_back() {
    let session = a_session();
    assert_eq!(decode(&encode(&session)), Some(session.clone()));
    let odd = vec![
        ("no word".to_owned(), "x".to_owned()),
        ("program".to_owned(), "two\nlines ".to_owned() + &"é".repeat(200)),
    ];
    let decoded = decode(&encode(&Session { provenance: odd, ..session })).unwrap();
    let [(name, value)] = &decoded.provenance[..] else { panic!("one entry") };
    assert_eq!(name, "program");
    assert!(value.starts_with("two lines éé") && value.len() <= 200, "{value}");
}

#[test]
fn a_record_of_the_largest_texts_is_short_enough_to_be_read() {
    let texts = (0..100).map(|number| (format!("{number:0200}"), "x".repeat(1000))).collect();
    let mut stats = Stats { hits: u64::MAX, ..Stats::default() };
    (0..108).for_each(|bucket| stats.hit_times.add(bucket, 1 << 40).unwrap());
    let uses =
        (0..10_000).map(|segment| SegmentUses { segment, rows: u64::MAX - segment, seconds_ago: u64::MAX });
    let session =
        Session { module: "m".repeat(100), provenance: texts, stats, uses: uses.collect(), ..a_session() };
    assert!(encode(&session).len() <= MOST_BYTES);
    let decoded = decode(&encode(&session)).unwrap();
    assert_eq!(decoded.provenance.len(), 32);
    assert_eq!(decoded.uses, session.uses[..decoded.uses.len()], "the most used");
    let short = decode(&encode(&Session { provenance: Vec::new(), ..session })).unwrap();
    assert!(short.uses.len() > 200, "{} segments", short.uses.len());
}

#[test]
fn a_damaged_record_is_none_and_unknown_lines_are_left_out() {
    let bytes = encode(&a_session());
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(decode(&damaged), None, "byte {at}");
        assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
    }
    let text = String::from_utf8(bytes).unwrap();
    let text = text.split_once("checksum").unwrap().0;
    let newer = with_checksum(format!("{text}time.of_day 5 6 7\nweather fine\n"));
    assert_eq!(decode(&newer), Some(a_session()));
    for (old, new) in [
        ("session 1", "session 2"),
        ("hits 3", "hits -3"),
        ("uses 00000000000000fe 70", "uses fe 70"),
        ("found 7:12", "found 7"),
        ("missed 0:3", "missed 108:3"),
        ("module m_v1", "module ../m"),
        ("started 1000\n", ""),
    ] {
        assert_eq!(decode(&with_checksum(text.replace(old, new))), None, "{new}");
    }
    let huge = text
        .replace("hits 3", &format!("hits {}", u64::MAX))
        .replace("absent 4", &format!("absent {}", u64::MAX));
    assert_eq!(decode(&with_checksum(huge)).unwrap().stats.misses, u64::MAX);
}

#[test]
fn the_oldest_records_go_when_there_are_too_many_and_so_does_what_killed_processes_left() {
    let dir = tempfile::tempdir().unwrap();
    let folder = LocalStorage::new(dir.path().join("records"), System);
    folder.make().unwrap();
    let put = |name: String| folder.draft().unwrap().publish(&name, false).unwrap();
    (0..10).for_each(|started| put(RecordName { started, random: Random::new() }.to_string()));
    put(format!("tmp-{}", Random::new()));
    put("notes.txt".to_owned());
    let started = |folder: &dyn Storage| {
        let mut left: Vec<u64> =
            folder.list().unwrap().iter().filter_map(|name| Some(RecordName::parse(name)?.started)).collect();
        left.sort_unstable();
        left
    };
    remove_old(&folder, 4, 10, Duration::from_hours(1));
    assert_eq!(started(&folder).len(), 10, "not worth it yet");
    assert_eq!(folder.list().unwrap().len(), 12);
    remove_old(&folder, 4, 9, Duration::ZERO);
    assert_eq!(started(&folder), [6, 7, 8, 9]);
    assert_eq!(folder.list().unwrap().len(), 5, "what is not tcx's stays");
}

#[test]
fn a_refused_store_tells_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(dir.path().join("m_v1"), System));
    let refused = Store::with_storage(storage, spec(), &Options::default()).unwrap();
    refused.lookup(keys(&["a"])).unwrap();
    compute(&process(dir.path()), &["a"], 7);
    refused.core.remember(&crate::Error::of_kind(crate::ErrorKind::Incompatible, "another's"));
    drop(refused);
    assert_eq!(recorded(dir.path()).len(), 1);
}
