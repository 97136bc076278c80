//! The ids of all cached modules of the program, to find one that is used twice.

use crate::{Error, ErrorKind, Result};

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
/// Returns an error that names the modules with the same id, because they would share a cache.
pub(crate) fn check_unique(id: &str) -> Result<()> {
    // Each module is listed once. Several of one place are not one module: a macro has made them, or their file is included twice.
    let mut places: Vec<_> =
        inventory::iter::<Registered>().filter(|module| module.id == id).map(|m| m.at).collect();
    places.sort_unstable();
    match places.as_slice() {
        [] | [_] => Ok(()),
        places => {
            let message = format!("its id is used by {} modules: {}", places.len(), places.join(", "));
            Err(taken(id, message, "give each module an id of its own"))
        }
    }
}

/// Whether a table can have this id.
///
/// # Errors
///
/// Returns an error that names the module with the same id, because they would share a folder.
pub(crate) fn check_no_module(id: &str) -> Result<()> {
    match inventory::iter::<Registered>().find(|module| module.id == id) {
        None => Ok(()),
        Some(module) => {
            let message = format!("its id is used by a module ({}) and by a table", module.at);
            Err(taken(id, message, "give the table an id of its own"))
        }
    }
}

fn taken(id: &str, message: String, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidId, message).in_module(id).with_remedy(remedy)
}

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests {
    use tch::Tensor;

    use super::check_unique;
    use crate::{D0, Extractor, Result, Typed, cached_module};

    macro_rules! module {
        ($name:ident, $id:literal) => {
            #[cached_module(id = $id, crate = crate)]
            #[expect(dead_code, reason = "only its id matters")]
            struct $name;

            impl Extractor for $name {
                type Input = Tensor;
                type Output = Typed<f32, D0>;

                fn forward(&self, input: &Tensor) -> Result<Self::Output> {
                    Ok(input.shallow_clone().into())
                }
            }
        };
    }

    module!(First, "twice_v1");
    module!(Second, "twice_v1");
    module!(Third, "once_v1");

    #[test]
    fn an_id_that_two_modules_have_is_refused_with_both_places() {
        check_unique("once_v1").unwrap();
        check_unique("of no module").unwrap();
        let error = check_unique("twice_v1").unwrap_err().to_string();
        assert!(
            error.starts_with("module `twice_v1`: its id is used by 2 modules: tcx/src/module/registry.rs:"),
            "{error}"
        );
    }
}
