//! Blocking work of asynchronous methods, on the threads of tokio for such work.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::cache::claims::Request;
use crate::{Error, ErrorKind, Result};

/// Runs `work` for a request on a thread for blocking work of the runtime that polls this.
pub(crate) async fn blocking<T: Send + 'static>(
    request: &Arc<Request>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(Error::new(ErrorKind::NoRuntime, "there is no tokio runtime here")
            .with_remedy("await it in a tokio runtime, or use the blocking form"));
    };
    let request = request.clone();
    let task = runtime.spawn_blocking(move || {
        let _entered = request.enter();
        work()
    });
    let _unless_begun = CancelOnDrop(task.abort_handle());
    match task.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::new(ErrorKind::NoRuntime, "the tokio runtime is shutting down")
            .with_remedy("start another one")),
    }
}

/// Dropping it cancels work that has not started; work that has started continues.
struct CancelOnDrop(AbortHandle);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
