//! How a store is reached.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A longer time is as good as this one.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// More requests are not in flight together.
const MOST_PARALLEL: usize = 1 << 16;

/// How much time bytes have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The slowest transfer that is waited for: bytes in a second.
    pub(crate) slowest: u64,
    /// No request transfers more bytes, but for objects that only one request can write.
    pub(crate) largest: u64,
}

impl Pace {
    pub(crate) const USUAL: Self = Self { slowest: 1 << 20, largest: 32 << 20 };

    pub(crate) fn time(self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.slowest as f64)
    }
}

/// How a store is reached. Everything that is not set here, credentials first, comes from the environment, under the names of each
/// provider (`AWS_*`, `GOOGLE_*`, `AZURE_*`).
///
/// ```
/// use std::time::Duration;
/// use tcx_remote::ClientOptions;
///
/// let options = ClientOptions::default()
///     .deadline(Duration::from_secs(20))
///     .set("aws_region", "eu-central-1")
///     .set("aws_secret_access_key", "hunter2");
/// assert!(!format!("{options:?}").contains("hunter2"));
/// ```
#[derive(Clone)]
pub struct ClientOptions {
    pub(crate) deadline: Duration,
    pub(crate) parallel: usize,
    pub(crate) pace: Pace,
    pub(crate) settings: BTreeMap<String, String>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let (deadline, pace) = (Duration::from_mins(1), Pace::USUAL);
        Self { deadline, parallel: 16, pace, settings: BTreeMap::new() }
    }
}

impl ClientOptions {
    /// The longest time that one call may take with all its retries, a minute if nothing else is set. A transfer has a second more for
    /// each MiB, and each part of a long upload has the time of a call. As long as the store answers, an upload that is too slow is tried
    /// again beyond that.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(LONGEST);
        self
    }

    /// The largest number of requests in flight together, 16 if nothing else is set.
    #[must_use]
    pub fn parallel(mut self, requests: usize) -> Self {
        self.parallel = requests.clamp(1, MOST_PARALLEL);
        self
    }

    /// A setting of the crate `object_store` by its name, such as `aws_region`, `aws_endpoint` or `azure_storage_account_name`. It has
    /// priority over the environment.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }
}

/// Without the values of settings, which may be credentials.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deadline, parallel, pace: _, settings } = self;
        let mut shown = f.debug_struct("ClientOptions");
        shown.field("deadline", deadline).field("parallel", parallel);
        shown.field("settings", &settings.keys().collect::<Vec<_>>()).finish()
    }
}
