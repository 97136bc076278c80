//! Writes a network in the format ONNX: the messages of protobuf that an exporter would write, for one layer.

use std::collections::BTreeMap;

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
        let gemm = node("Gemm", &["x", "weight", "bias"], "product");
        let activation = node(self.activation, &["product"], "pooled");
        let weight_file = self.weight_file.as_deref().map(|file| (file, 0));
        let bias_file = self.bias_file.as_deref().map(|file| (file, self.bias_offset()));
        let weight = tensor("weight", &[inputs, outputs], &self.weight, weight_file);
        let graph = Message::default()
            .message(1, &gemm)
            .message(1, &activation)
            .bytes(2, b"layer")
            .message(5, &weight)
            .message(5, &tensor("bias", &[outputs], &self.bias, bias_file))
            .message(11, &value("x", inputs))
            .message(12, &value("pooled", outputs));
        // The version of the format, and that of the operators.
        Message::default().number(1, 8).message(7, &graph).message(8, &Message::default().number(2, 17)).0
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

/// A weight, with its elements or with the file that has them.
fn tensor(name: &str, shape: &[usize], numbers: &[f32], file: Option<(&str, usize)>) -> Message {
    let dims = shape.iter().fold(Message::default(), |message, &size| message.number(1, size as u64));
    let named = dims.number(2, FLOAT).bytes(8, name.as_bytes());
    let Some((file, offset)) = file else { return named.bytes(9, &bytes_of(numbers)) };
    let entry =
        |key: &str, value: &str| Message::default().bytes(1, key.as_bytes()).bytes(2, value.as_bytes());
    let (offset, length) = (offset.to_string(), size_of_val(numbers).to_string());
    let entries = [entry("location", file), entry("offset", &offset), entry("length", &length)];
    entries.iter().fold(named, |message, entry| message.message(13, entry)).number(14, EXTERNAL)
}

/// The numbers of `f32` and of elements in another file in the format.
const FLOAT: u64 = 1;
const EXTERNAL: u64 = 1;

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn node(operator: &str, inputs: &[&str], output: &str) -> Message {
    let inputs = inputs.iter().fold(Message::default(), |node, input| node.bytes(1, input.as_bytes()));
    inputs.bytes(2, output.as_bytes()).bytes(4, operator.as_bytes())
}

/// An input or an output of samples with this many numbers.
fn value(name: &str, width: usize) -> Message {
    let samples = Message::default().bytes(2, b"N");
    let shape =
        Message::default().message(1, &samples).message(1, &Message::default().number(1, width as u64));
    let tensor = Message::default().number(1, FLOAT).message(2, &shape);
    Message::default().bytes(1, name.as_bytes()).message(2, &Message::default().message(1, &tensor))
}

/// A message of protobuf.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(mut self, field: u64, number: u64) -> Self {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Seven bits a byte, the lowest first.
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}
