//! Work for all cores.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How many threads there is room for. A container may be allowed fewer cores than libtorch counts.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The results of `work` on all items, in order, or the error of the first item that has one. Each thread works with a
/// tool of its own.
pub fn on_all_cores<I, W: Send, R: Send, E: Send>(
    items: I,
    tool: impl Fn() -> W,
    work: impl Fn(&W, I::Item) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E>
where
    I: ExactSizeIterator<Item: Send> + Send,
{
    let threads = cores().min(items.len());
    let items = Mutex::new(items.enumerate());
    let failed = AtomicBool::new(false);
    let next = || {
        // Items are begun in order, and what was begun is finished: so the first error is always found.
        let go_on = !failed.load(Ordering::Relaxed);
        go_on.then(|| items.lock().unwrap_or_else(PoisonError::into_inner).next()).flatten()
    };
    let work_off = |tool: W| {
        let mut done = Vec::new();
        while let Some((at, item)) = next() {
            let result = work(&tool, item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((at, result));
        }
        done
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let (tool, work_off) = (tool(), &work_off);
                scope.spawn(move || work_off(tool))
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn results_are_in_order_and_each_thread_has_a_tool() {
        let tools = AtomicUsize::new(0);
        let double = |_: &usize, item| Ok::<_, ()>(item * 2);
        let results = on_all_cores(0..100, || tools.fetch_add(1, Ordering::Relaxed), double).unwrap();
        assert_eq!(results, (0..100).map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(tools.into_inner(), cores().min(100));
        assert!(on_all_cores(0..0, || (), |(), _| Ok::<_, ()>(())).unwrap().is_empty());
    }

    #[test]
    fn the_first_error_ends_it() {
        let refuse = |(): &(), item| if item % 10 == 7 { Err(item) } else { Ok(()) };
        assert_eq!(on_all_cores(0..100, || (), refuse), Err(7));
    }
}
