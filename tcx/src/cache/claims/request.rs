//! Which request this thread works for, and which requests each one waits for: no two wait for each other.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
}

/// A call of the program that loads or computes samples, and the calls that its loader makes.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// The requests that it waits for at this moment: several, if its loader joins futures.
    waits_for: Mutex<Vec<Arc<Request>>>,
}

/// What this thread does for a request.
#[derive(Clone, Debug)]
struct Work {
    request: Arc<Request>,
    /// It runs a module, and holds its lock.
    computes: bool,
}

impl Request {
    /// The one that this thread works for; otherwise a new one.
    pub(crate) fn current() -> Arc<Self> {
        WORK.with_borrow(|work| work.as_ref().map(|work| work.request.clone())).unwrap_or_default()
    }

    /// This thread works for the request, as long as this is kept.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        Entered::new(Work { request: self.clone(), computes: false })
    }

    /// Begins to wait for `other`, unless it waits for this one already, perhaps by way of others. Requests that begin at the
    /// same time say what they wait for before they look: the last one of a circle sees it.
    pub(crate) fn wait_for(self: &Arc<Self>, other: &Arc<Self>) -> Option<Waiting> {
        self.waits_for.lock().unwrap_or_else(PoisonError::into_inner).push(other.clone());
        let waiting = Waiting { by: self.clone(), of: other.clone() };
        (!other.reaches(self)).then_some(waiting)
    }

    /// Whether it waits for `target`, or is that one.
    fn reaches(self: &Arc<Self>, target: &Arc<Self>) -> bool {
        let (mut seen, mut next) = (Vec::<Arc<Self>>::new(), vec![self.clone()]);
        while let Some(request) = next.pop() {
            if Arc::ptr_eq(&request, target) {
                return true;
            }
            if !seen.iter().any(|own| Arc::ptr_eq(own, &request)) {
                next.extend(request.waits_for.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
                seen.push(request);
            }
        }
        false
    }
}

/// One request waits for another.
#[derive(Debug)]
pub(crate) struct Waiting {
    by: Arc<Request>,
    of: Arc<Request>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waits_for = self.by.waits_for.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = waits_for.iter().position(|own| Arc::ptr_eq(own, &self.of)) {
            waits_for.swap_remove(at);
        }
    }
}

/// What the thread did before is restored when this is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    before: Option<Work>,
    /// It stays in its thread.
    _thread: PhantomData<*const ()>,
}

impl Entered {
    fn new(work: Work) -> Self {
        Self { before: WORK.replace(Some(work)), _thread: PhantomData }
    }

    /// This thread runs a module or the closure of a table, with its lock held: requests that it makes must wait for no other
    /// one, which may wait for that lock.
    pub(crate) fn computing() -> Self {
        Self::new(Work { request: Request::current(), computes: true })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        WORK.set(self.before.take());
    }
}

/// Whether this thread runs a module or the closure of a table.
pub(crate) fn computes() -> bool {
    WORK.with_borrow(|work| work.as_ref().is_some_and(|work| work.computes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_requests_is_refused_at_its_last_one() {
        let [a, b, c] = [(); 3].map(|()| Arc::new(Request::default()));
        let first = a.wait_for(&b);
        let second = b.wait_for(&c);
        assert!(first.is_some() && second.is_some());
        assert!(c.wait_for(&a).is_none() && c.wait_for(&b).is_none() && c.wait_for(&c).is_none());
        drop(second);
        assert!(c.wait_for(&a).is_some(), "b waits no more");
        assert!(c.waits_for.lock().unwrap().is_empty(), "what was refused is forgotten");
    }

    #[test]
    fn what_a_thread_works_for_is_restored() {
        let request = Arc::new(Request::default());
        let entered = request.enter();
        assert!(Arc::ptr_eq(&Request::current(), &request) && !computes());
        let computing = Entered::computing();
        assert!(Arc::ptr_eq(&Request::current(), &request) && computes());
        drop(computing);
        assert!(!computes());
        drop(entered);
        assert!(!Arc::ptr_eq(&Request::current(), &request));
    }
}
