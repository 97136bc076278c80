//! What decides the rows of a cache: the fields, values and weights of the module that computes them.

use std::fmt::Write as _;

/// What a module is, as readable entries: a path (`size`, `backbone.weights`) and a value.
///
/// Two identities are the same if all entries are, in order. A cache belongs to one identity; the entries
/// are kept, so that a refusal can say what differs.
///
/// ```
/// let mut identity = tcx_store::Identity::default();
/// identity.push("size", "224i64");
/// assert_eq!(identity.entries()[0], ("size".to_owned(), "224i64".to_owned()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    entries: Vec<(String, String)>,
}

impl Identity {
    /// Adds an entry.
    pub fn push(&mut self, path: impl Into<String>, value: impl Into<String>) {
        self.entries.push((path.into(), value.into()));
    }

    /// The entries, in the order they were added.
    pub fn entries(&self) -> &[(String, String)] {
        &self.entries
    }

    /// What differs, one line an entry: in the cache, and in the code.
    pub(crate) fn difference(&self, code: &Self) -> String {
        let mut text = String::new();
        let find = |entries: &[(String, String)], path: &str| {
            entries.iter().find(|(p, _)| p == path).map(|(_, value)| value.clone())
        };
        for (path, value) in &self.entries {
            match find(&code.entries, path) {
                Some(found) if found == *value => Ok(()),
                Some(found) => write!(text, "\n  `{path}`: {value} in the cache, {found} in the code"),
                None => write!(text, "\n  `{path}`: {value} in the cache, absent from the code"),
            }
            .unwrap_or_default();
        }
        for (path, value) in &code.entries {
            if find(&self.entries, path).is_none() {
                write!(text, "\n  `{path}`: absent from the cache, {value} in the code").unwrap_or_default();
            }
        }
        text
    }
}
