//! What requests to an object store cost.

use super::traffic::Traffic;

/// The prices of a thousand requests to an object store, in any currency. Providers have one for those that write or list, and a lower one for
/// those that read; to remove an object costs nothing.
///
/// ```
/// use tcx_store::{Prices, Traffic};
///
/// let prices = Prices { puts_and_lists: 0.005, gets: 0.0004 };
/// let traffic = Traffic { puts: 1_900, lists: 100, gets: 8_000, heads: 2_000, ..Traffic::default() };
/// assert!((traffic.price(prices) - 0.014).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Of those that write or list.
    pub puts_and_lists: f64,
    /// Of those that read an object, or ask for it.
    pub gets: f64,
}

impl Prices {
    /// What this number of requests costs.
    pub fn of(self, puts_and_lists: u64, gets: u64) -> f64 {
        (puts_and_lists as f64 * self.puts_and_lists + gets as f64 * self.gets) / 1000.0
    }
}

impl Traffic {
    /// An estimate of what the requests have cost: each try counts. What providers take for bytes that leave their network is not part of it.
    pub fn price(&self, prices: Prices) -> f64 {
        prices.of(self.puts_and_lists(), self.reads())
    }

    /// The requests that write or list.
    pub(crate) fn puts_and_lists(&self) -> u64 {
        self.puts.saturating_add(self.lists)
    }

    /// The requests that read an object, or ask for it.
    pub(crate) fn reads(&self) -> u64 {
        self.gets.saturating_add(self.heads)
    }
}
