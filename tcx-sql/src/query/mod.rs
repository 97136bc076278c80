//! The text of a query and its answer.

pub(crate) mod answer;
pub(crate) mod depth;
pub(crate) mod value;
