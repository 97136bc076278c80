//! The two ways to declare an output. Messages show what to write in the one the user has chosen.

#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// A struct with `#[derive(CacheableOutput)]`.
    Derive,
    /// `output(..)` in the attribute of a module.
    Inline,
}

impl Form {
    /// The declaration of a tensor, with these arguments.
    pub(crate) fn tensor(self, arguments: &str) -> String {
        match self {
            Self::Derive => format!("#[tensor({arguments})]"),
            Self::Inline => format!("tensor({arguments})"),
        }
    }

    /// A whole field of a type, as the lines of a help text.
    pub(crate) fn field(self, name: &str, arguments: &str, ty: &str) -> String {
        match self {
            Self::Derive => format!("\n      #[tensor({arguments})]\n      {name}: {ty}"),
            Self::Inline => format!("\n      {name}: tensor({arguments})"),
        }
    }
}
