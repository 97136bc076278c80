//! What rows are: their keys, the leaves of an output, the columns that hold them, and the identity of the module.

pub(crate) mod column;
pub(crate) mod constraint;
pub(crate) mod identity;
pub(crate) mod key;
pub(crate) mod leaf;
pub(crate) mod presence;
pub(crate) mod spec;
pub(crate) mod stamp;
pub(crate) mod variants;
