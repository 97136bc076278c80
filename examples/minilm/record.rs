//! The cold epoch, as it is remembered from run to run.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use tcx_examples::{Epoch, Malformed};

/// An epoch that computed rows: when, on which texts, and how long it took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// The fingerprint of the texts.
    pub(crate) corpus: String,
    /// Seconds since 1970.
    at: u64,
    pub(crate) epoch: Epoch,
    /// What the cache took on disk afterwards.
    pub(crate) bytes: u64,
}

impl Record {
    pub(crate) fn now(corpus: String, epoch: Epoch, bytes: u64) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { corpus, at, epoch, bytes }
    }

    /// How many rows a second the model computes.
    pub(crate) fn speed(&self) -> f64 {
        self.epoch.misses as f64 / self.epoch.seconds
    }

    /// Whether this record measures the model's speed at least as well as an older one.
    pub(crate) fn outweighs(&self, older: Option<&Self>) -> bool {
        self.epoch.misses > 0 && older.is_none_or(|older| self.epoch.misses * 2 > older.epoch.misses)
    }

    /// The day and the time in UTC.
    pub(crate) fn when(&self) -> String {
        let (year, month, day) = date(self.at / 86_400);
        let minutes = self.at / 60;
        format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
    }
}

/// Year, month and day of the Gregorian calendar, `days` days after 1970-01-01.
fn date(mut days: u64) -> (u64, usize, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.corpus, self.at, self.bytes, self.epoch)
    }
}

impl FromStr for Record {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().ok_or(Malformed);
        Ok(Self {
            corpus: word()?.to_owned(),
            at: number(word()?)?,
            bytes: number(word()?)?,
            epoch: word()?.parse()?,
        })
    }
}

fn number<N: FromStr>(word: &str) -> Result<N, Malformed> {
    word.parse().map_err(|_| Malformed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record() -> Record {
        let epoch = Epoch { rows: 5000, hits: 0, misses: 5000, seconds: 40.25, digest: "abc".into() };
        Record { corpus: "def".into(), at: 1_709_210_045, epoch, bytes: 8_000_000 }
    }

    #[test]
    fn a_record_survives_being_written_down() {
        let record = record();
        assert_eq!(record.to_string().parse::<Record>().unwrap(), record);
        for broken in
            ["", "def", "def 1 2", "def 1 2 3 4 5", "def 1 2 3 4 5 six seven", "def 1 2 3 4 5 6 7 8"]
        {
            assert!(broken.parse::<Record>().is_err(), "{broken}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(record().when(), "2024-02-29 12:34 UTC");
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(59), (1970, 3, 1));
        assert_eq!(date(365 + 364), (1971, 12, 31));
        assert_eq!(date(20_000), (2024, 10, 4));
    }

    #[test]
    fn a_few_rows_do_not_take_the_place_of_a_whole_epoch() {
        let (long, mut short) = (record(), record());
        short.epoch.misses = 20;
        assert!(short.outweighs(None) && long.outweighs(Some(&short)) && long.outweighs(Some(&long)));
        assert!(!short.outweighs(Some(&long)));
        short.epoch.misses = 0;
        assert!(!short.outweighs(None));
    }
}
