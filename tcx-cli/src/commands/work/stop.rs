//! A request to stop: SIGTERM, as launchers send it, or Ctrl-C. A second signal ends the process at once.

use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::{
    thread,
    time::{Duration, Instant},
};

/// So long a worker that is asked to stop waits for what its command has started, after the command itself has ended.
#[cfg(unix)]
const REST_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked whether they have ended.
#[cfg(unix)]
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Whether the process was asked to stop.
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    #[cfg(unix)]
    pub(super) fn on_signals() -> io::Result<Self> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        use signal_hook::flag;

        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Registered first: it looks at the flag before the same signal sets it.
            flag::register_conditional_default(signal, stopped.clone())?;
            flag::register(signal, stopped.clone())?;
        }
        Ok(Self(stopped))
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "as with signals")]
    pub(super) fn on_signals() -> io::Result<Self> {
        Ok(Self(Arc::default()))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Asks a command to stop, and all processes that it has started: a shell does not pass on a signal to what it runs.
    #[cfg(unix)]
    #[expect(clippy::unused_self, reason = "it is called if this was asked")]
    pub(super) fn pass_on(&self, command: &Child) {
        use rustix::process::{Signal, kill_process_group};

        // It has not been waited for, so the number is still its own.
        if let Some(group) = group(command) {
            let _ = kill_process_group(group, Signal::TERM);
            // One that has asked the terminal for something, which it has not, was stopped by the system.
            let _ = kill_process_group(group, Signal::CONT);
        }
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "as with signals")]
    pub(super) fn pass_on(&self, _: &Child) {}

    /// Waits until the processes that a command has started have ended as well, but not for those that do not end.
    #[cfg(unix)]
    #[expect(clippy::unused_self, reason = "as above")]
    pub(super) fn wait_for_rest(&self, command: &Child) {
        use rustix::process::test_kill_process_group;

        let end = Instant::now() + REST_ENDS_WITHIN;
        while group(command).is_some_and(|group| test_kill_process_group(group).is_ok())
            && Instant::now() < end
        {
            thread::sleep(LOOKS_EVERY);
        }
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "as with signals")]
    pub(super) fn wait_for_rest(&self, _: &Child) {}
}

/// The process group of a command, which has its number.
#[cfg(unix)]
fn group(command: &Child) -> Option<rustix::process::Pid> {
    i32::try_from(command.id()).ok().and_then(rustix::process::Pid::from_raw)
}
