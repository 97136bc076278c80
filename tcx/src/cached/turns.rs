//! Whose turn it is to compute: how many threads use a module at once, and which samples each of them has.
//!
//! Of the samples that a thread asks for, its turn has those that no other turn has. It waits for the others without a turn. So no
//! two threads compute one sample, and none that others wait for waits itself. A turn ends with an error or a panic, too: then one
//! of those that waited for its samples has them next.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Condvar;

use crate::cache::alone::{Alone, Refused, this_thread};

/// The turns of one module.
#[derive(Debug)]
pub(crate) struct Turns {
    /// How many threads may compute at once.
    limit: usize,
    state: Alone<State>,
    /// A turn has ended.
    ended: Condvar,
    /// No thread has a turn.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The marks of the threads that have a turn.
    threads: Vec<usize>,
    /// The samples that they compute, by their [digest](tcx_store::Keys::digest). Of two samples of one digest, one is computed after
    /// the other.
    samples: HashSet<u64>,
    /// How many threads wait until no thread has a turn: no other gets one before.
    pausing: usize,
}

/// A thread may compute, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    own: Vec<u64>,
    /// Those that were asked for and that other turns had.
    others: HashSet<u64>,
    /// A turn does not leave its thread.
    _thread: PhantomData<*const ()>,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Turns {
    /// For at most `limit` threads at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Alone::default(), ended: Condvar::new(), idle: Condvar::new() }
    }

    /// How many threads may compute at once.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Waits for a turn with those of `samples` that no other thread computes. If others compute all of them, waits until one is
    /// computed, and returns `None`: look again which are missing. Without samples, waits for a turn only.
    ///
    /// # Errors
    ///
    /// Returns an error if this thread has a turn, or in a forked process.
    pub(crate) fn take(&self, samples: &[u64]) -> Result<Option<Turn<'_>>, Refused> {
        let mut state = self.state.lock()?;
        if state.threads.contains(&this_thread()) {
            return Err(Refused::Held);
        }
        let mut has_waited = false;
        loop {
            let is_taken = |sample: &&u64| state.samples.contains(*sample);
            let (others, own): (Vec<u64>, Vec<u64>) = samples.iter().partition(is_taken);
            if own.is_empty() && !others.is_empty() {
                has_waited = true;
            } else if has_waited {
                return Ok(None);
            } else if state.pausing == 0 && state.threads.len() < self.limit {
                state.threads.push(this_thread());
                state.samples.extend(&own);
                let others = others.into_iter().collect();
                return Ok(Some(Turn { turns: self, own, others, _thread: PhantomData }));
            }
            state = state.wait(&self.ended);
        }
    }

    /// Waits until no thread has a turn, and does `work` before another one gets one.
    ///
    /// # Errors
    ///
    /// Returns an error if this thread has a turn, or in a forked process.
    pub(crate) fn without<R>(&self, work: impl FnOnce() -> R) -> Result<R, Refused> {
        let mut state = self.state.lock()?;
        if state.threads.contains(&this_thread()) {
            return Err(Refused::Held);
        }
        state.pausing += 1;
        while !state.threads.is_empty() {
            state = state.wait(&self.idle);
        }
        state.pausing -= 1;
        // They get the lock after `work`, also if that panics.
        self.ended.notify_all();
        Ok(work())
    }
}

impl Turn<'_> {
    /// Whether another turn had some of the samples.
    pub(crate) fn is_partial(&self) -> bool {
        !self.others.is_empty()
    }

    /// Whether it has this sample, which was asked for.
    pub(crate) fn has(&self, sample: u64) -> bool {
        !self.others.contains(&sample)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // In a process forked from its own, no thread waits.
        let Ok(mut state) = self.turns.state.lock() else { return };
        state.threads.retain(|&thread| thread != this_thread());
        for sample in &self.own {
            state.samples.remove(sample);
        }
        let is_idle = state.threads.is_empty();
        drop(state);
        if self.turns.limit == 1 && self.own.is_empty() {
            // No thread waits for samples of this turn: each that waits can have the next one.
            self.turns.ended.notify_one();
        } else {
            self.turns.ended.notify_all();
        }
        if is_idle {
            self.turns.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    use super::*;

    #[test]
    fn as_many_threads_have_a_turn_at_once_as_the_limit_says() {
        let (turns, all) = (Turns::new(3), Barrier::new(3));
        thread::scope(|scope| {
            for thread in 0..3 {
                let (turns, all) = (&turns, &all);
                scope.spawn(move || {
                    let _turn = turns.take(&[thread]).unwrap().unwrap();
                    all.wait();
                });
            }
        });
        let turns = Turns::new(1);
        let turn = turns.take(&[1]).unwrap();
        let (asks, asked) = channel();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                asks.send(()).unwrap();
                turns.take(&[2]).unwrap().is_some()
            });
            asked.recv().unwrap();
            assert!(!other.is_finished(), "the limit is one");
            drop(turn);
            assert!(other.join().unwrap());
        });
    }

    #[test]
    fn a_turn_has_the_samples_that_no_other_one_has() {
        let turns = Turns::new(2);
        let first = turns.take(&[1, 2]).unwrap().unwrap();
        assert!(!first.is_partial() && first.has(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                let second = turns.take(&[2, 3, 3]).unwrap().unwrap();
                assert!(second.is_partial() && second.has(3) && !second.has(2));
            });
        });
        let (asks, asked) = channel();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                asks.send(()).unwrap();
                loop {
                    if let Some(turn) = turns.take(&[2, 1]).unwrap() {
                        return !turn.is_partial() && turn.has(1);
                    }
                }
            });
            asked.recv().unwrap();
            drop(first);
            assert!(other.join().unwrap(), "it takes over");
        });
        assert!(turns.state.lock().unwrap().samples.is_empty());
    }

    #[test]
    fn a_thread_that_waits_for_all_turns_to_end_comes_before_new_ones() {
        let turns = Turns::new(2);
        let (asks, asked) = channel();
        let (first, second) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let turn = turns.take(&[1]).unwrap();
            scope.spawn(|| {
                turns.without(|| asks.send("without").unwrap()).unwrap();
            });
            while turns.state.lock().unwrap().pausing == 0 {
                thread::yield_now();
            }
            scope.spawn(|| {
                first.wait();
                // There is room for it, and it waits.
                let _turn = turns.take(&[2]).unwrap();
                asks.send("turn").unwrap();
                second.wait();
            });
            first.wait();
            drop(turn);
            second.wait();
        });
        assert_eq!([asked.recv(), asked.recv()], [Ok("without"), Ok("turn")]);
    }

    #[test]
    fn each_of_many_threads_gets_its_turn() {
        for limit in [1, 2] {
            let (turns, done) = (Turns::new(limit), Mutex::new(0));
            thread::scope(|scope| {
                for thread in 0..8 {
                    let (turns, done) = (&turns, &done);
                    scope.spawn(move || {
                        for sample in 0..200 {
                            let samples = if limit == 1 { vec![] } else { vec![(thread + sample) % 5] };
                            while turns.take(&samples).unwrap().is_none() {}
                            if sample % 50 == 0 {
                                turns.without(|| ()).unwrap();
                            }
                            *done.lock().unwrap() += 1;
                        }
                    });
                }
            });
            assert_eq!(done.into_inner().unwrap(), 8 * 200);
        }
    }

    #[test]
    fn a_panic_ends_a_turn() {
        let turns = Turns::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _turn = turns.take(&[1]).unwrap();
            panic!("as asked");
        }));
        assert!(panicked.is_err());
        assert!(turns.take(&[1]).unwrap().is_some_and(|turn| !turn.is_partial()));
    }

    #[test]
    fn a_thread_that_has_a_turn_is_refused_another_one() {
        let turns = Turns::new(2);
        let turn = turns.take(&[1]).unwrap();
        assert_eq!(turns.take(&[2]).err(), Some(Refused::Held));
        assert_eq!(turns.without(|| ()).err(), Some(Refused::Held));
        drop(turn);
        assert_eq!(turns.without(|| 7).ok(), Some(7));
    }
}
