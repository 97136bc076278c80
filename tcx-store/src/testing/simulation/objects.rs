//! The folder as an object store has it, for one process: requests fail before they have an effect, or after it; listings are late or
//! incomplete; machines lose the store for a while.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::creation::{Creation, tell_segment};
use super::doubt::Doubt;
use super::folder::{File, State};
use super::process::World;
use super::schedule::{self, Clock};
use super::strays::Life;
use super::weather::{RequestFault, Weather};
use crate::sys::checksum::checksum;

/// The folder of the module, under the prefix of the cache.
const MODULE: &str = "m_v1/";

/// Why a request has not succeeded, or seems not to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such object.
    Absent,
    /// There is such an object.
    Exists,
    /// Something else writes the object.
    Conflict,
    /// Fewer requests, please.
    Throttled,
    /// The store failed.
    Failed,
    /// There is no answer.
    Lost,
    /// Access is denied.
    Denied,
    /// The process has died.
    Died,
}

/// What the store says of an object.
#[derive(Clone, Debug)]
pub struct ObjectFacts {
    /// Its key, under the prefix of the cache.
    pub key: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
    /// The same for objects with the same bytes.
    pub tag: u64,
}

/// Which machines cannot reach the store: a bit each.
#[derive(Debug, Default)]
pub(super) struct Outages(AtomicU64);

impl Outages {
    pub(super) fn set(&self, machines: u64) {
        self.0.store(machines, Ordering::SeqCst);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The objects under the prefix of the cache, as one process reaches them.
#[derive(Clone, Debug)]
pub struct Objects {
    world: Arc<World>,
    process: usize,
    machine: usize,
    weather: Weather,
    doubt: Arc<Doubt>,
    life: Life,
}

impl Objects {
    pub(super) fn new(
        world: Arc<World>,
        process: usize,
        machine: usize,
        weather: Weather,
        doubt: Arc<Doubt>,
    ) -> Self {
        Self { world, process, machine, weather, doubt, life: Life::default() }
    }

    /// The same, for one opening of the store.
    pub(super) fn opened(&self) -> Self {
        Self { life: Life::default(), ..self.clone() }
    }

    /// The objects whose keys begin with `prefix` and have no further slash.
    pub fn list(&self, prefix: &str) -> Result<Vec<ObjectFacts>, Refusal> {
        let fault = self.begin("list", prefix)?;
        let state = self.world.folder.state();
        let names = match fault {
            Some(RequestFault::Stale(late)) => state.names_before(state.unseen(self.process, late)),
            Some(RequestFault::Gap(begin)) => state.names_with_a_gap(self.process, begin),
            _ => state.names_before(&[]),
        };
        let keys = names.into_iter().map(|name| key(&name));
        let listed = keys.filter(|key| key.strip_prefix(prefix).is_some_and(|rest| !rest.contains('/')));
        // One that was removed since is in a late listing no more: that is another late listing.
        let listed = listed.filter_map(|key| facts(&state, &key)).collect();
        answer(fault, listed)
    }

    /// What the store says of an object.
    pub fn head(&self, key: &str) -> Result<ObjectFacts, Refusal> {
        let fault = self.begin("head", key)?;
        let found = facts(&self.world.folder.state(), key).ok_or(Refusal::Absent)?;
        answer(fault, found)
    }

    /// An object and its bytes.
    pub fn get(&self, key: &str) -> Result<(ObjectFacts, Arc<[u8]>), Refusal> {
        let fault = self.begin("get", key)?;
        let state = self.world.folder.state();
        let found = facts(&state, key).zip(state.files.get(name(key)).map(|file| file.bytes.clone()));
        answer(fault, found.ok_or(Refusal::Absent)?)
    }

    /// Writes an object, whatever has its key.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<ObjectFacts, Refusal> {
        let fault = self.begin("put", key)?;
        let written = {
            let mut state = self.world.folder.state();
            self.world.strays.note(&state, name(key), bytes, self.process, &self.life);
            self.add(&mut state, key, bytes);
            facts(&state, key).ok_or(Refusal::Absent)?
        };
        tell_segment(&self.world, name(key), bytes);
        answer(fault, written)
    }

    /// Writes an object unless there is one of its key.
    pub fn create(&self, key: &str, bytes: &[u8]) -> Result<ObjectFacts, Refusal> {
        let fault = self.begin("create", key)?;
        let mut creation = Creation::new(bytes);
        let created = {
            let mut state = self.world.folder.state();
            if state.files.contains_key(name(key)) {
                return answer(fault, ()).and(Err(Refusal::Exists));
            }
            if name(key).starts_with("change-") {
                creation.happens(&state, bytes);
            }
            self.world.strays.note(&state, name(key), bytes, self.process, &self.life);
            self.add(&mut state, key, bytes);
            facts(&state, key).ok_or(Refusal::Absent)?
        };
        creation.tell(&self.world, self.process, name(key), true);
        tell_segment(&self.world, name(key), bytes);
        answer(fault, created)
    }

    /// Removes an object, if there is one.
    pub fn delete(&self, key: &str) -> Result<(), Refusal> {
        let fault = self.begin("delete", key)?;
        self.world.folder.state().remove(name(key), self.process, self.world.folder.clock.millis());
        self.world.strays.note_removal(name(key));
        answer(fault, ())
    }

    fn add(&self, state: &mut State, key: &str, bytes: &[u8]) {
        let file = File { bytes: bytes.into(), synced: true, named: true, written: 0 };
        state.add(name(key), file, self.process, self.world.folder.clock.millis());
    }

    /// A request comes to the store.
    fn begin(&self, what: &'static str, key: &str) -> Result<Option<RequestFault>, Refusal> {
        let is_out = || self.world.outages.get() & 1 << self.machine != 0;
        let fault = if schedule::is_simulated() {
            let forced = schedule::step(what, key).map_err(|_: io::Error| Refusal::Died)?;
            let forced = forced.map(RequestFault::from);
            let drawn = || schedule::draw(|chance| self.weather.of_request(what, chance));
            if is_out() { Some(RequestFault::Before(Refusal::Lost)) } else { forced.or_else(drawn) }
        } else {
            // A thread that the simulation does not know of has good weather, and its request is no step.
            is_out().then_some(RequestFault::Before(Refusal::Lost))
        };
        // The end of a segment's name is not decided by the seed: its footer is a hash map.
        let shown = &key[..key.len().min(MODULE.len() + 36)];
        self.world.folder.trace.note(|| format!("    process {}: {what} {shown} {fault:?}", self.process));
        if matches!(fault, Some(RequestFault::Stale(_) | RequestFault::Gap(_))) {
            self.doubt.list_late();
        }
        match fault {
            Some(RequestFault::Before(refusal)) => Err(refusal),
            fault => Ok(fault),
        }
    }
}

/// The request has had its effect; the process may get no answer.
fn answer<T>(fault: Option<RequestFault>, done: T) -> Result<T, Refusal> {
    match fault {
        Some(RequestFault::After(refusal)) => Err(refusal),
        _ => Ok(done),
    }
}

/// The name in the folder of the object with this key. Those that are not in the module's folder keep their keys.
fn name(key: &str) -> &str {
    key.strip_prefix(MODULE).filter(|name| !name.contains('/')).unwrap_or(key)
}

fn key(name: &str) -> String {
    // Objects that are not the module's own are in a folder, or begin with a dot.
    if name.contains('/') || name.starts_with('.') { name.to_owned() } else { format!("{MODULE}{name}") }
}

fn facts(state: &State, key: &str) -> Option<ObjectFacts> {
    let File { bytes, written, .. } = state.files.get(name(key))?;
    let (length, modified) = (bytes.len() as u64, Clock::wall(*written));
    Some(ObjectFacts { key: key.to_owned(), bytes: length, modified, tag: checksum(bytes) })
}
