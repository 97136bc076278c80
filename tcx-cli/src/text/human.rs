//! Formats and parses numbers, sizes and times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use indicatif::HumanCount;

/// `9.1 MB`.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().si().to_string()
}

/// `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `3 h ago`.
pub(crate) fn ago(time: SystemTime) -> String {
    let seconds = SystemTime::now().duration_since(time).unwrap_or_default().as_secs();
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        86_400..172_800 => "1 day ago".to_owned(),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// `2m 5s`: whole seconds.
pub(crate) fn duration(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}

/// `2026-07-01T12:00:00Z`.
pub(crate) fn date(time: SystemTime) -> String {
    // `humantime` cannot format times outside the calendar, which a broken clock may have written.
    let in_calendar = time.duration_since(UNIX_EPOCH).is_ok_and(|age| age.as_secs() < 253_402_300_800);
    if in_calendar { humantime::format_rfc3339_seconds(time).to_string() } else { format!("{time:?}") }
}

/// Milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}

/// Reads `50GB`, `1.5 GiB`, `4096`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let size: ByteSize =
        text.parse().map_err(|_| format!("expected a size such as 50GB, 1.5GiB or 4096, found {text:?}"))?;
    Ok(size.as_u64())
}

/// Reads `30d`, `12h`, `1h 30m`.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| format!("expected a time such as 30d, 12h or 90s, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        assert_eq!(parse_size("50GB"), Ok(50_000_000_000));
        assert_eq!(parse_size("4 KiB"), Ok(4096));
        assert!(parse_size("much").unwrap_err().contains("50GB"));
        assert_eq!(parse_age("30d"), Ok(Duration::from_hours(720)));
        assert!(parse_age("30").unwrap_err().contains("30d"));
    }
}
