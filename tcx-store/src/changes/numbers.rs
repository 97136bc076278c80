//! Numbers of changes, by which one finds out who has created a change.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers of the changes that this process has created, or of those that one of its recompute sessions has.
#[derive(Debug, Default)]
pub(crate) struct ChangeNumbers {
    /// In ascending order.
    numbers: Mutex<Vec<u64>>,
}

impl ChangeNumbers {
    pub(crate) fn add(&self, number: u64) {
        let mut numbers = self.lock();
        if let Err(at) = numbers.binary_search(&number) {
            numbers.insert(at, number);
        }
    }

    pub(crate) fn remove(&self, number: u64) {
        self.lock().retain(|own| *own != number);
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.lock().binary_search(&number).is_ok()
    }

    /// All of them, in ascending order.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
