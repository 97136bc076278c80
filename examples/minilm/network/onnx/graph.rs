//! BERT in the format ONNX, without its weights.
//!
//! What flows through it is `[rows, width, hidden]`. Operators are those of an exporter, so that ONNX Runtime finds the patterns that it
//! computes at once.

use tcx_library_examples::onnx::{Attribute, Dtype, Graph};

use crate::config::Config;

/// The inputs: token numbers `[rows, width]`, and the number of tokens of each row.
pub(super) const TOKENS: &str = "tokens";
pub(super) const LENGTHS: &str = "lengths";
/// The output: `[rows, hidden]`.
pub(super) const EMBEDDING: &str = "embedding";

/// A weight that the network needs, by its name in the file of weights.
pub(super) struct Weight {
    pub(super) name: String,
    /// The file has a matrix `[outputs, inputs]`, and the network multiplies by `[inputs, outputs]`.
    pub(super) is_transposed: bool,
}

/// The network, and the weights that are added to it.
pub(super) fn bert(config: &Config) -> (Graph, Vec<Weight>) {
    let mut bert = Bert { config, graph: Graph::new("bert"), weights: Vec::new() };
    bert.graph.input(TOKENS, Dtype::I64, &["rows", "width"]);
    bert.graph.input(LENGTHS, Dtype::I64, &["rows"]);
    let positions = bert.positions();
    let real = bert.real(&positions);
    let mut hidden = bert.embedded(&positions);
    let mask = bert.attention_mask(&real);
    for layer in 0..config.num_hidden_layers {
        hidden = bert.layer(&format!("encoder.layer.{layer}"), &hidden, &mask);
    }
    bert.mean_of_tokens(&hidden, &real);
    bert.graph.output(EMBEDDING, Dtype::F32, &["rows", &config.hidden_size.to_string()]);
    (bert.graph, bert.weights)
}

struct Bert<'a> {
    config: &'a Config,
    graph: Graph,
    weights: Vec<Weight>,
}

impl Bert<'_> {
    fn node(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.graph.node(operator, inputs, &[])
    }

    fn weight(&mut self, name: String, is_transposed: bool) -> String {
        self.weights.push(Weight { name: name.clone(), is_transposed });
        name
    }

    /// 0, 1, … up to the width: `[width]`.
    fn positions(&mut self) -> String {
        let shape = self.node("Shape", &[TOKENS]);
        let (zero, one) = (self.graph.int(0), self.graph.int(1));
        let width = self.node("Gather", &[&shape, &one]);
        self.node("Range", &[&zero, &width, &one])
    }

    /// Which tokens are no padding: `[rows, width]`.
    fn real(&mut self, positions: &str) -> String {
        let behind = self.graph.ints(&[1]);
        let lengths = self.node("Unsqueeze", &[LENGTHS, &behind]);
        self.node("Less", &[positions, &lengths])
    }

    fn embedded(&mut self, positions: &str) -> String {
        let mut row = |table: &str, at: &str| {
            let table = self.weight(format!("embeddings.{table}_embeddings.weight"), false);
            self.node("Gather", &[&table, at])
        };
        let (words, positions) = (row("word", TOKENS), row("position", positions));
        // Sentences are no pairs: all tokens are of the first type.
        let first = self.graph.int(0);
        let table = self.weight("embeddings.token_type_embeddings.weight".to_owned(), false);
        let kind = self.node("Gather", &[&table, &first]);
        let placed = self.node("Add", &[&words, &positions]);
        let sum = self.node("Add", &[&placed, &kind]);
        self.norm("embeddings.LayerNorm", &sum)
    }

    /// What is added to the attention scores: nothing for real tokens, minus infinity for padding: `[rows, 1, 1, width]`.
    fn attention_mask(&mut self, real: &str) -> String {
        let inside = self.graph.ints(&[1, 2]);
        let real = self.node("Unsqueeze", &[real, &inside]);
        let (nothing, minus_infinity) = (self.graph.float(0.), self.graph.float(f32::NEG_INFINITY));
        self.node("Where", &[&real, &nothing, &minus_infinity])
    }

    /// Self-attention, then two linear maps; each with its way round and its normalisation.
    fn layer(&mut self, path: &str, hidden: &str, mask: &str) -> String {
        let attended = self.attend(&format!("{path}.attention.self"), hidden, mask);
        let attended = self.linear(&format!("{path}.attention.output.dense"), &attended);
        let sum = self.node("Add", &[&attended, hidden]);
        let hidden = self.norm(&format!("{path}.attention.output.LayerNorm"), &sum);
        let wide = self.linear(&format!("{path}.intermediate.dense"), &hidden);
        let wide = self.gelu(&wide);
        let narrow = self.linear(&format!("{path}.output.dense"), &wide);
        let sum = self.node("Add", &[&narrow, &hidden]);
        self.norm(&format!("{path}.output.LayerNorm"), &sum)
    }

    fn attend(&mut self, path: &str, hidden: &str, mask: &str) -> String {
        let size = self.config.hidden_size / self.config.num_attention_heads;
        // 0 is the size that was there.
        let heads = self.graph.ints(&[0, 0, self.config.num_attention_heads, size]);
        let mut by_head = |map: &str, order: &[i64]| {
            let mapped = self.linear(&format!("{path}.{map}"), hidden);
            let heads = self.node("Reshape", &[&mapped, &heads]);
            self.graph.node("Transpose", &[&heads], &[("perm", Attribute::Ints(order))])
        };
        let (query, key) = (by_head("query", &[0, 2, 1, 3]), by_head("key", &[0, 2, 3, 1]));
        let value = by_head("value", &[0, 2, 1, 3]);
        let scale = self.graph.float((size as f32).sqrt());
        let product = self.node("MatMul", &[&query, &key]);
        let scaled = self.node("Div", &[&product, &scale]);
        let scores = self.node("Add", &[&scaled, mask]);
        let shares = self.graph.node("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
        let attended = self.node("MatMul", &[&shares, &value]);
        let order = [("perm", Attribute::Ints(&[0, 2, 1, 3]))];
        let attended = self.graph.node("Transpose", &[&attended], &order);
        let joined = self.graph.ints(&[0, 0, self.config.hidden_size]);
        self.node("Reshape", &[&attended, &joined])
    }

    fn linear(&mut self, path: &str, x: &str) -> String {
        let weight = self.weight(format!("{path}.weight"), true);
        let bias = self.weight(format!("{path}.bias"), false);
        let product = self.node("MatMul", &[x, &weight]);
        self.node("Add", &[&product, &bias])
    }

    fn norm(&mut self, path: &str, x: &str) -> String {
        let weight = self.weight(format!("{path}.weight"), false);
        let bias = self.weight(format!("{path}.bias"), false);
        let epsilon = ("epsilon", Attribute::Float(self.config.layer_norm_eps as f32));
        self.graph.node("LayerNormalization", &[x, &weight, &bias], &[("axis", Attribute::Int(-1)), epsilon])
    }

    /// `x · (1 + erf(x / √2)) / 2`
    fn gelu(&mut self, x: &str) -> String {
        let (root, one) = (self.graph.float(2_f32.sqrt()), self.graph.float(1.));
        let half = self.graph.float(0.5);
        let scaled = self.node("Div", &[x, &root]);
        let erf = self.node("Erf", &[&scaled]);
        let sum = self.node("Add", &[&erf, &one]);
        let product = self.node("Mul", &[x, &sum]);
        self.node("Mul", &[&product, &half])
    }

    /// The mean over the real tokens, scaled to length 1.
    fn mean_of_tokens(&mut self, hidden: &str, real: &str) {
        let (behind, width) = (self.graph.ints(&[2]), self.graph.ints(&[1]));
        let share = self.graph.node("Cast", &[real], &[("to", Attribute::Int(Dtype::F32 as i64))]);
        let share = self.node("Unsqueeze", &[&share, &behind]);
        let dropped = [("keepdims", Attribute::Int(0))];
        let real = self.node("Mul", &[hidden, &share]);
        let sum = self.graph.node("ReduceSum", &[&real, &width], &dropped);
        let count = self.graph.node("ReduceSum", &[&share, &width], &dropped);
        let mean = self.node("Div", &[&sum, &count]);
        let length = self.graph.node("ReduceL2", &[&mean], &[("axes", Attribute::Ints(&[1]))]);
        self.graph.named_node("Div", &[&mean, &length], &[], EMBEDDING);
    }
}
