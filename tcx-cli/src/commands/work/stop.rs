//! A request to stop: SIGTERM, as launchers send it, or Ctrl-C. A second signal ends the process at once.

use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

    /// Asks a command to stop, too.
    #[cfg(unix)]
    #[expect(clippy::unused_self, reason = "it is called if this was asked")]
    pub(super) fn pass_on(&self, command: &Child) {
        use rustix::process::{Pid, Signal, kill_process};

        // It has not been waited for, so the number is still its own.
        let process = i32::try_from(command.id()).ok().and_then(Pid::from_raw);
        if let Some(process) = process {
            let _ = kill_process(process, Signal::TERM);
        }
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "as with signals")]
    pub(super) fn pass_on(&self, _: &Child) {}
}
