//! The engine of tcx.

mod column;
mod error;
mod identity;
mod key;
mod lookup;
mod schema;

pub use column::Column;
pub use error::{Error, ErrorKind, Result};
pub use identity::Identity;
pub use key::{KeyType, Keys, MAX_KEY_BYTES};
pub use lookup::Lookup;
pub use schema::{ColumnType, DType, Field, Leaf, LeafKind};
