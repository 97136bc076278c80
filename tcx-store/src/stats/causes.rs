//! Misses by their cause.

use std::fmt;

use crate::stats::display::Grouped;

/// Misses by their cause, as far as the index knows it.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.flush()?;
/// store.invalidate(&Keys::ints([2], 0))?;
/// let before = store.stats().miss_causes;
/// store.lookup(Keys::ints([1, 2, 3], 0))?;
/// let causes = store.stats().miss_causes;
/// assert_eq!(causes.invalidated - before.invalidated, 1);
/// assert_eq!(causes.absent - before.absent, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissCauses {
    /// No row was stored, the row was removed later, or it was never written.
    pub absent: u64,
    /// The row was invalidated.
    pub invalidated: u64,
    /// The row was older than the time to live.
    pub expired: u64,
    /// The row's bytes do not verify.
    pub damaged: u64,
    /// The row's segment is gone, cannot be opened or read, has an unknown codec, or depends on a missing change; or a change that may have
    /// invalidated it cannot be read.
    pub unreadable: u64,
    /// The row was stored, but a [`RecomputeSession`](crate::RecomputeSession) computes it again.
    pub recomputed: u64,
    /// The row was found, and the caller [rejected](crate::Store::reject) it.
    pub rejected: u64,
    /// The row was stored with another [stamp](crate::StampType): its source has changed.
    pub outdated: u64,
}

impl MissCauses {
    pub(crate) const COUNT: usize = 8;

    pub(crate) fn of(counts: [u64; Self::COUNT]) -> Self {
        let [absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated] = counts;
        Self { absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated }
    }

    /// Each with its name.
    pub(crate) fn named(&self) -> [(&'static str, u64); Self::COUNT] {
        [
            ("absent", self.absent),
            ("invalidated", self.invalidated),
            ("expired", self.expired),
            ("damaged", self.damaged),
            ("unreadable", self.unreadable),
            ("recomputed", self.recomputed),
            ("rejected", self.rejected),
            ("outdated", self.outdated),
        ]
    }

    /// All of them together.
    pub(crate) fn all(&self) -> u64 {
        let Self { absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated } = self;
        let causes = [absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated];
        causes.into_iter().fold(0, |all, cause| all.saturating_add(*cause))
    }
}

/// Those that are not zero, such as `1,880 absent, 8 damaged`.
impl fmt::Display for MissCauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (name, count) in self.named().into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "{before}{} {name}", Grouped(count))?;
            before = ", ";
        }
        Ok(())
    }
}

/// Why a row was missed; the place of its count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    #[default]
    Absent,
    Invalidated,
    Expired,
    Damaged,
    Unreadable,
    Recomputed,
    Rejected,
    Outdated,
}

impl Cause {
    const ALL: [Self; MissCauses::COUNT] = [
        Self::Absent,
        Self::Invalidated,
        Self::Expired,
        Self::Damaged,
        Self::Unreadable,
        Self::Recomputed,
        Self::Rejected,
        Self::Outdated,
    ];

    /// That of this place.
    pub(crate) fn at(place: u32) -> Self {
        Self::ALL.get(place as usize).copied().unwrap_or_default()
    }
}
