//! The guide shows what runs.

use std::path::Path;

/// The text without any white space: how lines are broken is the formatter's business.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_snippet_of_the_guide_is_a_part_of_its_example() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = std::fs::read_to_string(root.join("docs/guide.md"))?;
    let example = std::fs::read_to_string(root.join("examples/guide.rs"))?;
    let example = squeezed(&example);
    let snippets: Vec<&str> =
        guide.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(snippets.len() > 10, "{} snippets", snippets.len());
    for snippet in snippets {
        assert!(example.contains(&squeezed(snippet)), "not in examples/guide.rs:\n{snippet}");
    }
    Ok(())
}
