//! Values of the command line.

/// Parses a number of at least 1; underscores may group its digits.
pub fn positive(text: &str) -> Result<usize, String> {
    let number = text.replace('_', "").parse().ok();
    number
        .filter(|&number| number > 0)
        .ok_or_else(|| format!("expected a number of at least 1, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_at_least_one() {
        assert_eq!(positive("1_000"), Ok(1000));
        assert_eq!(positive("0"), Err("expected a number of at least 1, found `0`".to_owned()));
        assert!(positive("none").is_err() && positive("-1").is_err());
    }
}
