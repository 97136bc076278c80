//! A report on a cache: counts figures, samples rows, and draws them as one self-contained HTML page.

mod figures;
mod page;
mod projection;
pub(crate) mod sessions;
mod svg;

pub(crate) use figures::{Figures, Module};
pub(crate) use page::page;
