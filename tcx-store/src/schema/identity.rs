//! What decides the rows of a cache: the fields, values and weights of the module that computes them.

use std::collections::HashMap;

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
        let [cache, code] = [self, code].map(Self::numbered);
        let [in_cache, in_code] = [&cache, &code].map(|own| own.iter().copied().collect::<HashMap<_, _>>());
        let of_cache = cache.iter().filter_map(|(entry @ (path, _), value)| match in_code.get(entry) {
            Some(found) if found == value => None,
            Some(found) => Some(format!("\n  `{path}`: {value} in the cache, {found} in the code")),
            None => Some(format!("\n  `{path}`: {value} in the cache, absent from the code")),
        });
        let of_code = code.iter().filter(|(entry, _)| !in_cache.contains_key(entry));
        let of_code = of_code
            .map(|((path, _), value)| format!("\n  `{path}`: absent from the cache, {value} in the code"));
        let lines: String = of_cache.chain(of_code).collect();
        if lines.is_empty() { "\n  the order of the fields".to_owned() } else { lines }
    }

    /// The values by their paths. A path may have several values; the number says which of them this is.
    fn numbered(&self) -> Vec<((&str, usize), &str)> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let mut number = |path| {
            let times = seen.entry(path).or_default();
            *times += 1;
            *times
        };
        let entries = self.entries.iter().map(|(path, value)| (path.as_str(), value.as_str()));
        entries.map(|(path, value)| ((path, number(path)), value)).collect()
    }
}

impl FromIterator<(String, String)> for Identity {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_path_are_compared_one_by_one() {
        let identity = |entries: &[(&str, &str)]| {
            let owned = entries.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
            owned.collect::<Identity>()
        };
        let cache = identity(&[("tag", "a"), ("tag", "b"), ("size", "1")]);
        let code = identity(&[("tag", "a"), ("tag", "c"), ("size", "1"), ("tag", "d")]);
        let expected =
            "\n  `tag`: b in the cache, c in the code\n  `tag`: absent from the cache, d in the code";
        assert_eq!(cache.difference(&code), expected);
        assert_eq!(cache.difference(&cache), "");
        let reordered = identity(&[("size", "1"), ("tag", "a"), ("tag", "b")]);
        assert_eq!(cache.difference(&reordered), "\n  the order of the fields");
    }
}
