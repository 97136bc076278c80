//! The ids of all cached modules of the program, to find one that is used twice.

use crate::{Error, Result};

/// A module's id and where it is written.
#[derive(Debug)]
pub struct Registered {
    id: &'static str,
    at: &'static str,
}

impl Registered {
    /// For `register_module!`.
    pub const fn new(id: &'static str, at: &'static str) -> Self {
        Self { id, at }
    }
}

inventory::collect!(Registered);

/// Lists a module for the whole program.
#[doc(hidden)]
#[macro_export]
macro_rules! register_module {
    ($id:literal) => {
        $crate::__private::inventory::submit! {
            $crate::__private::Registered::new(
                $id,
                $crate::__private::concat!($crate::__private::file!(), ":", $crate::__private::line!()),
            )
        }
    };
}

/// Whether only one module of the program has this id.
///
/// # Errors
///
/// Names the places of the others: they would share a cache.
pub(crate) fn check_unique(id: &str) -> Result<()> {
    let mut places: Vec<_> =
        inventory::iter::<Registered>().filter(|module| module.id == id).map(|m| m.at).collect();
    places.sort_unstable();
    places.dedup();
    match places.as_slice() {
        [] | [_] => Ok(()),
        places => Err(Error::Module {
            id: id.into(),
            message: format!(
                "is the id of {} modules: {}; give each its own",
                places.len(),
                places.join(", ")
            )
            .into(),
        }),
    }
}
