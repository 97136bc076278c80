//! What the demo remembers from run to run, in the mark of its folder.

use tcx_examples::{Kind, Place};

use crate::record::Record;

/// The demo's own folder.
pub(crate) const KIND: Kind = Kind {
    mark: "minilm-demo.txt",
    title: "# A cache that the demo `minilm` of tcx made, and may remove.",
    folders: &[],
};

/// What is remembered from run to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// The epoch that filled the cache.
    pub(crate) cold: Option<Record>,
    /// The number of epochs on edited texts; each run edits otherwise.
    pub(crate) edits: usize,
}

impl Memory {
    /// What earlier runs left. A line that cannot be read is ignored: it is for show only.
    pub(crate) fn recall(place: &Place) -> Self {
        let text = place.noted();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        Self {
            cold: value("cold").and_then(|line| line.parse().ok()),
            edits: value("edits").and_then(|count| count.parse().ok()).unwrap_or(0),
        }
    }

    pub(crate) fn keep(&self, place: &Place) -> anyhow::Result<()> {
        let cold = self.cold.as_ref().map_or_else(String::new, |cold| format!("cold = {cold}\n"));
        place.note(&format!("edits = {}\n{cold}", self.edits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_epoch_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::take(folder.path(), false, &KIND).unwrap();
        assert_eq!(Memory::recall(&place), Memory::default());
        let memory = Memory { cold: Some(crate::record::tests::record()), edits: 1 };
        memory.keep(&place).unwrap();
        assert_eq!(Memory::recall(&place), memory);
        place.note("edits = many\ncold = yesterday\n").unwrap();
        assert_eq!(Memory::recall(&place), Memory::default());
    }
}
