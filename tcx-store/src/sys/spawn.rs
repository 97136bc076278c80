//! Starting a thread that works for the engine.

use std::io;
use std::thread;

pub(crate) fn spawn(name: &str, task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A simulated process has a thread for this, which goes on when it is allowed to.
    #[cfg(test)]
    let Some(task) = crate::testing::simulation::spawn(task) else { return Ok(()) };
    thread::Builder::new().name(name.to_owned()).spawn(task).map(drop)
}
