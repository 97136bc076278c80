//! What the larger examples share. The examples themselves are programs that a user of tcx would write; README.md orders them.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::thread;

/// How many threads there is room for. A container may be allowed fewer cores than libtorch counts.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The bytes of all files below a folder. Files come and go while a cache is in use.
pub fn bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// With one decimal where that says something.
pub fn rounded(times: f64) -> String {
    if times < 9.95 { format!("{times:.1}") } else { grouped(times.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_threes() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1., 9.94, 9.96, 1234.5].map(rounded), ["1.0", "9.9", "10", "1,235"]);
    }
}
