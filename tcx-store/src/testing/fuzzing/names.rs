//! Names of files and ids of modules.

use std::path::{Component, Path};

use crate::storage::name::{FileName, check_module_id};

/// A file has one name, and neither it nor an id leads anywhere.
pub(super) fn decode(bytes: &[u8]) {
    let Ok(name) = str::from_utf8(bytes) else { return };
    let parsed = FileName::parse(name);
    if let Some(parsed) = parsed {
        assert_eq!(parsed.to_string(), name);
    }
    if parsed.is_some() || check_module_id(name).is_ok() {
        let components = Path::new(name).components();
        assert!(components.eq([Component::Normal(name.as_ref())]), "{name:?} leads somewhere");
    }
}
