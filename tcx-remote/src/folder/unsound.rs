//! Segments of which no sound copy can be made: the object is damaged, or the disk of the near tier damages the copy. They are not received
//! at each listing: their rows are read in the store, where that can be done. What asks for one by its name receives it in any case.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant, SystemTime};

use tcx_store::unstable::runtime;

use super::Inner;
use super::fetch::is_full;
use super::reach::is_away;

/// The pause before such a segment is received again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_mins(10), Duration::from_hours(24));

/// A segment of which there is no sound copy.
#[derive(Debug)]
pub(super) struct Unsound {
    failures: u32,
    next: Instant,
    /// The length and the time of the object: another one may be sound.
    object: Option<(u64, SystemTime)>,
}

/// After this failure, counted from 0.
fn pause(failures: u32) -> Duration {
    PAUSES.0.saturating_mul(2_u32.saturating_pow(failures)).min(PAUSES.1)
}

impl Inner {
    /// Whether it is time to receive a segment that a listing shows.
    pub(super) fn is_receivable(&self, name: &str) -> io::Result<bool> {
        self.state(|state| {
            let listed = state.listed.get(name).copied();
            let of_this = state.unsound.get(name).filter(|unsound| unsound.object == listed);
            of_this.is_none_or(|unsound| runtime::now() >= unsound.next)
        })
    }

    /// A segment has arrived damaged twice.
    pub(super) fn note_damaged(&self, name: &str, what: &str) {
        let Ok((failures, pause)) = self.note_unsound(name, 0) else { return };
        let object = self.path().join(name).display().to_string();
        if failures == 1 {
            tracing::warn!(%object, "received damaged twice: {what}; its rows are misses, and it is received again after {pause:?}");
        } else {
            tracing::debug!(%object, "received damaged again: {what}");
        }
    }

    /// An attempt to receive a segment has failed, where that says something of its copy.
    pub(super) fn note_failed(&self, name: &str, error: &io::Error) {
        if !is_away(error) && !is_full(error) && error.kind() != ErrorKind::NotFound {
            let _ = self.note_unsound(name, 0);
        }
    }

    /// A copy was found to be damaged. The first time, another one is received at once.
    pub(super) fn note_distrusted(&self, name: &str) {
        let _ = self.note_unsound(name, 1);
    }

    /// How often there was no sound copy so far, and the pause from now on, if there is one. `free` failures have none.
    fn note_unsound(&self, name: &str, free: u32) -> io::Result<(u32, Duration)> {
        self.state(|state| {
            let object = state.listed.get(name).copied();
            let before = state.unsound.get(name).filter(|unsound| unsound.object == object);
            let failures = before.map_or(0, |unsound| unsound.failures).saturating_add(1);
            let pause = if failures > free { pause(failures - free - 1) } else { Duration::ZERO };
            let unsound = Unsound { failures, next: runtime::now() + pause, object };
            state.unsound.insert(name.to_owned(), unsound);
            (failures, pause)
        })
    }
}

#[cfg(test)]
mod tests {
    use tcx_store::unstable::Storage;
    use tcx_store::{Column, Keys};
    use tcx_test_s3::Server;

    use super::super::RemoteFolder;
    use super::super::tests::{folder, invalidate, key, machine, segment};
    use super::*;

    /// How many requests for objects a listing has made.
    fn gets_of_a_listing(server: &Server, folder: &RemoteFolder) -> u64 {
        let before = server.counts().gets;
        folder.list().unwrap();
        server.counts().gets - before
    }

    #[test]
    fn a_damaged_object_is_received_twice_and_then_after_growing_pauses() {
        let server = Server::start();
        invalidate(&server, 1);
        let (_tier, folder) = folder(&server, &[0, 1]);
        server.put(&key(&segment(1)), b"no rows");
        assert_eq!(gets_of_a_listing(&server, &folder), 2);
        for _ in 0..3 {
            assert_eq!(gets_of_a_listing(&server, &folder), 0);
        }
        // What asks for it reads it.
        let before = server.counts().gets;
        assert_eq!(&folder.map(&segment(1)).unwrap()[..], b"no rows");
        assert_eq!(server.counts().gets - before, 2);
        let is_over = |state: &mut super::super::State| {
            state.unsound.values_mut().for_each(|own| own.next = runtime::now());
        };
        folder.0.state(is_over).unwrap();
        assert_eq!((gets_of_a_listing(&server, &folder), gets_of_a_listing(&server, &folder)), (2, 0));
        // Another object takes its place.
        server.put(&key(&segment(1)), b"no rows either");
        assert_eq!((gets_of_a_listing(&server, &folder), gets_of_a_listing(&server, &folder)), (2, 0));
        // It is not there any more.
        server.remove(&key(&segment(1)));
        folder.list().unwrap();
        folder.0.state(|state| assert!(state.unsound.is_empty())).unwrap();
    }

    #[test]
    fn a_copy_that_the_disk_damages_is_received_a_second_time_and_then_after_pauses() {
        let server = Server::start();
        let (_other, store) = machine(&server);
        let mut rows = store.lookup(Keys::ints([1], 0)).unwrap();
        store.insert(&mut rows, &[0], vec![Column::dense(&10_i64.to_le_bytes())]).unwrap();
        store.flush().unwrap();
        let (_tier, folder) = folder(&server, &[0]);
        assert_eq!(gets_of_a_listing(&server, &folder), 1);
        let name = server.keys().into_iter().find(|key| key.contains("/seg-")).unwrap();
        let name = name.rsplit('/').next().unwrap();
        for expected in [1, 0, 0] {
            folder.distrust(name);
            assert_eq!(gets_of_a_listing(&server, &folder), expected);
        }
    }

    #[test]
    fn the_pauses_double_up_to_a_day() {
        let minutes: Vec<u64> = (0..10).map(|failures| pause(failures).as_secs() / 60).collect();
        assert_eq!(minutes, [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]);
        assert_eq!(pause(u32::MAX), PAUSES.1);
    }
}
