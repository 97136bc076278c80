//! Settings of calls that share work.

use std::time::Duration;

use tcx_store::unstable::{most_ranges, usual_range_size};

use super::rank::Rank;
use crate::cached::warm::Warming;
use crate::module::extractor::CachedModule;
use crate::{Error, ErrorKind, Result};

/// The name of a job without one.
const JOB: &str = "warm";

/// A worker without a sign of life for this time is taken for gone.
const EXPIRY: Duration = Duration::from_mins(2);
/// Renewals and looks at other workers have to fit in.
const LEAST_EXPIRY: Duration = Duration::from_millis(100);

/// How work is shared.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    pub(crate) job: String,
    pub(crate) range_size: Option<u64>,
    pub(crate) expiry: Duration,
    pub(crate) rank: Option<Rank>,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { job: JOB.to_owned(), range_size: None, expiry: EXPIRY, rank: None }
    }
}

impl Sharing {
    /// The number of ids in a work range. It depends on what all workers know alike.
    ///
    /// # Errors
    ///
    /// Returns an error for a setting that makes no sense.
    pub(crate) fn range_size(&self, ids: Option<u64>) -> Result<u64> {
        let size = self.range_size.unwrap_or_else(|| usual_range_size(ids));
        if size == 0 {
            return Err(invalid("`range_size` is 0", "expected 1 or more"));
        }
        match ids {
            Some(ids) if ids.div_ceil(size) > most_ranges() => {
                let most = most_ranges();
                let what = format!(
                    "`range_size` is {size}, which makes {} work ranges of {ids} ids",
                    ids.div_ceil(size)
                );
                Err(invalid(
                    &what,
                    &format!("at most {most} are possible; set {} or more", ids.div_ceil(most)),
                ))
            }
            _ => Ok(size),
        }
    }

    pub(crate) fn expiry(&self) -> Result<Duration> {
        if self.expiry >= LEAST_EXPIRY {
            return Ok(self.expiry);
        }
        Err(invalid(
            &format!("`expiry` is {:?}", self.expiry),
            "expected 100 ms or more; minutes on a network file system",
        ))
    }
}

fn invalid(what: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidSettings, what).with_remedy(remedy)
}

/// Of [`run_shared`](Warming::run_shared) and [`run_sharded`](Warming::run_sharded).
impl<M: CachedModule> Warming<'_, M> {
    /// The name of the job (`warm`). Calls with the same name share their work, and must have the same ids in the same order. Give
    /// another name to work on other ids of the module at the same time.
    pub fn job(mut self, name: impl Into<String>) -> Self {
        self.sharing.job = name.into();
        self
    }

    /// How many ids a worker leases at a time. All workers must set the same. By default, it depends on the number of ids: there are
    /// about 4,096 work ranges, of 64 ids or more each. Ranges of an iterator have 4,096 ids.
    pub fn range_size(mut self, ids: u64) -> Self {
        self.sharing.range_size = Some(ids);
        self
    }

    /// After this time without a sign of life, a worker is taken for gone, and others take over its work ranges (two minutes). Each
    /// worker measures it with its own clock. If it is too short for the file system, samples are computed twice.
    pub fn expiry(mut self, time: Duration) -> Self {
        self.sharing.expiry = time;
        self
    }

    /// The rank of this process, if the environment does not say it ([`Rank::from_env`]).
    pub fn rank(mut self, rank: Rank) -> Self {
        self.sharing.rank = Some(rank);
        self
    }
}
