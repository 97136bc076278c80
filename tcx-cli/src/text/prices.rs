//! Parses the prices of requests.

use tcx_store::Prices;

/// Two numbers: the prices of a thousand requests that write or list, and of a thousand others.
pub(crate) fn parse_prices(text: &str) -> Result<Prices, String> {
    let price =
        |text: &str| text.trim().parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    let parsed = text
        .split_once(',')
        .and_then(|(puts, gets)| Some(Prices { puts_and_lists: price(puts)?, gets: price(gets)? }));
    parsed.ok_or_else(|| {
        format!(
            "expected the prices of a thousand PUT or LIST requests and of a thousand others, such as 0.005,0.0004, found {text:?}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_two_numbers() {
        let prices = parse_prices("0.005, 0.0004").unwrap();
        assert!((prices.of(2000, 10_000) - 0.014).abs() < 1e-9);
        for text in ["0.005", "a,b", "-1,0", "0,inf"] {
            assert!(parse_prices(text).is_err_and(|error| error.contains(text)), "{text}");
        }
    }
}
