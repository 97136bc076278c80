//! A report on a cache: what is counted and sampled, and its drawing as one page of HTML that needs nothing else.

mod figures;
mod page;
mod projection;
pub(crate) mod sessions;
mod svg;

pub(crate) use figures::{Figures, Module};
pub(crate) use page::page;
