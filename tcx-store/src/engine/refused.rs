//! A folder that turned out to be another's: nothing is served or written any more.

use super::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::may_be_sound;
use crate::storage::name::FileName;
use crate::sys::runtime;
use crate::sys::runtime::lock;

impl Core {
    /// The error of a folder that turned out to be another's.
    pub(crate) fn check(&self) -> Result<()> {
        self.refused.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Whether the error says that change 0 is damaged, and it may be sound at another look.
    pub(crate) fn may_be_misread(&self, error: &Error) -> bool {
        let since = || *lock(&self.corrupt_since).get_or_insert_with(runtime::now);
        let name = FileName::Change(0).to_string();
        error.kind() == ErrorKind::Corrupt && may_be_sound(&*self.storage, &name, since())
    }

    /// Remembers a refusal; every other error passes through unnoticed.
    pub(crate) fn remember(&self, error: &Error) {
        if self.may_be_misread(error) {
            return;
        }
        if matches!(error.kind(), ErrorKind::Incompatible | ErrorKind::Replaced | ErrorKind::Corrupt) {
            // The first refusal stands.
            let _ = self.refused.set(error.clone());
        }
    }
}
