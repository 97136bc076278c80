//! Agreement with the reference implementation.
//!
//! `reference/embeddings.json` holds what sentence-transformers, the package that the model was published for,
//! makes of a dozen sentences; `reference/make.py` computed it and says how. These tests need the model, which
//! `cargo xtask setup --model` provides. Without it they pass with a message, unless the variable `TCX_REQUIRE`
//! names `model` or `all`.

use std::path::PathBuf;

use serde::Deserialize;
use tcx::{Extractor, TensorLike};

use crate::args::default_model;
use crate::model::{MiniLm, SIZE, dot, numbers};
#[cfg(all(feature = "candle", feature = "ort", feature = "tch"))]
use crate::{
    config::Config,
    model::MAX_TOKENS,
    network::{candle, onnx, torch},
    pieces::Pieces,
};

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

#[test]
fn embeddings_are_those_of_the_reference_implementation() {
    let Some(folder) = model() else { return };
    let reference = reference();
    assert!(reference.len() >= 12);
    let model = MiniLm::load(&folder).unwrap();
    let texts: Vec<String> = reference.iter().map(|row| row.text.clone()).collect();
    let found = model.forward(&texts).unwrap().embedding;
    assert_eq!(TensorLike::shape(&found), [reference.len(), SIZE]);
    for (found, row) in numbers(&found).unwrap().iter().zip(&reference) {
        // Half of what two libraries may differ in.
        let difference = difference(found, &row.embedding);
        assert!(difference < 5e-5, "`{}`: {difference:e}", row.text);
        let cosine = dot(found, &row.embedding);
        assert!(cosine > 0.9999, "`{}`: cosine {cosine}", row.text);
        let length = dot(found, found);
        assert!((length - 1.).abs() < 1e-5, "`{}`: length {length}", row.text);
    }
}

/// The largest difference of two numbers in one place.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0., f32::max)
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let Some(folder) = model() else { return };
    let model = MiniLm::load(&folder).unwrap();
    let texts: Vec<String> = reference().into_iter().map(|row| row.text).collect();
    let rows = |texts: Vec<String>| numbers(&model.forward(&texts).unwrap().embedding).unwrap();
    let together = rows(texts.clone());
    let mut backwards = rows(texts.iter().rev().cloned().collect());
    backwards.reverse();
    for (i, text) in texts.iter().enumerate() {
        let alone = rows(vec![text.clone()]);
        for other in [&alone[0], &backwards[i]] {
            let difference = difference(&together[i], other);
            assert!(difference < 1e-5, "`{text}`: {difference:e}");
        }
    }
}

/// One network in three libraries.
#[cfg(all(feature = "candle", feature = "ort", feature = "tch"))]
#[test]
fn the_libraries_agree_on_every_embedding() {
    let Some(folder) = model() else { return };
    let (config, weights) = (Config::read(&folder).unwrap(), folder.join("model.safetensors"));
    let tch = torch::load(&weights, &config).unwrap();
    let candle = candle::load(&weights, &config).unwrap();
    let onnx = onnx::load(&weights, &config).unwrap();
    // So candle finds what tch has computed: the rest of the identity is the same code.
    assert_eq!(candle.fingerprint(), tch.fingerprint());
    // The network in the format ONNX is another file, with its operators in it.
    assert_ne!(onnx.fingerprint(), tch.fingerprint());

    let texts: Vec<String> = reference().into_iter().map(|row| row.text).collect();
    let pieces = Pieces::load(&folder.join("tokenizer.json"), MAX_TOKENS).unwrap();
    for (text, tokens) in texts.iter().zip(pieces.encode(&texts).unwrap()) {
        let (lengths, width) = ([tokens.len() as i64], tokens.len());
        let tch = torch::embed(&torch::share(&tch), &tokens, &lengths, width).unwrap();
        let candle = candle::embed(candle::share(&candle), &tokens, &lengths, width).unwrap();
        let onnx = onnx::embed(onnx::share(&onnx), &tokens, &lengths, width).unwrap();
        let rows = [numbers(&tch), numbers(&candle), numbers(&onnx)].map(|rows| rows.unwrap().concat());
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let difference = difference(&rows[a], &rows[b]);
            assert!(difference < 1e-4, "`{text}`: {difference:e}");
        }
    }
}
