//! Work for all cores.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tcx_examples::cores;

/// The results of `work` on all items, in order; each thread works with a tool of its own.
///
/// libtorch itself can split every operation among threads. In a network as small as this one they mostly wait
/// for each other, and on a busy machine for long: on two cores, beside two busy loops, threads that split every
/// operation embedded 8 to 22 texts a second, and threads with texts of their own 34 to 71.
pub(crate) fn on_all_cores<T: Sync, W: Send, R: Send>(
    items: &[T],
    tool: impl Fn() -> W,
    work: impl Fn(&W, &T) -> R + Sync,
) -> Vec<R> {
    let left = AtomicUsize::new(items.len());
    let work_off = |tool: W| {
        tch::set_num_threads(1);
        // From the end, where the long ones are: a short one is a better last.
        let next =
            || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok();
        let mut done = Vec::new();
        while let Some(left) = next() {
            let at = left - 1;
            done.push((at, work(&tool, &items[at])));
        }
        done
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores().min(items.len()))
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
    use super::*;

    #[test]
    fn results_are_in_order_and_each_item_is_done_once() {
        let items: Vec<usize> = (0..100).collect();
        let tools = AtomicUsize::new(0);
        let results = on_all_cores(&items, || tools.fetch_add(1, Ordering::Relaxed), |_, item| item * 2);
        assert_eq!(results, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(tools.into_inner(), cores().min(100));
        assert!(on_all_cores(&[(); 0], || (), |(), ()| ()).is_empty());
    }
}
