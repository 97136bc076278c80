//! Work for all cores.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tcx_examples::cores;

/// The results of `work` on all items, in order, or the error of the first item that has one.
pub(crate) fn on_all_cores<I, R>(
    items: I,
    work: impl Fn(I::Item) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>>
where
    I: ExactSizeIterator<Item: Send> + Send,
    R: Send,
{
    let threads = cores().min(items.len());
    let items = Mutex::new(items.enumerate());
    let failed = AtomicBool::new(false);
    let next = || {
        // What was begun is finished, and items are begun in order: so the first error is always found.
        let go_on = !failed.load(Ordering::Relaxed);
        go_on.then(|| items.lock().unwrap_or_else(PoisonError::into_inner).next()).flatten()
    };
    let work_off = || {
        let mut done = Vec::new();
        while let Some((at, item)) = next() {
            let result = work(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((at, result));
        }
        done
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work_off)).collect();
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
    use anyhow::ensure;

    use super::*;

    #[test]
    fn results_are_in_order() {
        let results = on_all_cores(0..100, |item| Ok(item * 2)).unwrap();
        assert_eq!(results, (0..100).map(|item| item * 2).collect::<Vec<_>>());
        assert!(on_all_cores(0..0, |_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn the_first_error_ends_it() {
        let refuse = |item| {
            ensure!(item % 10 != 7, "item {item}");
            Ok(())
        };
        assert_eq!(on_all_cores(0..100, refuse).unwrap_err().to_string(), "item 7");
    }
}
