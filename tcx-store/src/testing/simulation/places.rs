//! Which folder is in the place of the module's folder: it may be removed, go away and come back, or be replaced by an older
//! copy of itself.

/// A folder, by its number.
pub(super) type Place = usize;

/// What the oracle knows of a folder.
#[derive(Debug, Default)]
struct Known {
    /// The folder that it is a copy of, and when it was copied.
    copy_of: Option<(Place, u64)>,
    /// Whose rows were acknowledged in it, and since when.
    owner: Option<(u8, u64)>,
}

/// Every folder that there was, and the one that is in place now.
#[derive(Debug)]
pub(super) struct Places {
    known: Vec<Known>,
    current: Place,
    /// When another folder came into place.
    switched: u64,
    away: Option<Place>,
    backup: Option<(Place, u64)>,
}

impl Default for Places {
    fn default() -> Self {
        Self { known: vec![Known::default()], current: 0, switched: 0, away: None, backup: None }
    }
}

impl Places {
    pub(super) fn current(&self) -> Place {
        self.current
    }

    /// Whether another folder came into place since.
    pub(super) fn switched_since(&self, time: u64) -> bool {
        self.switched > time
    }

    /// Whether what happened in `place` at `time` is in the folder that is in place now.
    pub(super) fn hold(&self, place: Place, time: u64) -> bool {
        let (mut own, mut until) = (self.current, u64::MAX);
        loop {
            if own == place {
                return time < until;
            }
            let Some((origin, copied)) = self.known[own].copy_of else { return false };
            (own, until) = (origin, until.min(copied));
        }
    }

    /// The identity of the rows that are acknowledged in the current folder: `identity`, unless there are rows already.
    pub(super) fn owner(&mut self, identity: u8, now: u64) -> u8 {
        self.known[self.current].owner.get_or_insert((identity, now)).0
    }

    /// An empty folder, or none, comes into place. `comes_back` says that the one before is only away.
    pub(super) fn leave(&mut self, now: u64, comes_back: bool) {
        if comes_back {
            self.away = Some(self.current);
        }
        self.enter(Known::default(), now);
    }

    /// The module is made in an empty folder that is not the first: who has known an earlier one knows nothing of this one, though it may
    /// have looked into the empty folder.
    pub(super) fn make(&mut self, now: u64) {
        if self.current > 0 {
            self.enter(Known::default(), now);
        }
    }

    /// The folder that is away comes back.
    pub(super) fn come_back(&mut self, now: u64) {
        if let Some(away) = self.away.take() {
            (self.current, self.switched) = (away, now);
        }
    }

    /// A user copies the folder.
    pub(super) fn back_up(&mut self, now: u64) {
        self.backup = Some((self.current, now));
    }

    /// The copy comes into place.
    pub(super) fn restore(&mut self, now: u64) {
        if let Some((origin, copied)) = self.backup {
            let owner = self.known[origin].owner.filter(|(_, since)| *since < copied);
            self.enter(Known { copy_of: self.backup, owner }, now);
        }
    }

    fn enter(&mut self, known: Known, now: u64) {
        self.known.push(known);
        (self.current, self.switched) = (self.known.len() - 1, now);
    }
}
