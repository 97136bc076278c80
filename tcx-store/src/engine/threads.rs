//! Which threads work for an engine: one that waits for them must not be one of them.

use std::cell::Cell;
use std::sync::Arc;

use crate::engine::Core;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It writes rows.
    Writes,
    /// It joins and removes files.
    KeepsUp,
}

thread_local! {
    /// The address of the engine that this thread works for.
    static WORKS_FOR: Cell<Option<(usize, Role)>> = const { Cell::new(None) };
}

/// From now on the calling thread works for this engine.
pub(crate) fn works_for(core: &Arc<Core>, role: Role) {
    WORKS_FOR.set(Some((Arc::as_ptr(core).addr(), role)));
}

/// What the calling thread does for the engine at this address, if it works for that one.
pub(crate) fn role_for(core: usize) -> Option<Role> {
    WORKS_FOR.get().filter(|(own, _)| *own == core).map(|(_, role)| role)
}

/// Whether the calling thread works for any engine.
pub(crate) fn is_worker() -> bool {
    WORKS_FOR.get().is_some()
}

/// Whether the calling thread writes the rows of any engine.
#[cfg(unix)]
pub(crate) fn is_writer_thread() -> bool {
    WORKS_FOR.get().is_some_and(|(_, role)| role == Role::Writes)
}
