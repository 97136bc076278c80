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
    output_device: Device,
    program: String,
    /// What a record holds for, besides the identity of the module; empty before it is read.
    conditions: String,
    recorded: Level,
}

impl Record {
    /// None without a store, and where the program cannot be distinguished from another build of it: code that has changed under one id would
    /// not be checked.
    pub(crate) fn of(rows: &Rows, output_device: &Device) -> Option<Self> {
        let (store, writes, output_device) = (rows.store()?.clone(), rows.writes(), output_device.clone());
        let (program, conditions, recorded) = (program()?, String::new(), Level::Nothing);
        Some(Self { store, writes, output_device, program, conditions, recorded })
    }

    /// What is recorded of a module that computes on `device`, as far as its weights say where: no other device has shown anything.
    pub(crate) fn read(&mut self, device: Option<&Device>) -> Level {
        let device = device.unwrap_or(&self.output_device);
        let outputs = match self.output_device.name() {
            own if own == device.name() => String::new(),
            other => format!(", outputs on {other}"),
        };
        self.conditions = format!("checks {CHECKS}, {}, {}{outputs}", libraries(device), self.program);
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use super::*;
    use crate::{Cache, Extractor, Identity, Result, Stateless, cached_module};

    /// Weights on a device.
    struct On(Device);

    impl Stateless for On {
        fn identity(&self, identity: &mut Identity) {
            identity.weights("blake3:as given", &self.0, &[]);
        }
    }

    #[cached_module(id = "passed_on_v1", key = i64, crate = crate)]
    struct Computes {
        weights: On,
        #[tcx(assume_stateless)]
        seen: &'static Mutex<usize>,
    }

    impl Extractor for Computes {
        type Input = Vec<i64>;
        type Output = Vec<i64>;

        fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
            assert!(self.weights.0.name().len() > 1);
            *self.seen.lock().unwrap() += inputs.len();
            Ok(inputs.clone())
        }
    }

    /// How often a process computes a sample, with a network that is built on this device, and outputs on the CPU.
    fn computed(dir: &Path, id: i64, device: &Device) -> usize {
        let seen: &'static Mutex<usize> = Box::leak(Box::default());
        let cache = Cache::builder().recheck(0.).open(dir).unwrap();
        let device = device.clone();
        let build = move || Ok(Computes { weights: On(device.clone()), seen });
        let identity = Identity::of(&Computes { weights: On(Device::CPU), seen });
        cache.lazy_module(identity, Device::CPU, build).unwrap().forward(&[id], &vec![id]).unwrap();
        *seen.lock().unwrap()
    }

    #[test]
    fn what_a_lazy_module_has_passed_on_one_device_is_checked_again_on_another() {
        let dir = tempfile::tempdir().unwrap();
        let npu = Device::new("npu:0", ());
        assert_eq!(computed(dir.path(), 1, &Device::CPU), 2, "a single sample is computed twice");
        assert_eq!(computed(dir.path(), 2, &Device::CPU), 1);
        assert_eq!(computed(dir.path(), 3, &npu), 2, "it was not checked there");
        assert_eq!(computed(dir.path(), 4, &npu), 1);
        assert_eq!(computed(dir.path(), 5, &Device::CPU), 1);
    }
}
