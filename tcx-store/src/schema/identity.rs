//! What decides the rows of a cache: the fields, values and weights of the module that computes them.

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

    /// What differs, one line an entry: in the cache (`self`), and in the code.
    pub(crate) fn difference(&self, code: &Self) -> String {
        if self == code {
            return String::new();
        }
        let of_cache = self.entries.iter().filter_map(|(path, value)| match code.value(path) {
            Some(found) if found == value => None,
            Some(found) => Some(format!("\n  `{path}`: {value} in the cache, {found} in the code")),
            None => Some(format!("\n  `{path}`: {value} in the cache, absent from the code")),
        });
        let of_code = code.entries.iter().filter(|(path, _)| self.value(path).is_none());
        let of_code =
            of_code.map(|(path, value)| format!("\n  `{path}`: absent from the cache, {value} in the code"));
        let lines: String = of_cache.chain(of_code).collect();
        if lines.is_empty() { "\n  the order of the fields".to_owned() } else { lines }
    }

    fn value(&self, path: &str) -> Option<&String> {
        self.entries.iter().find(|(own, _)| own == path).map(|(_, value)| value)
    }
}

impl FromIterator<(String, String)> for Identity {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().collect() }
    }
}
