//! How ids, numbers, sizes, times and the elements of rows are written for people, and read from them.

pub(crate) mod human;
pub(crate) mod ids;
pub(crate) mod prices;
pub(crate) mod values;
pub(crate) mod variants;
