//! Parses the prices of requests.

use std::str::FromStr;

/// The price of a thousand requests, in the user's currency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prices {
    /// Of those that write or list.
    pub(crate) puts_and_lists: f64,
    /// Of the others.
    pub(crate) gets: f64,
}

impl Prices {
    pub(crate) fn of(self, puts_and_lists: u64, gets: u64) -> f64 {
        (puts_and_lists as f64 * self.puts_and_lists + gets as f64 * self.gets) / 1000.0
    }
}

impl FromStr for Prices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let price =
            |text: &str| text.trim().parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
        let parsed = text
            .split_once(',')
            .and_then(|(puts, gets)| Some(Self { puts_and_lists: price(puts)?, gets: price(gets)? }));
        parsed.ok_or_else(|| {
            format!(
                "expected the prices of a thousand PUT or LIST requests and of a thousand others, such as 0.005,0.0004, found {text:?}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_two_numbers() {
        let prices: Prices = "0.005, 0.0004".parse().unwrap();
        assert!((prices.of(2000, 10_000) - 0.014).abs() < 1e-9);
        for text in ["0.005", "a,b", "-1,0", "0,inf"] {
            assert!(text.parse::<Prices>().is_err_and(|error| error.contains(text)), "{text}");
        }
    }
}
