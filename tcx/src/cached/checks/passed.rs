//! Which checks the module has passed in earlier processes: what was recorded in its folder is not checked again when the next
//! process computes its first sample. The standing check goes on in any case.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use tcx_store::Store;

use crate::cache::mode::Rows;
use crate::cache::provenance::provenance;
use crate::tensor::Device;

/// Another number where the checks of this version find more than those before.
const CHECKS: u32 = 2;

/// How much a module has shown of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    Nothing,
    /// A sample gives the same each time.
    Deterministic,
    /// And the same whatever else is in the batch.
    Independent,
}

/// The records of a module in its folder.
pub(crate) struct Record {
    store: Arc<Store>,
    /// Whether the mode of the handle writes anything.
    writes: bool,
    /// What a record holds for, besides the identity of the module.
    conditions: String,
    recorded: Level,
}

impl Record {
    /// None without a store, and where the program cannot be distinguished from another build of it: code that has changed under one id would
    /// not be checked.
    pub(crate) fn of(rows: &Rows, device: &Device) -> Option<Self> {
        let (store, writes) = (rows.store()?, rows.writes());
        let conditions = format!("checks {CHECKS}, {}, {}", libraries(device), program()?);
        Some(Self { store: store.clone(), writes, conditions, recorded: Level::Nothing })
    }

    /// What is recorded.
    pub(crate) fn read(&mut self) -> Level {
        let levels = [Level::Independent, Level::Deterministic];
        let found = levels.into_iter().find(|level| self.store.has_passed(&self.text(*level)));
        self.recorded = found.unwrap_or_default();
        self.recorded
    }

    /// Records what was shown, if it is more than is recorded.
    pub(crate) fn write(&mut self, shown: Level) {
        if self.writes && shown > self.recorded {
            self.store.record_passed(&self.text(shown));
            self.recorded = shown;
        }
    }

    /// The module has broken a promise.
    pub(crate) fn remove(&mut self) {
        if self.writes {
            for level in [Level::Deterministic, Level::Independent] {
                self.store.forget_passed(&self.text(level));
            }
            self.recorded = Level::Nothing;
        }
    }

    fn text(&self, level: Level) -> String {
        format!("{level:?}, {}", self.conditions)
    }
}

/// The versions of what computes, and on what. The host is left out: it has another name in each container.
fn libraries(device: &Device) -> String {
    let entries = provenance(device).into_iter().filter(|(name, _)| name != "host" && name != "program");
    entries.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// The file of the program: another build has another length or time.
fn program() -> Option<String> {
    let path = std::env::current_exe().ok()?;
    let file = path.metadata().ok()?;
    let modified = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some(format!("program {name} {} {}", file.len(), modified.as_nanos()))
}
