//! Asking a long call to end early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a long call early, from another thread or a handler of signals: [`Warming`](crate::Warming) makes durable what it has
/// computed, and returns. Clones are the same request. Any `Arc<AtomicBool>` that is set to `true` then is one.
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "stopped_v1", key = i64)]
/// # struct Squares {}
/// # impl Extractor for Squares {
/// #     type Input = Vec<i64>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|x| x * x).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// use tcx::Stop;
///
/// let squares = tcx::Cache::open(dir.path())?.module(Squares {})?.batch_size(10);
/// let stop = Stop::new();
/// let report = squares.warming().stop(&stop).run(&Vec::from_iter(0..1_000), |missing| {
///     stop.stop(); // as a handler of signals does
///     Ok(missing.ids().copied().collect())
/// })?;
/// assert!(report.stopped && report.computed < 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A request that was not made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Asked for by the first Ctrl-C (on Unix SIGINT) from now on. A second one ends the process at once, with status 130. The
    /// process has one such handler: every call returns the same request. On Linux, a process that ignores SIGINT, as a shell's jobs
    /// in the background do, goes on ignoring it.
    ///
    /// ```no_run
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "interrupted_v1", key = i64)]
    /// # struct Squares {}
    /// # impl Extractor for Squares {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| x * x).collect())
    /// #     }
    /// # }
    /// # let squares = tcx::Cache::open("cache")?.module(Squares {})?;
    /// # let ids = [1, 2, 3];
    /// let stop = tcx::Stop::on_ctrl_c()?;
    /// let report = squares.warming().stop(&stop).run(&ids, |missing| Ok(missing.ids().copied().collect()))?;
    /// if report.stopped {
    ///     println!("interrupted after {} samples; run it again to go on", report.computed);
    /// }
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The process has a handler of its own: set an `AtomicBool` there.
    #[cfg(feature = "ctrlc")]
    pub fn on_ctrl_c() -> crate::Result<Self> {
        use std::sync::OnceLock;

        static PRESSED: OnceLock<Stop> = OnceLock::new();
        if let Some(pressed) = PRESSED.get() {
            return Ok(pressed.clone());
        }
        let pressed = Self::new();
        if is_ignored() {
            return Ok(pressed);
        }
        let handled = pressed.clone();
        let set = ctrlc::try_set_handler(move || {
            if handled.0.swap(true, Ordering::AcqRel) {
                std::process::exit(130);
            }
        });
        match set {
            Ok(()) => Ok(PRESSED.get_or_init(|| pressed).clone()),
            // Another thread may have been faster.
            Err(error) => PRESSED.get().cloned().ok_or_else(|| {
                crate::Error::new(crate::ErrorKind::InvalidSettings, "cannot watch for Ctrl-C")
                    .with_remedy(
                        "set an `AtomicBool` in the handler that the process has, and pass it as a `Stop`",
                    )
                    .with_source(error)
            }),
        }
    }
}

/// Whether the process was started with SIGINT ignored.
#[cfg(feature = "ctrlc")]
fn is_ignored() -> bool {
    const SIGINT: u32 = 2;
    let ignored = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    cfg!(target_os = "linux") && ignored(&status).is_some_and(|mask| mask >> (SIGINT - 1) & 1 == 1)
}

impl From<Arc<AtomicBool>> for Stop {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

impl From<&Self> for Stop {
    fn from(stop: &Self) -> Self {
        stop.clone()
    }
}
