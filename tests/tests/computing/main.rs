//! How missing samples are computed: once, checked, by many threads.

mod asynchronous;
mod checks;
mod concurrency;
mod concurrent_checks;
mod loaders;
mod modes;
mod module;
mod own_handle;
mod passed;
mod run_time;
mod single_flight;
