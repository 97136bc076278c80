//! Processes that take turns: the test decides who does what between whose steps.

use std::sync::{Arc, Condvar, Mutex};

/// Of several processes one goes on at a time, once they have begun; before each of its steps a rule says who goes on from
/// there.
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// `None` before they begin: everybody may go on.
    whose: Option<usize>,
    running: Vec<bool>,
    next: Box<dyn FnMut(usize) -> usize + Send>,
}

impl Turns {
    /// `next` is told whose turn it is; a process that has ended gets none.
    pub(super) fn new(processes: usize, next: impl FnMut(usize) -> usize + Send + 'static) -> Arc<Self> {
        let state = State { whose: None, running: vec![true; processes], next: Box::new(next) };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// The first begins.
    pub(super) fn begin(&self) {
        self.state.lock().unwrap().whose = Some(0);
    }

    /// Before a step of process `own`.
    pub(super) fn wait(&self, own: usize) {
        let mut state = self.state.lock().unwrap();
        if state.whose == Some(own) {
            let next = (state.next)(own);
            if state.running[next] {
                state.whose = Some(next);
                self.changed.notify_all();
            }
        }
        drop(self.changed.wait_while(state, |state| state.whose.is_some_and(|whose| whose != own)).unwrap());
    }

    /// Process `own` takes no more steps once this is dropped, even by a panic.
    pub(super) fn end_of(self: Arc<Self>, own: usize) -> End {
        End { turns: self, own }
    }
}

pub(super) struct End {
    turns: Arc<Turns>,
    own: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap();
        state.running[self.own] = false;
        state.whose = state.running.iter().position(|running| *running);
        self.turns.changed.notify_all();
    }
}
