//! Caches that are filled ahead of time, kept small, and read in order; what is lost and who learns of it.

mod epochs;
mod limits;
mod losses;
mod own_settings;
mod processes;
mod progress;
mod warm;
mod warming;
