//! The names of the files in the folder `leases`. Other names are not those of leases.

use std::fmt;

use crate::sys::bytes::{Random, parse_hex64};

/// A round of a job, in which each work range is finished once. A call that begins after the end of a round begins the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round {
    /// The hash of the job's name and view.
    pub(crate) job: u64,
    pub(crate) number: u32,
}

/// What a file is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    /// What all workers of the round agree on.
    Job,
    /// Every range is finished.
    End,
    /// What a worker has done.
    Worker(Random),
    /// The lease of a work range. Each generation but the first takes over the one before.
    Range { number: u64, generation: u32 },
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseName {
    pub(crate) round: Round,
    pub(crate) about: About,
}

impl LeaseName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let (kind, job, number) = (parts.next()?, parse_hex64(parts.next()?)?, parts.next()?);
        let round = Round { job, number: u32::try_from(digits(number, 8)?).ok()? };
        let about = match kind {
            "job" => About::Job,
            "end" => About::End,
            "worker" => About::Worker(Random::parse(parts.next()?)?),
            "range" => {
                let number = digits(parts.next()?, 12)?;
                About::Range { number, generation: u32::try_from(digits(parts.next()?, 4)?).ok()? }
            }
            _ => return None,
        };
        parts.next().is_none().then_some(Self { round, about })
    }
}

/// A number of at least this many digits.
fn digits(text: &str, least: usize) -> Option<u64> {
    let is_number = text.len() >= least && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok())??;
    // One number has one name.
    (text.len() == least || !text.starts_with('0')).then_some(number)
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round: Round { job, number: round }, about } = self;
        match about {
            About::Job => write!(f, "job-{job:016x}-{round:08}"),
            About::End => write!(f, "end-{job:016x}-{round:08}"),
            About::Worker(random) => write!(f, "worker-{job:016x}-{round:08}-{random}"),
            About::Range { number, generation } => {
                write!(f, "range-{job:016x}-{round:08}-{number:012}-{generation:04}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_leases_are_read_back_and_others_are_not() {
        let round = Round { job: 0xfeed, number: 3 };
        let range = |number, generation| About::Range { number, generation };
        let about =
            [About::Job, About::End, About::Worker(Random([7; 16])), range(0, 0), range(1 << 50, 99_999)];
        for about in about {
            let name = LeaseName { round, about };
            assert_eq!(LeaseName::parse(&name.to_string()), Some(name));
        }
        let others = ["", "job", "job-1-2", "tmp-00", "change-0", "job-000000000000feed-00000003-x"];
        assert!(others.iter().all(|name| LeaseName::parse(name).is_none()));
        assert!(LeaseName::parse("job-000000000000feed-000000003").is_none(), "one number has one name");
    }
}
