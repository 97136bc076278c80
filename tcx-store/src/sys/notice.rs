//! What a person has to know is written to stderr if no subscriber of `tracing` shows it: the first of each kind. A program in another
//! language gets all of it instead, to report it in its own way.

use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::dispatcher::get_default;
use tracing::subscriber::NoSubscriber;

/// A kind of trouble, which is written to stderr once.
///
/// ```
/// // Nothing is written unless the program asks for it.
/// tcx_store::notices_on_stderr();
/// tcx_store::notice(tcx_store::Trouble::Lost, "rows are lost: the disk is full");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// A segment or a change is damaged.
    Damaged,
    /// A file was written by a version of tcx that this one does not know.
    Unknown,
    /// A file or a folder cannot be read or listed, or files cannot be joined or removed.
    Failing,
    /// Writing is off: rows are computed and not kept.
    WritingOff,
    /// The folder has reached its limit: rows are computed and not kept.
    Full,
    /// Rows that were computed or put are lost.
    Lost,
    /// An id is in a batch with different inputs.
    Repeated,
    /// There is no cache to read.
    Absent,
}

impl Trouble {
    const COUNT: usize = 8;
}

static LISTENER: OnceLock<fn(Trouble, &str)> = OnceLock::new();
static IS_WANTED: AtomicBool = AtomicBool::new(false);
static WRITTEN: [AtomicBool; Trouble::COUNT] = [const { AtomicBool::new(false) }; Trouble::COUNT];

const MORE: &str = "reported once, set up `tracing_subscriber` to see every report";

/// From now on, [`notice`] writes to stderr in this process.
pub fn notices_on_stderr() {
    IS_WANTED.store(true, Ordering::Relaxed);
}

/// From now on, [`notice`] passes every message to this function, and writes nothing to stderr: for a program in another language, which
/// has a logger of its own. The first call counts.
///
/// The function is called on any thread, also on those of tcx and while locks are held: it returns soon, and uses no table.
///
/// ```
/// tcx_store::notices_to(|trouble, message| println!("{trouble:?}: {message}"));
/// tcx_store::notice(tcx_store::Trouble::Lost, "rows are lost: the disk is full");
/// ```
pub fn notices_to(listener: fn(Trouble, &str)) {
    let _ = LISTENER.set(listener);
}

/// Writes a line to stderr, if [`notices_on_stderr`] was called, no subscriber of `tracing` gets the events of this thread, and
/// this is the first trouble of its kind in this process. Where [`notices_to`] was called, its function gets the message.
pub fn notice(trouble: Trouble, message: impl Display) {
    if let Some(listener) = LISTENER.get() {
        return listener(trouble, &message.to_string());
    }
    if let Some(line) = line(&WRITTEN[trouble as usize], message) {
        // Where stderr is closed, nothing can be said.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Whether a subscriber of `tracing` gets the events of this thread.
pub fn has_listener() -> bool {
    get_default(|listener| !listener.is::<NoSubscriber>())
}

fn line(written: &AtomicBool, message: impl Display) -> Option<String> {
    let is_due =
        IS_WANTED.load(Ordering::Relaxed) && !has_listener() && !written.swap(true, Ordering::Relaxed);
    is_due.then(|| format!("tcx: {message} ({MORE})\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_trouble_of_a_kind_is_written_without_a_subscriber() {
        let written = AtomicBool::new(false);
        assert_eq!(line(&written, "a"), None, "nothing is written unless it is asked for");
        notices_on_stderr();
        let listener = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        tracing::subscriber::with_default(listener, || assert_eq!(line(&written, "a"), None));
        assert_eq!(line(&written, "a, b"), Some(format!("tcx: a, b ({MORE})\n")));
        assert_eq!(line(&written, "c"), None);
    }
}
