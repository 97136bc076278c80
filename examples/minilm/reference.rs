//! Agreement with the reference implementation.
//!
//! `reference/embeddings.json` holds what sentence-transformers, the package that the model was published for,
//! makes of a dozen sentences; `reference/make.py` computed it and says how. These tests need the model, which
//! `cargo xtask setup --model` provides. Without it they pass with a message, unless the variable `TCX_REQUIRE`
//! names `model` or `all`.

use std::path::PathBuf;

use serde::Deserialize;
use tch::Tensor;
use tcx::Extractor;

use crate::args::default_model;
use crate::model::{MiniLm, SIZE};

#[derive(Deserialize)]
struct Reference {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    text: String,
    embedding: Vec<f32>,
}

fn reference() -> Vec<Row> {
    let reference: Reference = serde_json::from_str(include_str!("reference/embeddings.json")).unwrap();
    reference.rows
}

/// The model's folder, if it is there.
fn model() -> Option<PathBuf> {
    let folder = default_model();
    if folder.join("model.safetensors").is_file() {
        return Some(folder);
    }
    let why = format!("{} has no model: `cargo xtask setup --model` provides it", folder.display());
    tcx_test_skips::skip("model", why);
    None
}

/// The cosine of rows of length 1.
fn cosine(a: &Tensor, b: &Tensor) -> f64 {
    a.dot(b).double_value(&[])
}

#[test]
fn embeddings_are_those_of_the_reference_implementation() {
    let Some(folder) = model() else { return };
    let reference = reference();
    assert!(reference.len() >= 12);
    let model = MiniLm::load(&folder).unwrap();
    let texts: Vec<String> = reference.iter().map(|row| row.text.clone()).collect();
    let found = model.forward(&texts).unwrap().embedding;
    assert_eq!(found.size(), [reference.len() as i64, SIZE as i64]);
    for (i, row) in reference.iter().enumerate() {
        let found = found.get(i as i64);
        let cosine = cosine(&found, &Tensor::from_slice(&row.embedding));
        assert!(cosine > 0.9999, "`{}`: cosine {cosine}", row.text);
        let length = cosine_with_itself(&found);
        assert!((length - 1.).abs() < 1e-5, "`{}`: length {length}", row.text);
    }
}

fn cosine_with_itself(row: &Tensor) -> f64 {
    cosine(row, row)
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let Some(folder) = model() else { return };
    let model = MiniLm::load(&folder).unwrap();
    let texts: Vec<String> = reference().into_iter().map(|row| row.text).collect();
    let together = model.forward(&texts).unwrap().embedding;
    let mut backwards = texts.clone();
    backwards.reverse();
    let backwards = model.forward(&backwards).unwrap().embedding.flip([0]);
    for (i, text) in texts.iter().enumerate() {
        let row = together.get(i as i64);
        let alone = model.forward(&vec![text.clone()]).unwrap().embedding.get(0);
        for other in [alone, backwards.get(i as i64)] {
            let difference = (&row - other).abs().max().double_value(&[]);
            assert!(difference < 1e-5, "`{text}`: {difference:e}");
        }
    }
}
