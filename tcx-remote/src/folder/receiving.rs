//! The threads that receive segments which a listing has shown. Until a segment is here, its rows are read in the store, so no lookup waits
//! for them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tcx_store::unstable::runtime;

use super::Inner;
use super::fetch::{Received, is_full};
use super::reach::is_away;

/// Segments that are received at the same time; each in ranges that are in flight together.
const RECEIVERS: usize = 4;

/// If there is no room for a segment, nothing of its size is tried again within this time.
const NO_ROOM_FOR: Duration = Duration::from_mins(10);

/// What this process is to receive.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Names and lengths.
    waiting: VecDeque<(String, u64)>,
    /// The threads that run.
    receivers: usize,
    /// When there was no room, and for what length.
    no_room: Option<(Instant, u64)>,
}

impl Arrivals {
    /// These segments are not here. Returns how many threads are to be started.
    fn want(&mut self, missing: Vec<(String, u64)>) -> usize {
        let no_room = self.no_room.filter(|(since, _)| runtime::now().duration_since(*since) < NO_ROOM_FOR);
        let has_room = |bytes: u64| no_room.is_none_or(|(_, refused)| bytes < refused);
        self.waiting = missing.into_iter().filter(|(_, bytes)| has_room(*bytes)).collect();
        let more = self.waiting.len().min(RECEIVERS).saturating_sub(self.receivers);
        self.receivers += more;
        more
    }

    /// The next segment. If there is no other, the thread ends.
    fn next(&mut self) -> Option<(String, u64)> {
        let next = self.waiting.pop_front();
        self.receivers -= usize::from(next.is_none());
        next
    }

    fn refuse(&mut self, bytes: u64) {
        let least = self
            .no_room
            .filter(|(since, _)| runtime::now().duration_since(*since) < NO_ROOM_FOR)
            .map(|(_, least)| least);
        self.no_room = Some((runtime::now(), least.unwrap_or(bytes).min(bytes)));
        self.waiting.retain(|(_, waiting)| *waiting < bytes);
    }
}

impl Inner {
    /// Receives these segments, whose copies are not here. Those of an earlier call that are not among them are not wanted any more.
    pub(super) fn receive_later(self: &Arc<Self>, missing: Vec<(String, u64)>) -> io::Result<()> {
        for _ in 0..self.state(|state| state.arrivals.want(missing))? {
            let folder = Arc::downgrade(self);
            let started = std::thread::Builder::new()
                .name("tcx-receive".to_owned())
                .spawn(move || keep_receiving(&folder));
            if started.is_err() {
                // The next listing tries again.
                self.state(|state| state.arrivals.receivers -= 1)?;
            }
        }
        Ok(())
    }

    /// Receives a segment.
    fn receive_next(&self, name: &str, bytes: u64) -> io::Result<()> {
        if self.is_here(name) {
            return Ok(());
        }
        let received = self.receive(name, bytes, &self.bucket.in_background());
        match &received {
            Ok(Received::NoRoom) => self.state(|state| state.arrivals.refuse(bytes))?,
            Err(error) if is_full(error) => self.state(|state| state.arrivals.refuse(0))?,
            // The next listing asks for the rest again.
            Err(error) if is_away(error) => self.state(|state| state.arrivals.waiting.clear())?,
            _ => {}
        }
        received.map(drop)
    }
}

fn keep_receiving(folder: &Weak<Inner>) {
    while let Some(folder) = folder.upgrade() {
        let Ok(Some((name, bytes))) = folder.state(|state| state.arrivals.next()) else { return };
        if let Err(error) = folder.receive_next(&name, bytes) {
            tracing::debug!(segment = %name, "not received: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(lengths: &[u64]) -> Vec<(String, u64)> {
        lengths.iter().map(|bytes| (format!("seg-{bytes}"), *bytes)).collect()
    }

    #[test]
    fn a_few_threads_receive_what_the_last_listing_has_shown() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.want(segments(&[1, 2])), 2);
        assert_eq!(arrivals.want(segments(&[1, 2, 3, 4, 5, 6])), RECEIVERS - 2);
        assert_eq!(arrivals.want(segments(&[3, 4])), 0);
        assert_eq!(
            (arrivals.next(), arrivals.next()),
            (Some(("seg-3".into(), 3)), Some(("seg-4".into(), 4)))
        );
        assert_eq!((arrivals.next(), arrivals.receivers), (None, RECEIVERS - 1));
    }

    #[test]
    fn what_there_is_no_room_for_is_not_tried_at_each_listing() {
        let mut arrivals = Arrivals::default();
        arrivals.want(segments(&[10, 50, 100]));
        arrivals.refuse(50);
        assert_eq!(arrivals.waiting.len(), 1);
        assert_eq!(arrivals.want(segments(&[20, 50, 100])), 0);
        assert_eq!(arrivals.waiting, segments(&[20]));
    }
}
