//! What the code that the macros generate calls. No part of the public interface: it changes with any
//! release.

pub use crate::id::{BytesIds, I64Ids, StringIds};
pub use crate::output::{ColumnReader, ColumnWriter};
pub use crate::tensor::{Dense, TensorColumn};
pub use tcx_store::{ColumnType, Field};
