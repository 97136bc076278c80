use std::cell::RefCell;
use tcx::Stateless;

#[derive(Stateless)]
pub struct Config {
    size: i64,
    memory: RefCell<Vec<i64>>,
}

#[derive(Stateless)]
pub enum Mode {
    Plain,
    Counted { calls: std::sync::atomic::AtomicU64 },
}

fn main() {}
