//! Policies of eviction: which rows make room for new ones in a full folder.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::RefUnwindSafe;
use std::time::{SystemTime, UNIX_EPOCH};

/// Chooses the segments that make room for new rows, for [`WhenFull::EvictBy`](crate::WhenFull::EvictBy).
///
/// It is asked by a background thread, or by the one that opens the store, when the folder exceeds its limit, and only orders what may go. It cannot remove anything
/// else, nor keep the folder above the limit:
///
/// - The candidates are the segments that are served, without the newest: those that this process has sealed since the last
///   eviction, and an eighth of the limit. So no policy removes rows that were just acknowledged, and new rows have some time
///   to be used.
/// - Segments are removed in the order of the answer until the folder is within its limit. The rest of the answer stays.
/// - If the answer is not enough, the oldest of the other segments go, as with
///   [`WhenFull::EvictOldest`](crate::WhenFull::EvictOldest). If the policy panics, they go as well, and a warning is logged.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// use tcx_store::{Eviction, EvictionCandidate, EvictionPolicy, WhenFull};
///
/// /// The largest segments go first: few removals.
/// struct LargestFirst;
///
/// impl EvictionPolicy for LargestFirst {
///     fn name(&self) -> &str {
///         "largest first"
///     }
///
///     fn choose(&self, candidates: &[EvictionCandidate], _excess: u64) -> Vec<usize> {
///         let mut order: Vec<usize> = (0..candidates.len()).collect();
///         order.sort_by_key(|&number| std::cmp::Reverse(candidates[number].bytes));
///         order
///     }
/// }
///
/// let when_full = WhenFull::EvictBy(Eviction::new(&LargestFirst));
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let options = Options { max_bytes: Some(1 << 30), when_full, ..Default::default() };
/// let store = Store::open(dir.path(), spec, &options)?;
/// assert_eq!(format!("{when_full:?}"), "EvictBy(largest first)");
/// # let mut rows = store.lookup(Keys::ints([1], 0))?;
/// # store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
/// # store.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait EvictionPolicy: Send + Sync + RefUnwindSafe {
    /// The name of the policy in messages. Two policies of one name are the same setting, so that a folder can be opened again.
    fn name(&self) -> &str;

    /// The positions in `candidates` of the segments to remove, the first one first, so that `excess` bytes become free. The
    /// candidates come in the order of their age, the oldest first. Positions that do not exist or come again are ignored.
    fn choose(&self, candidates: &[EvictionCandidate], excess: u64) -> Vec<usize>;
}

/// A segment that may be evicted, for an [`EvictionPolicy`].
///
/// ```
/// let mut candidate = tcx_store::EvictionCandidate::default();
/// (candidate.rows, candidate.uses) = (1000, 30);
/// assert_eq!(candidate.last_used, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictionCandidate {
    /// The name of its file.
    pub name: String,
    /// Its rows, dead ones too.
    pub rows: u64,
    /// The size of its file.
    pub bytes: u64,
    /// When its oldest row was computed.
    pub born: SystemTime,
    /// About how many rows of it were served, by this process and by others that have recorded it. A use counts half after each
    /// day. It is an estimate from one row of each lookup. Others record their uses when they close the module, and once a minute
    /// before that; processes that open it to read only record none. A segment that was joined from others has their uses.
    pub uses: u64,
    /// About when a row of it was last served, within a minute or so; `None` if no process has recorded any use.
    pub last_used: Option<SystemTime>,
}

/// A candidate without rows, for tests of policies.
impl Default for EvictionCandidate {
    fn default() -> Self {
        Self { name: String::new(), rows: 0, bytes: 0, born: UNIX_EPOCH, uses: 0, last_used: None }
    }
}

/// An [`EvictionPolicy`] as a setting. Two are equal if the policies have the same name.
///
/// A policy lives as long as the program: make it a `static`, or pass `Box::leak(Box::new(policy))`.
///
/// ```
/// use tcx_store::{Eviction, EvictionCandidate, EvictionPolicy};
///
/// struct AsTheyCome;
///
/// impl EvictionPolicy for AsTheyCome {
///     fn name(&self) -> &str {
///         "as they come"
///     }
///
///     fn choose(&self, candidates: &[EvictionCandidate], _excess: u64) -> Vec<usize> {
///         (0..candidates.len()).collect()
///     }
/// }
///
/// static POLICY: AsTheyCome = AsTheyCome;
/// const EVICTION: Eviction = Eviction::new(&POLICY);
/// assert_eq!(EVICTION, Eviction::new(&POLICY));
/// ```
#[derive(Clone, Copy)]
pub struct Eviction(&'static dyn EvictionPolicy);

impl Eviction {
    /// The setting for this policy.
    pub const fn new(policy: &'static dyn EvictionPolicy) -> Self {
        Self(policy)
    }

    pub(crate) fn policy(self) -> &'static dyn EvictionPolicy {
        self.0
    }
}

impl PartialEq for Eviction {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for Eviction {}

impl Hash for Eviction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

/// Its name, as messages print it.
impl fmt::Debug for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}
