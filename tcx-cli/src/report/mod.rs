//! A report on a cache: counts figures, samples rows, and draws them as one self-contained HTML page.

mod colors;
mod figures;
mod histogram;
mod outputs;
mod page;
mod projection;
pub(crate) mod sessions;
mod shades;
mod svg;

pub(crate) use figures::{Figures, Module};
pub(crate) use page::page;
pub(crate) use shades::Shades;
