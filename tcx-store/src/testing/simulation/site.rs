//! Where a process finds the files of the module: in a folder, or on a machine that knows a folder of an object store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::doubt::Doubt;
use super::memory::MemoryStorage;
use super::objects::Objects;
use super::process::World;
use super::watched::Watched;
use super::weather::Weather;
use crate::storage::Storage;

/// The machines of a simulation, each with a disk, which know the folder by the objects of a store.
pub trait Machines: Send + Sync {
    /// A process of this machine opens the module.
    fn open(&self, machine: usize, objects: Objects) -> Arc<dyn Storage>;

    /// Everything on the disk of this machine is gone. None of its processes lives.
    fn lose_disk(&self, machine: usize);
}

/// The machines, and how many processes each has.
#[derive(Clone)]
pub(super) struct Fleet {
    pub(super) machines: Arc<dyn Machines>,
    pub(super) each: usize,
}

impl Fleet {
    pub(super) fn machine_of(&self, process: usize) -> usize {
        process / self.each
    }
}

pub(super) enum Site {
    Folder { storage: Arc<MemoryStorage>, doubt: Arc<Doubt> },
    Machine { fleet: Fleet, number: usize, objects: Objects, doubt: Arc<Doubt> },
}

impl Site {
    pub(super) fn new(world: &Arc<World>, process: usize, weather: Weather, fleet: Option<&Fleet>) -> Self {
        let (world, doubt) = (world.clone(), Arc::<Doubt>::default());
        if let Some(fleet) = fleet {
            let number = fleet.machine_of(process);
            let objects = Objects::new(world, process, number, weather, doubt.clone());
            return Self::Machine { fleet: fleet.clone(), number, objects, doubt };
        }
        let storage = Arc::new(MemoryStorage::new(world, process, weather, doubt.clone()));
        Self::Folder { storage, doubt }
    }

    /// The process opens the module.
    pub(super) fn open(&self) -> Arc<dyn Storage> {
        match self {
            Self::Folder { storage, .. } => storage.clone(),
            Self::Machine { fleet, number, objects, doubt } => {
                let storage = fleet.machines.open(*number, objects.opened());
                Arc::new(Watched { storage, doubt: doubt.clone(), looks: AtomicU64::new(0) })
            }
        }
    }

    pub(super) fn doubt(&self) -> Arc<Doubt> {
        let (Self::Folder { doubt, .. } | Self::Machine { doubt, .. }) = self;
        doubt.clone()
    }

    /// The machine that the process is on, if it is on one.
    pub(super) fn machine(&self) -> Option<usize> {
        match self {
            Self::Folder { .. } => None,
            Self::Machine { number, .. } => Some(*number),
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("each", &self.each).finish_non_exhaustive()
    }
}
