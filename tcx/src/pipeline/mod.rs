//! Work that threads do ahead of the one that uses its results, which come in the order of the jobs.
//!
//! The queue is bounded in jobs and in rows, counting everything from a job that is pushed to a result that is popped. So what
//! is loaded and not used yet takes no more memory than this.

mod queue;

use std::thread;

pub(crate) use self::queue::Queue;
use crate::{Error, ErrorKind};

/// The most threads that work ahead. More of them exhaust the machine, which ends the process.
const MOST_THREADS: usize = 1024;

/// Refuses a number of threads, the value of this setting, that no machine has use for.
pub(crate) fn check_threads(setting: &str, threads: usize) -> crate::Result<()> {
    if threads <= MOST_THREADS {
        return Ok(());
    }
    let error = Error::new(ErrorKind::InvalidSettings, format!("`{setting}` is {threads}"));
    Err(error.with_remedy(format!("expected at most {MOST_THREADS} threads")))
}

/// Pushes the jobs of `next` and pops their results, with `workers` threads that do the work in between. `next` gets whether
/// nothing is under way, and returns a job and its number of rows; `None` while nothing is under way is the end.
///
/// # Errors
///
/// The first of `next` or of `take`. Work that has begun goes on to its end.
///
/// # Panics
///
/// As `work`, where the result would be taken.
pub(crate) fn ahead<J: Send, T: Send, E>(
    workers: usize,
    most_rows: usize,
    mut next: impl FnMut(bool) -> Result<Option<(J, usize)>, E>,
    work: impl Fn(J) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let queue = Queue::new(workers + 1, most_rows);
    let (queue, work) = (&queue, &work);
    thread::scope(|scope| {
        // However it ends, the threads are not left to wait for jobs.
        let _closing = queue.close_on_drop();
        for _ in 0..workers {
            scope.spawn(|| queue.work(work));
        }
        loop {
            while queue.has_room() {
                let Some((job, rows)) = next(queue.is_empty())? else { break };
                queue.push(job, rows);
            }
            match queue.pop() {
                Some(result) => take(result)?,
                None => return Ok(()),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// Jobs of one row from `jobs`.
    fn each<J>(jobs: impl IntoIterator<Item = J>) -> impl FnMut(bool) -> Result<Option<(J, usize)>, String> {
        let mut jobs = jobs.into_iter();
        move |_| Ok(jobs.next().map(|job| (job, 1)))
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs_whichever_is_ready_first() {
        let (second_done, first_goes) = mpsc::channel();
        let first_goes = Mutex::new(first_goes);
        let mut taken = Vec::new();
        let work = |job: usize| {
            match job {
                0 => first_goes.lock().unwrap().recv().unwrap(),
                1 => second_done.send(()).unwrap(),
                _ => {}
            }
            job
        };
        let take = |job| {
            taken.push(job);
            Ok(())
        };
        ahead(2, 100, each(0..50), work, take).unwrap();
        assert_eq!(taken, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn the_next_job_begins_before_a_result_was_used() {
        let (sender, order) = mpsc::channel();
        let work = |job: usize| {
            sender.send(job).unwrap();
            job
        };
        let take = |job| {
            if job == 0 {
                assert_eq!((order.recv(), order.recv()), (Ok(0), Ok(1)));
            }
            Ok(())
        };
        ahead(1, 100, each(0..3), work, take).unwrap();
    }

    #[test]
    fn no_more_jobs_and_rows_are_under_way_than_there_is_room_for() {
        let jobs = [3, 3, 1, 1, 1, 1, 50, 2];
        let pushed = Mutex::new(Vec::<usize>::new());
        let mut rows = jobs.into_iter();
        let next = |is_idle| {
            assert_eq!(is_idle, pushed.lock().unwrap().is_empty());
            Ok::<_, String>(rows.next().map(|rows| {
                pushed.lock().unwrap().push(rows);
                (rows, rows)
            }))
        };
        let mut most = Vec::new();
        let take = |rows| {
            let mut pushed = pushed.lock().unwrap();
            most.push((pushed.len(), pushed.iter().sum::<usize>()));
            assert_eq!(pushed.remove(0), rows);
            Ok(())
        };
        ahead(2, 5, next, |rows| rows, take).unwrap();
        // A job that is larger than the room there is comes alone or last.
        let within = |&(jobs, rows): &(usize, usize)| jobs <= 3 && (rows <= 7 || rows >= 50);
        assert!(most.iter().all(within), "{most:?}");
        assert_eq!(most.iter().map(|(jobs, _)| *jobs).max(), Some(3), "{most:?}");
    }

    #[test]
    fn an_error_and_a_panic_come_in_order_and_end_it() {
        let taken = Mutex::new(Vec::new());
        let take = |job: Result<usize, String>| job.map(|job| taken.lock().unwrap().push(job));
        let work = |job| if job == 3 { Err("the third".to_owned()) } else { Ok(job) };
        assert_eq!(ahead(2, 100, each(0..50), work, take), Err("the third".to_owned()));
        assert_eq!(*taken.lock().unwrap(), [0, 1, 2]);

        let work = |job| if job == 1 { panic!("as asked") } else { Ok(job) };
        taken.lock().unwrap().clear();
        let panicked = catch_unwind(AssertUnwindSafe(|| ahead(2, 100, each(0..50), work, take)));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"as asked"));
        assert_eq!(*taken.lock().unwrap(), [0]);
    }

    #[test]
    fn several_workers_work_at_the_same_time() {
        let together = Barrier::new(3);
        let work = |_| together.wait();
        ahead(3, 100, each(0..3), work, |_| Ok(())).unwrap();
    }
}
