//! What was found that must not be.

/// Nothing of this may ever be found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Rows that an acknowledged flush has promised, and that are not there.
    pub lost: Vec<String>,
    /// Rows that are not what they should be, dead ones that are served, and processes that end in a panic or never.
    pub wrong: Vec<String>,
}

impl Findings {
    /// Something that must not be, but no lost row.
    pub fn of_wrong(what: impl Into<String>) -> Self {
        Self { lost: Vec::new(), wrong: vec![what.into()] }
    }

    /// Takes in what another look has found.
    pub fn add(&mut self, others: Self) {
        self.lost.extend(others.lost);
        self.wrong.extend(others.wrong);
    }

    /// Whether all is as it should be.
    pub fn are_none(&self) -> bool {
        self.lost.is_empty() && self.wrong.is_empty()
    }

    /// # Panics
    ///
    /// If there are any.
    #[track_caller]
    pub fn assert_none(&self) {
        assert!(self.are_none(), "{self:?}");
    }
}
