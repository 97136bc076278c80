//! Integers of other types as ids of modules with `key = i64`: converted, never cut off.

use crate::ids::{I64Id, I64Ids};
use crate::{Error, Result};

impl I64Id<i32> for I64Ids {
    fn read(id: &i32) -> i64 {
        i64::from(*id)
    }
}

impl I64Id<u32> for I64Ids {
    fn read(id: &u32) -> i64 {
        i64::from(*id)
    }
}

macro_rules! checked {
    ($($integer:ty),*) => {$(
        impl I64Id<$integer> for I64Ids {
            fn read(id: &$integer) -> i64 {
                // `check` has refused the others.
                i64::try_from(*id).unwrap_or(i64::MAX)
            }

            fn check(id: &$integer) -> Result<()> {
                i64::try_from(*id).map(drop).map_err(|_| too_large(id))
            }
        }
    )*};
}

checked!(u64, usize);

#[cold]
fn too_large(id: &dyn std::fmt::Display) -> Error {
    let most = format!("at most {}", i64::MAX);
    let error = Error::batch(format!("the id {id} does not fit in an `i64`: expected {most}"));
    error
        .with_expected(most, id.to_string())
        .with_remedy("renumber the samples, or give the module `key = bytes` and pass `id.to_le_bytes()`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::KeyKind;

    #[test]
    fn an_integer_is_the_same_id_whatever_its_type_is() {
        let expected = I64Ids::pack(&[7i64], 0).unwrap();
        for keys in [
            I64Ids::pack(&[7i32], 0),
            I64Ids::pack(&[7u32], 0),
            I64Ids::pack(&[&7u64], 0),
            I64Ids::pack(&[Box::new(7usize)], 0),
        ] {
            assert_eq!(keys.unwrap().key(0), expected.key(0));
        }
        assert_eq!(I64Ids::pack(&[-7i32], 0).unwrap().key(0), I64Ids::pack(&[-7i64], 0).unwrap().key(0));
        assert_eq!(I64Ids::pack(&[u32::MAX], 0).unwrap().key(0), i64::from(u32::MAX).to_le_bytes());
    }

    #[test]
    fn an_integer_that_does_not_fit_is_an_error_that_names_it() {
        for error in [
            I64Ids::pack(&[1, u64::MAX], 0).unwrap_err(),
            I64Ids::pack(&[usize::MAX], 0).unwrap_err(),
            I64Ids::pack(&[&std::sync::Arc::new(u64::MAX)], 0).unwrap_err(),
        ] {
            assert_eq!(error.kind(), crate::ErrorKind::InvalidBatch);
            assert!(error.to_string().starts_with("the id 18446744073709551615 does not fit"), "{error}");
        }
    }
}
