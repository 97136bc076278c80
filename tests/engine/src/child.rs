//! Children of a test: what runs in a forked process, and a watchdog that ends one that hangs.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// A child that runs for longer waits for something that never comes.
const HANGS_AFTER: Duration = Duration::from_mins(1);

/// Runs `task` in a fork of this process, which ends with it.
///
/// # Panics
///
/// If the child panics, is killed, or hangs; `dir` is where it leaves its message.
pub fn in_child(dir: &Path, task: impl FnOnce()) {
    let message = dir.join(format!("child-{}", std::process::id()));
    #[expect(unsafe_code, reason = "the test is about forks")]
    // SAFETY: the store must survive this: the child uses the memory of a process with several threads. It never returns from
    // this function.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork");
    if child == 0 {
        let ended = catch_unwind(AssertUnwindSafe(task));
        if let Err(panic) = &ended {
            let _ = std::fs::write(&message, said(&**panic));
        }
        #[expect(unsafe_code, reason = "nothing of the test runs in the child")]
        // SAFETY: the function ends the process, without destructors and exit handlers.
        unsafe {
            libc::_exit(i32::from(ended.is_err()))
        }
    }
    let status = wait(child);
    let message = std::fs::read_to_string(message).unwrap_or_default();
    assert!(status == Some(0), "the child {}: {message}", ended(status));
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

fn ended(status: Option<i32>) -> String {
    status.map_or_else(|| "hangs".to_owned(), |status| format!("ended with status {status:#x}"))
}

/// The status of a child; without one, it was killed because it hung.
fn wait(child: libc::pid_t) -> Option<i32> {
    let (start, mut status) = (Instant::now(), 0);
    loop {
        #[expect(unsafe_code, reason = "no other function waits for a child that was forked by hand")]
        // SAFETY: the number is that of a child that was not waited for yet, and the status is written to memory of this function.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            return Some(status);
        }
        if start.elapsed() > HANGS_AFTER {
            #[expect(unsafe_code, reason = "as above")]
            // SAFETY: as above: the number cannot be that of another process before the child was waited for.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
