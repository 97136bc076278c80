//! Mirrors of a store that several processes of a machine fill and read.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/buckets.rs"]
mod buckets;
#[path = "support/copies.rs"]
mod copies;
mod support;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use copies::{MODULE, compute, invalidate, open, pull_all, push_all, values};
use tcx_remote::{Copied, Location, Mirror};
use tcx_test_s3::Server;
use tempfile::{TempDir, tempdir};

fn mirror(server: &Server, near: &Path) -> Mirror {
    let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
    Mirror::new(url, near, support::options(server)).unwrap()
}

fn update(mirror: &Mirror) -> Copied {
    mirror.update(MODULE, &mut |_, _| {}).unwrap()
}

/// A store with a module of two rows, of which one was invalidated, and its mirror.
fn filled() -> (Server, TempDir, Mirror) {
    let (server, source, near) = (Server::start(), tempdir().unwrap(), tempdir().unwrap());
    compute(source.path(), &[1, 2], 10);
    invalidate(source.path(), 2);
    push_all(source.path(), &buckets::bucket(&server, "p")).unwrap();
    let mirror = mirror(&server, near.path());
    update(&mirror);
    (server, near, mirror)
}

/// The lock of a process that copies the module to the mirror.
fn copying(mirror: &Mirror) -> File {
    let stage = mirror.directory().join(".tcx-pull").join(MODULE);
    fs::create_dir_all(&stage).unwrap();
    let lock = File::create(stage.join("lock")).unwrap();
    lock.lock().unwrap();
    lock
}

/// The mirror, and what it says while it waits.
fn talking(mirror: &Mirror) -> (Mirror, Receiver<String>) {
    let (sender, said) = channel();
    let sender = Mutex::new(sender);
    (mirror.clone().on_wait(move |note| sender.lock().unwrap().send(note.to_owned()).unwrap()), said)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_mirror_waits_for_another_process_and_says_so() {
    let (server, _near, mirror) = filled();
    let lock = copying(&mirror);
    let (waiting, said) = talking(&mirror);
    let gets = server.counts().gets;
    let update = std::thread::spawn(move || waiting.update(MODULE, &mut |_, _| {}));
    let note = said.recv().unwrap();
    assert!(note.contains("another process copies `m_v1`") && note.contains("waiting"), "{note}");
    assert_eq!(server.counts().gets, gets);
    lock.unlock().unwrap();
    update.join().unwrap().unwrap();
    assert_eq!(values(mirror.directory(), &[1, 2]), [Some(10), None]);
}

#[test]
fn a_mirror_is_removed_whole_and_not_under_a_process_that_fills_it() {
    let (_server, _near, mirror) = filled();
    let folder = mirror.directory().join(MODULE);
    let before = names(&folder);
    let lock = copying(&mirror);
    let (waiting, said) = talking(&mirror);
    let removal = std::thread::spawn(move || waiting.remove(MODULE));
    said.recv().unwrap();
    assert_eq!(names(&folder), before);
    assert!(mirror.directory().join(".tcx-pull").join(MODULE).join("lock").exists());
    lock.unlock().unwrap();
    removal.join().unwrap().unwrap();
    assert_eq!(names(mirror.directory()), Vec::<String>::new());
    update(&mirror);
    assert_eq!(names(&folder), before);
}

#[test]
fn a_part_of_a_mirror_that_an_interrupted_removal_has_left_is_filled_again() {
    for left in ["change-00000000000000000000", "change-00000000000000000001"] {
        let (server, _near, mirror) = filled();
        let (folder, copy) = (mirror.directory().join(MODULE), tempdir().unwrap());
        pull_all(&buckets::bucket(&server, "p"), copy.path()).unwrap();
        fs::remove_file(folder.join(left)).unwrap();
        update(&mirror);
        assert_eq!(names(&folder), names(&copy.path().join(MODULE)), "{left}");
        assert_eq!(values(mirror.directory(), &[1, 2]), [Some(10), None], "{left}");
    }
}

#[test]
fn a_mirror_receives_again_what_was_joined_if_the_store_has_the_joined_segment_no_more() {
    let (server, source, near) = (Server::start(), tempdir().unwrap(), tempdir().unwrap());
    let bucket = buckets::bucket(&server, "p");
    compute(source.path(), &[1], 10);
    compute(source.path(), &[2], 20);
    push_all(source.path(), &bucket).unwrap();
    let segments = || server.keys().into_iter().filter(|key| key.contains("/seg-")).collect::<Vec<_>>();
    let before: Vec<_> = segments().into_iter().map(|key| (server.object(&key).unwrap(), key)).collect();
    open(source.path()).compact().unwrap();
    push_all(source.path(), &bucket).unwrap();
    for (_, key) in &before {
        server.remove(key);
    }
    let mirror = mirror(&server, near.path());
    update(&mirror);
    // A backup of the store is put back.
    for key in segments() {
        server.remove(&key);
    }
    for (object, key) in &before {
        server.put(key, object);
    }
    update(&mirror);
    assert_eq!(values(mirror.directory(), &[1, 2]), [Some(10), Some(20)]);
}
