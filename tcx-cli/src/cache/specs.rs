//! Compares two modules with the same id.

use std::path::Path;

use tcx_store::Spec;

use crate::cache::destination::Destination;
use crate::failure::{Code, Failure, Result};

/// Fails if the module exists in the cache A and differs from the one in B.
pub(crate) fn check_same(
    (a, name): (&Destination<'_>, &str),
    (b, theirs): (&Path, &Spec),
    (action, remedy): (&str, &str),
) -> Result<()> {
    if !a.has(name) {
        return Ok(());
    }
    let differences = differences(&a.spec(name)?, theirs);
    if differences.is_empty() {
        return Ok(());
    }
    let lines = differences.iter().map(|difference| format!("\n  {difference}")).collect::<Vec<_>>().concat();
    let message = format!(
        "cannot {action} `{name}`: it differs between {} (A) and {} (B):{lines}\nnothing was added; {remedy}",
        a.place().display(),
        b.display()
    );
    Err(Failure::new(Code::Unfit, message))
}

/// The differences between A and B, one line each; empty if their rows are interchangeable.
pub(crate) fn differences(a: &Spec, b: &Spec) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: String, a: Option<String>, b: Option<String>| {
        if a != b {
            let side = |value: Option<String>| value.unwrap_or_else(|| "absent".to_owned());
            found.push(format!("{what}: {} in A, {} in B", side(a), side(b)));
        }
    };
    compare("module id".to_owned(), Some(a.module_id().to_owned()), Some(b.module_id().to_owned()));
    compare("ids".to_owned(), Some(a.key_type().to_string()), Some(b.key_type().to_string()));
    let leaves = |spec: &Spec| pairs(spec.leaves().iter().map(|leaf| (&leaf.name, leaf.described())));
    let entries =
        |spec: &Spec| pairs(spec.identity().entries().iter().map(|(path, value)| (path, value.clone())));
    for (kind, a, b) in [("output", leaves(a), leaves(b)), ("identity", entries(a), entries(b))] {
        for name in names(&a, &b) {
            compare(format!("{kind} `{name}`"), value(&a, &name), value(&b, &name));
        }
        let order =
            |pairs: &[(String, String)]| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if order(&a) != order(&b) && a.len() == b.len() {
            compare(format!("order of {kind}"), Some(order(&a).join(", ")), Some(order(&b).join(", ")));
        }
    }
    found
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a String, String)>) -> Vec<(String, String)> {
    pairs.map(|(name, value)| (name.clone(), value)).collect()
}

/// The names in either list, each once.
fn names(a: &[(String, String)], b: &[(String, String)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in a.iter().chain(b) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn value(pairs: &[(String, String)], name: &str) -> Option<String> {
    // A path may occur several times: all its values are compared.
    let values: Vec<&str> =
        pairs.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect();
    (!values.is_empty()).then(|| values.join(" and "))
}
