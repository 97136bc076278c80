//! What the inputs of a joined segment were joined from, one time after another: copies of a folder may have these files still.

use std::collections::HashSet;
use std::sync::Arc;

use super::Segment;
use crate::sys::bytes::Random;

/// The most that are named, if the segment does not have more rows than that: most of the others have no rows left.
const MOST: usize = 1024;

/// The most that are named in any case: names of 16 MiB. A footer has at most [64 MiB](super::open), and a segment with a longer one could
/// not be opened.
const MOST_OF_ALL: usize = 1 << 19;

/// Marks a list that is not complete.
const MORE: char = '+';

/// Segments by the random bits of their names, the nearest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ancestors {
    pub(crate) names: Vec<Random>,
    /// Whether there were others.
    pub(crate) has_more: bool,
}

impl Ancestors {
    /// Those of a segment with this number of rows that is joined from these.
    pub(crate) fn of(inputs: &[Arc<Segment>], rows: usize) -> Self {
        let near = inputs.iter().flat_map(|input| input.inputs()).map(|own| own.random);
        let far = inputs.iter().flat_map(|input| &input.ancestors().names).copied();
        let mut seen: HashSet<Random> = inputs.iter().map(|input| input.name().random).collect();
        let mut names: Vec<Random> = near.chain(far).filter(|name| seen.insert(*name)).collect();
        let most = most(rows);
        let has_more = names.len() > most || inputs.iter().any(|input| input.ancestors().has_more);
        names.truncate(most);
        Self { names, has_more }
    }

    /// Those of a joined segment, or of another one, whose footer has this entry.
    pub(super) fn parse(entry: Option<&str>, is_joined: bool) -> Option<Self> {
        // Earlier versions wrote none.
        let Some(entry) = entry else { return Some(Self { names: Vec::new(), has_more: is_joined }) };
        let (names, has_more) = entry.strip_suffix(MORE).map_or((entry, false), |names| (names, true));
        let (names, rest) = names.as_bytes().as_chunks::<32>();
        (is_joined && rest.is_empty()).then_some(())?;
        let name = |digits: &[u8; 32]| std::str::from_utf8(digits).ok().and_then(Random::parse);
        names.iter().map(name).collect::<Option<_>>().map(|names| Self { names, has_more })
    }

    /// The entry of the footer.
    pub(super) fn entry(&self) -> String {
        let names = self.names.iter().map(ToString::to_string);
        names.chain(self.has_more.then(|| MORE.to_string())).collect()
    }
}

/// The most that are named by a segment with this number of rows.
fn most(rows: usize) -> usize {
    rows.clamp(MOST, MOST_OF_ALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::open::MAX_FOOTER;

    #[test]
    fn the_names_of_a_segment_with_very_many_rows_have_room_in_its_footer() {
        assert_eq!((most(1), most(2000)), (MOST, 2000));
        assert!(most(usize::MAX) * 2 * size_of::<Random>() <= MAX_FOOTER / 4);
    }

    #[test]
    fn they_are_read_back_and_a_joined_segment_without_the_entry_may_have_any() {
        let names = vec![Random([1; 16]), Random([250; 16])];
        for ancestors in [
            Ancestors::default(),
            Ancestors { names: names.clone(), has_more: false },
            Ancestors { names, has_more: true },
            Ancestors { names: Vec::new(), has_more: true },
        ] {
            assert_eq!(Ancestors::parse(Some(&ancestors.entry()), true), Some(ancestors));
        }
        assert_eq!(Ancestors::parse(None, false), Some(Ancestors::default()));
        assert_eq!(Ancestors::parse(None, true), Some(Ancestors { names: Vec::new(), has_more: true }));
        assert_eq!(Ancestors::parse(Some(""), false), None, "it was not joined");
        for malformed in ["00", &"0".repeat(33), &"0".repeat(63), &"g".repeat(32), &"é".repeat(16), "++"] {
            assert_eq!(Ancestors::parse(Some(malformed), true), None, "{malformed:?}");
        }
    }
}
