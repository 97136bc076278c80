//! How many long bodies this process sends at the same time, and how much time each has.
//!
//! The bodies share a line. An upload that has run out of time has kept nothing, so if all of them are too slow, nothing ever arrives,
//! however often they are tried. So an upload that was too slow halves their number, and once it is alone, doubles the time of the next
//! try: other processes share the line, too. What arrives raises the number again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// A try has at most two to the power of this number times the time that it has on a line that is fast enough.
const MOST_DOUBLED: u32 = 3;

/// What long bodies of this process are sent on.
#[derive(Debug)]
pub(crate) struct Lanes {
    free: Semaphore,
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many there are to be.
    width: usize,
    /// How many more there are still, because they are in use: each goes when it is free.
    surplus: usize,
    in_flight: usize,
    /// What has arrived since the last change.
    arrived: usize,
    doubled: u32,
    /// Tries that began before were too slow together: they are noted once.
    narrowed: Option<Instant>,
}

impl Lanes {
    pub(crate) fn new(most: usize) -> Self {
        let state = State { width: most, surplus: 0, in_flight: 0, arrived: 0, doubled: 0, narrowed: None };
        Self { free: Semaphore::new(most), most, state: Mutex::new(state) }
    }

    /// Waits until a body may be sent.
    pub(crate) async fn enter(&self) -> Lane<'_> {
        // The semaphore is never closed.
        Lane { lanes: self, permit: self.free.acquire().await.ok(), start: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them. The others may use it when this is dropped.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    permit: Option<SemaphorePermit<'a>>,
    start: Option<Instant>,
}

impl Lane<'_> {
    /// A try begins. Returns how many times as long it may take as on a line that is fast enough.
    pub(crate) fn begin(&mut self) -> u32 {
        let mut state = self.lanes.state();
        state.in_flight += usize::from(self.start.is_none());
        self.start = Some(Instant::now());
        1 << state.doubled
    }

    /// The body has arrived, within this part of its time.
    pub(crate) fn arrived(self, share: f64) {
        let mut state = self.lanes.state();
        let width = state.width as f64;
        // In half of the time, or beside another one, it would be in time, too.
        let has_room = if state.doubled > 0 { share < 0.25 } else { share * (width + 1.) / width < 0.75 };
        state.arrived = if has_room { state.arrived + 1 } else { 0 };
        if state.arrived < state.width || state.doubled == 0 && state.width == self.lanes.most {
            return;
        }
        state.arrived = 0;
        if state.doubled > 0 {
            state.doubled -= 1;
            return;
        }
        state.width += 1;
        if state.surplus > 0 {
            state.surplus -= 1;
        } else {
            self.lanes.free.add_permits(1);
        }
    }

    /// The store answers, but the body has not arrived in time. Returns whether another try may be faster, or has more time.
    pub(crate) fn was_slow(self) -> bool {
        let mut state = self.lanes.state();
        if self.start.zip(state.narrowed).is_some_and(|(start, narrowed)| start < narrowed) {
            return true;
        }
        (state.narrowed, state.arrived) = (Some(Instant::now()), 0);
        let width = (state.width.min(state.in_flight) / 2).max(1);
        if state.width.min(state.in_flight) == 1 {
            if state.doubled == MOST_DOUBLED {
                return false;
            }
            state.doubled += 1;
        }
        let fewer = state.width - width;
        state.surplus += fewer - self.lanes.free.forget_permits(fewer);
        state.width = width;
        true
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let mut state = self.lanes.state();
        state.in_flight -= usize::from(self.start.is_some());
        if state.surplus > 0
            && let Some(permit) = self.permit.take()
        {
            state.surplus -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(lanes: &Lanes) -> usize {
        lanes.state().width
    }

    fn doubled(lanes: &Lanes) -> u32 {
        lanes.state().doubled
    }

    async fn begun(lanes: &Lanes) -> (Lane<'_>, u32) {
        let mut lane = lanes.enter().await;
        let times = lane.begin();
        (lane, times)
    }

    #[tokio::test(start_paused = true)]
    async fn uploads_that_are_too_slow_together_halve_their_number_once() {
        let lanes = Lanes::new(16);
        let mut slow = Vec::new();
        for _ in 0..8 {
            slow.push(begun(&lanes).await.0);
        }
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(slow.into_iter().all(Lane::was_slow));
        assert_eq!((lanes.free.available_permits(), width(&lanes)), (4, 4));
        let state = lanes.state();
        assert_eq!((state.surplus, state.in_flight), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_alone_has_twice_the_time_until_that_is_enough() {
        let lanes = Lanes::new(4);
        let mut times = Vec::new();
        loop {
            let (slow, own) = begun(&lanes).await;
            times.push(own);
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
            if !slow.was_slow() {
                break;
            }
        }
        assert_eq!((times, width(&lanes)), (vec![1, 2, 4, 8], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_shortens_the_time_and_raises_the_number_again() {
        let lanes = Lanes::new(3);
        begun(&lanes).await.0.was_slow();
        assert_eq!((width(&lanes), doubled(&lanes)), (1, 1));
        begun(&lanes).await.0.arrived(0.9);
        assert_eq!(doubled(&lanes), 1, "it has needed the time");
        for _ in 0..2 {
            begun(&lanes).await.0.arrived(0.1);
        }
        assert_eq!((width(&lanes), doubled(&lanes)), (2, 0));
        begun(&lanes).await.0.arrived(0.1);
        begun(&lanes).await.0.arrived(0.6);
        assert_eq!(width(&lanes), 2, "with one more, they would be too slow");
        for _ in 0..10 {
            begun(&lanes).await.0.arrived(0.1);
        }
        assert_eq!((lanes.free.available_permits(), width(&lanes)), (3, 3));
    }
}
