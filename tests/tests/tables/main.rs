//! Tables: values of any function of an id.

mod table;
mod tables;
