//! The outputs of a module that an export writes.

use tcx_store::{Inspection, KeyType, Leaf, Spec};

use crate::failure::{Failure, Result};
use crate::text::variants::Variants;

/// An output that is written.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) leaf: Leaf,
    /// If it is an enum whose names are known.
    pub(crate) variants: Option<Variants>,
}

/// The module, and its outputs that are written, in order.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) module: String,
    pub(crate) digest: String,
    pub(crate) key_type: KeyType,
    pub(crate) outputs: Vec<Chosen>,
    /// The numbers of these outputs in the module.
    pub(crate) numbers: Vec<usize>,
}

impl Selection {
    /// The outputs with these names, or all if no name is given. The name of a group selects all of its outputs.
    ///
    /// # Errors
    ///
    /// An output does not exist.
    pub(crate) fn new(inspection: &Inspection, fields: &[String]) -> Result<Self> {
        let spec = inspection.spec();
        let numbers = chosen(spec, fields)?;
        let outputs = numbers.iter().map(|number| Chosen {
            leaf: spec.leaves()[*number].clone(),
            variants: Variants::of(spec, *number),
        });
        Ok(Self {
            module: spec.module_id().to_owned(),
            digest: inspection.digest(),
            key_type: spec.key_type(),
            outputs: outputs.collect(),
            numbers,
        })
    }
}

/// The numbers of the outputs, in the order of the module.
fn chosen(spec: &Spec, fields: &[String]) -> Result<Vec<usize>> {
    let leaves = spec.leaves();
    // The sizes of a tensor are in the group of its name.
    let is_of = |leaf: &Leaf, field: &String| {
        leaf.name.strip_prefix(field.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(unknown) = fields.iter().find(|field| !leaves.iter().any(|leaf| is_of(leaf, field))) {
        let names: Vec<_> = leaves.iter().map(|leaf| leaf.name.as_str()).collect();
        let (module, names) = (spec.module_id(), names.join(", "));
        return Err(Failure::usage(format!("no output `{unknown}` in `{module}`; its outputs are {names}")));
    }
    let is_chosen = |leaf: &Leaf| fields.is_empty() || fields.iter().any(|field| is_of(leaf, field));
    Ok((0..leaves.len()).filter(|number| is_chosen(&leaves[*number])).collect())
}

impl Chosen {
    /// The name of the column: `id` and `view` are the names of the sample's own columns.
    pub(crate) fn name(&self) -> String {
        exported_name(&self.leaf)
    }
}

/// The name of an output's column: `id` and `view` are the names of the sample's own columns.
pub(crate) fn exported_name(leaf: &Leaf) -> String {
    if matches!(&*leaf.name, "id" | "view") { format!("{} (output)", leaf.name) } else { leaf.name.clone() }
}
