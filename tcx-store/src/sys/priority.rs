//! Priorities of background threads.

use crate::sys::runtime::is_simulated;

/// How much a background thread yields to the threads of the program while all processors are busy.
///
/// No thread can take its priority back, so a thread that someone may wait for keeps a tenth of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    /// It writes rows: a `flush`, or a caller for which the buffer is full, waits for it.
    Writing = 10,
    /// It joins and removes files, for which no caller waits.
    Upkeep = 19,
}

/// Lowers the priority of this thread. It is an optimisation: where it is refused, or is the same for all threads of a process, the
/// priority stays as it is.
pub(crate) fn lower(to: Background) {
    if is_simulated() {
        return;
    }
    // Only Linux has a priority for each thread.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let nice = to as i32;
        if getpriority_process(None).is_ok_and(|own| own < nice) {
            let _ = setpriority_process(None, nice);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = to;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_priority_is_that_of_its_thread_and_is_never_raised() {
        use rustix::process::getpriority_process;
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
}
