//! A network of one layer.

use std::collections::BTreeMap;

use super::{Dtype, Graph};

/// The layer `activation(x · weight + bias)`, with the input `x` of `[N, inputs]` and the output `pooled` of `[N, outputs]`.
#[derive(Clone, Debug)]
pub struct Layer {
    /// In row-major order: `[inputs, outputs]`.
    pub weight: Vec<f32>,
    /// `[outputs]`
    pub bias: Vec<f32>,
    /// The operator behind the product.
    pub activation: &'static str,
    /// A file for `weight`, relative to that of the network: large networks have their weights beside them.
    pub weight_file: Option<String>,
    /// A file for `bias`. If it is that of `weight`, the bias is behind the weight.
    pub bias_file: Option<String>,
}

impl Layer {
    /// With these weights, and `Tanh`.
    pub fn new(weight: Vec<f32>, bias: Vec<f32>) -> Self {
        Self { weight, bias, activation: "Tanh", weight_file: None, bias_file: None }
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let outputs = self.bias.len();
        let inputs = self.weight.len() / outputs;
        let mut graph = Graph::new("layer");
        graph.input("x", Dtype::F32, &["N", &inputs.to_string()]);
        let product = graph.node("Gemm", &["x", "weight", "bias"], &[]);
        graph.named_node(self.activation, &[&product], &[], "pooled");
        graph.output("pooled", Dtype::F32, &["N", &outputs.to_string()]);
        match &self.weight_file {
            Some(file) => graph.weight_in_file("weight", &[inputs, outputs], file, 0),
            None => graph.weight("weight", Dtype::F32, &[inputs, outputs], &bytes_of(&self.weight)),
        }
        match &self.bias_file {
            Some(file) => graph.weight_in_file("bias", &[outputs], file, self.bias_offset()),
            None => graph.weight("bias", Dtype::F32, &[outputs], &bytes_of(&self.bias)),
        }
        graph.to_bytes()
    }

    /// The names and the bytes of the files beside that of the network.
    pub fn files(&self) -> BTreeMap<&str, Vec<u8>> {
        let mut files = BTreeMap::<_, Vec<u8>>::new();
        for (file, numbers) in [(&self.weight_file, &self.weight), (&self.bias_file, &self.bias)] {
            if let Some(file) = file {
                files.entry(&**file).or_default().extend(bytes_of(numbers));
            }
        }
        files
    }

    /// Where the bias begins in its file.
    fn bias_offset(&self) -> usize {
        if self.bias_file == self.weight_file { size_of_val(&*self.weight) } else { 0 }
    }
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
