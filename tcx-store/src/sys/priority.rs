//! Priorities of background threads.

use crate::sys::runtime::is_simulated;

/// How much a background thread yields to the threads of the program while all processors are busy.
///
/// No thread can take its priority back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    /// It writes rows: a `flush`, or a caller for which the buffer is full, waits for it. It keeps a tenth of a processor.
    Writing,
    /// It joins and removes files. A caller waits for it at most for a moment, when both want the lock of the store.
    Upkeep,
    /// It runs where no other thread wants to: next to nothing is left for it while all processors are busy.
    Idle,
}

/// Lowers the priority of this thread. It is an optimisation: where it is refused, or is the same for all threads of a process, the
/// priority stays as it is.
pub(crate) fn lower(to: Background) {
    if is_simulated() {
        return;
    }
    // Only Linux has a priority for each thread.
    #[cfg(target_os = "linux")]
    match to {
        Background::Writing => lower_to(10),
        Background::Upkeep => lower_to(19),
        Background::Idle => run_idle(),
    }
    #[cfg(not(target_os = "linux"))]
    let _ = to;
}

#[cfg(target_os = "linux")]
fn lower_to(nice: i32) {
    use rustix::process::{getpriority_process, setpriority_process};
    if getpriority_process(None).is_ok_and(|own| own < nice) {
        let _ = setpriority_process(None, nice);
    }
}

#[cfg(target_os = "linux")]
fn run_idle() {
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and the call only reads `no_priority`, which lives until it returns.
    #[expect(unsafe_code, reason = "the C library has the only way to say it")]
    let changed = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const no_priority) };
    // A C library that leaves the call out (musl), or a container that forbids it.
    if changed != 0 {
        lower_to(19);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn a_lowered_priority_is_that_of_its_thread_and_is_never_raised() {
        let before = getpriority_process(None).unwrap();
        let lowered = std::thread::spawn(|| {
            lower(Background::Upkeep);
            let upkeep = getpriority_process(None).unwrap();
            lower(Background::Writing);
            (upkeep, getpriority_process(None).unwrap())
        });
        assert_eq!(lowered.join().unwrap(), (19, 19));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }

    #[test]
    fn an_idle_thread_says_so_to_the_scheduler() {
        let status = std::thread::spawn(|| {
            lower(Background::Idle);
            std::fs::read_to_string("/proc/thread-self/stat").unwrap()
        });
        let status = status.join().unwrap();
        // The name of the thread, which may contain spaces, is in parentheses; the policy is field 41.
        let fields: Vec<&str> = status.rsplit_once(") ").unwrap().1.split(' ').collect();
        let (nice, policy) = (fields[19 - 3], fields[41 - 3]);
        assert!(policy == libc::SCHED_IDLE.to_string() || nice == "19", "{status}");
    }
}
