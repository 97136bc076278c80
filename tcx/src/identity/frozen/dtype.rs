//! Variables that take the dtype of a file.

use tch::{Kind, Tensor};

use crate::tensor::torch::kind_name;
use crate::{Error, Result};

/// Gives a variable the dtype that its weight has in the file; its values come later.
///
/// A view of it that the network made while it was built keeps the old memory, which never gets the weight of the file. `take`
/// fills that memory with NaN, or with the lowest number of an integer type. So the view produces visibly wrong values instead
/// of computing from initial ones.
///
/// # Errors
///
/// Returns an error for a variable of truth values: neither of the two would reveal such a view.
pub(super) fn take(name: &str, variable: &mut Tensor, dtype: Kind) -> Result<()> {
    let own = variable.f_kind()?;
    if own == dtype {
        return Ok(());
    }
    let mut before = variable.f_detach()?;
    let shown = match own {
        Kind::Int8 => Some(i64::from(i8::MIN)),
        Kind::Int16 => Some(i64::from(i16::MIN)),
        Kind::Int => Some(i64::from(i32::MIN)),
        Kind::Int64 => Some(i64::MIN),
        // The one that is least likely to be an index or a count.
        Kind::Uint8 => Some(i64::from(u8::MAX)),
        Kind::Bool => {
            let (own, found) = (kind_name(own), kind_name(dtype));
            let message = format!("expected {own}, found {found} in the file");
            return Err(Error::weights(format!("weight `{name}`"), message)
                .with_expected(own, found)
                .with_remedy("make the variable in the dtype of the file"));
        }
        _ => None,
    };
    variable.f_set_data(&variable.f_to_kind(dtype)?)?;
    let _ = match shown {
        Some(number) => before.f_fill_(number)?,
        None => before.f_fill_(f64::NAN)?,
    };
    Ok(())
}
