//! Fields of an output that are not cached.

/// A field with `#[tcx(skip)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no default value to fill a skipped field with",
    label = "not `Default`",
    note = "a field with `#[tcx(skip)]` is not stored in the cache: hits and misses return the default of its type",
    note = "implement `Default` for `{Self}`, or use `Option<{Self}>`, which is `None` then"
)]
#[doc(hidden)]
pub trait Skipped: Sized {
    /// What is read.
    fn value() -> Self;
}

// The message above says more than that `Default` is missing.
#[diagnostic::do_not_recommend]
impl<T: Default> Skipped for T {
    fn value() -> Self {
        Self::default()
    }
}
