//! Removing the files of rounds that are over.

use std::collections::BTreeMap;
use std::time::Duration;

use super::files::{LeaseFiles, StoredLeases};
use super::name::{About, LeaseName, Round};
use crate::storage::TEMPORARY_FILES_STAY;
use crate::storage::name::FileName;

/// A round whose workers have written nothing for this time is over. If it is not, its ranges are looked up again.
pub(crate) const LEASES_STAY: Duration = Duration::from_hours(7 * 24);

/// Removes the files of rounds in which nothing was written for this time, and temporary files of killed processes. What cannot be
/// removed is removed another time.
pub(crate) fn remove_old(files: &StoredLeases, stay: Duration) {
    let names = files.list().unwrap_or_default();
    for name in names.iter().filter(|name| matches!(FileName::parse(name), Some(FileName::Temporary(_)))) {
        if files.age(name).is_ok_and(|age| age >= TEMPORARY_FILES_STAY) {
            let _ = files.remove(name);
        }
    }
    let mut rounds: BTreeMap<Round, Vec<About>> = BTreeMap::new();
    for LeaseName { round, about } in names.iter().filter_map(|name| LeaseName::parse(name)) {
        rounds.entry(round).or_default().push(about);
    }
    for (round, about) in rounds {
        let name = |about: &About| LeaseName { round, about: *about }.to_string();
        // Living workers write their records again and again.
        let last = about.iter().filter(|about| !matches!(about, About::Range { .. }));
        let is_old = |about| files.age(&name(about)).is_ok_and(|age| age >= stay);
        if last.clone().next().is_some() && last.clone().all(is_old) {
            for about in &about {
                let _ = files.remove(&name(about));
            }
        }
    }
}

/// Removes the files of the rounds of a job that ended before the round before this one: no worker of them is left.
pub(crate) fn remove_ended(files: &impl LeaseFiles, now: Round) {
    let names = files.list().unwrap_or_default();
    let names: Vec<_> = names.iter().filter_map(|name| LeaseName::parse(name)).collect();
    let is_ended = |round: Round| names.iter().any(|name| name.round == round && name.about == About::End);
    let old = |name: &&LeaseName| {
        let LeaseName { round, .. } = **name;
        round.job == now.job && round.number.saturating_add(1) < now.number && is_ended(round)
    };
    // The mark of the end goes last: without it, the other files would stay until they are old.
    let (ends, others): (Vec<&LeaseName>, Vec<&LeaseName>) =
        names.iter().filter(old).partition(|name| name.about == About::End);
    for name in others.iter().chain(&ends) {
        let _ = files.remove(&name.to_string());
    }
}
