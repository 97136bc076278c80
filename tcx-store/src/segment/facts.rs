//! What a segment is known by, without a look at its rows.

use super::{Ancestors, Segment};
use crate::changes::{Dated, Lineage, Needs};
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;

impl Segment {
    pub(crate) fn name(&self) -> SegmentName {
        self.name
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// What its rows need to be served.
    pub(crate) fn needs(&self) -> Needs {
        Needs { base: self.base, commit: self.commit }
    }

    /// When its oldest row was computed, in milliseconds since 1970.
    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    /// When the youngest of the segments was born from which its rows came, one after the other, also if those are gone; `u64::MAX` if that is
    /// not known.
    pub(crate) fn youngest(&self) -> u64 {
        self.youngest
    }

    /// The segment, as changes know it that kill whole segments.
    pub(crate) fn dated(&self) -> Dated<'_> {
        let Ancestors { names, has_more } = &self.ancestors;
        let lineage = Lineage { inputs: &self.inputs, ancestors: names, has_more: *has_more };
        Dated { base: self.base, born: self.born, name: self.name.random, lineage }
    }

    /// The version of the format that it was written in.
    pub(crate) fn format(&self) -> u32 {
        self.format
    }

    /// The segments that this one stands for.
    pub(crate) fn inputs(&self) -> &[SegmentName] {
        &self.inputs
    }

    /// What its inputs were joined from.
    pub(crate) fn ancestors(&self) -> &Ancestors {
        &self.ancestors
    }

    /// The random bits of its name, and of those of all segments that it was joined from, one after the other.
    pub(crate) fn lineage(&self) -> impl Iterator<Item = Random> + '_ {
        let inputs = self.inputs.iter().map(|input| input.random);
        [self.name.random].into_iter().chain(inputs).chain(self.ancestors.names.iter().copied())
    }
}
