//! Types of one program that have one name, such as two of a function's blocks: an identity, which has the name, could not
//! distinguish them.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::identity::Identity;

/// The types that are in identities by their names alone.
static NAMED: Mutex<Option<HashMap<&'static str, TypeId>>> = Mutex::new(None);

/// Whether this is the first type of this name that an identity of the process has, or the same one.
fn is_only(name: &'static str, of: TypeId) -> bool {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    *named.get_or_insert_default().entry(name).or_insert(of) == of
}

impl Identity {
    /// Takes note of a type that is entered by its name, and that nothing else of the identity names.
    pub(crate) fn distinguish(&mut self, name: &'static str, of: TypeId) {
        if !is_only(name, of) {
            self.ambiguous = Some(name);
        }
    }

    /// # Errors
    ///
    /// Returns an error if another type of this program has the name of one in this identity: rows of one would be served for the other.
    pub(crate) fn check_names(&self, id: &str) -> Result<(), Error> {
        let Some(name) = self.ambiguous else { return Ok(()) };
        let message = format!(
            "two types of this program have the name `{name}`, by which the cache distinguishes what they compute"
        );
        let remedy = "give each a name of its own, or define them in modules or functions of their own: two blocks of one function are \
                      not enough";
        Err(Error::module(id, message, remedy))
    }
}
