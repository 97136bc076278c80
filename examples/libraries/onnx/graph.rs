//! Networks of any operators. The numbers of the fields are those of `onnx.proto`.

use super::message::Message;

/// The version of the operators.
const OPERATORS: u64 = 17;
/// The version of the format that has these operators.
const FORMAT: u64 = 8;
/// The elements of a weight are in another file.
const EXTERNAL: u64 = 1;

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dtype {
    /// `f32`
    F32 = 1,
    /// `i64`
    I64 = 7,
}

/// A setting of an operator.
#[derive(Clone, Copy, Debug)]
pub enum Attribute<'a> {
    /// A number with a fraction.
    Float(f32),
    /// A whole number.
    Int(i64),
    /// Whole numbers.
    Ints(&'a [i64]),
}

/// A network: its operators in an order in which each finds its inputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    message: Message,
    /// The number of values with names that were made here.
    unnamed: usize,
}

impl Graph {
    /// Of this name.
    pub fn new(name: &str) -> Self {
        Self { message: Message::default().bytes(2, name.as_bytes()), unnamed: 0 }
    }

    /// An input. A size is a number, or the name of a size that each batch decides.
    pub fn input(&mut self, name: &str, dtype: Dtype, shape: &[&str]) {
        self.push(11, &value(name, dtype, shape));
    }

    /// An output, which an operator computes.
    pub fn output(&mut self, name: &str, dtype: Dtype, shape: &[&str]) {
        self.push(12, &value(name, dtype, shape));
    }

    /// A weight. Its elements are in row-major order, little-endian.
    pub fn weight(&mut self, name: &str, dtype: Dtype, shape: &[usize], elements: &[u8]) {
        self.push(5, &tensor(name, dtype, shape).bytes(9, elements));
    }

    /// A weight whose elements are in a file, from `offset` on. The file is relative to that of the network.
    pub fn weight_in_file(&mut self, name: &str, shape: &[usize], file: &str, offset: usize) {
        let length = (shape.iter().product::<usize>() * size_of::<f32>()).to_string();
        let offset = offset.to_string();
        let entries = [("location", file), ("offset", &*offset), ("length", &*length)];
        let entry = |message: Message, (key, value): (&str, &str)| {
            message.message(13, &Message::default().bytes(1, key.as_bytes()).bytes(2, value.as_bytes()))
        };
        let tensor = entries.into_iter().fold(tensor(name, Dtype::F32, shape), entry);
        self.push(5, &tensor.number(14, EXTERNAL));
    }

    /// A number that operators use. Returns its name.
    pub fn float(&mut self, number: f32) -> String {
        let name = self.unnamed();
        self.weight(&name, Dtype::F32, &[], &number.to_le_bytes());
        name
    }

    /// A whole number that operators use. Returns its name.
    pub fn int(&mut self, number: i64) -> String {
        let name = self.unnamed();
        self.weight(&name, Dtype::I64, &[], &number.to_le_bytes());
        name
    }

    /// A list of whole numbers that operators use: axes or sizes. Returns its name.
    pub fn ints(&mut self, numbers: &[i64]) -> String {
        let name = self.unnamed();
        let elements: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.weight(&name, Dtype::I64, &[numbers.len()], &elements);
        name
    }

    /// An operator. Returns the name of its output.
    pub fn node(&mut self, operator: &str, inputs: &[&str], attributes: &[(&str, Attribute<'_>)]) -> String {
        let output = self.unnamed();
        self.named_node(operator, inputs, attributes, &output);
        output
    }

    /// An operator whose output has this name.
    pub fn named_node(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
        output: &str,
    ) {
        let inputs = inputs.iter().fold(Message::default(), |node, input| node.bytes(1, input.as_bytes()));
        let node = inputs.bytes(2, output.as_bytes()).bytes(4, operator.as_bytes());
        let node =
            attributes.iter().fold(node, |node, (name, value)| node.message(5, &attribute(name, *value)));
        self.push(1, &node);
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let model = Message::default().number(1, FORMAT).message(7, &self.message);
        model.message(8, &Message::default().number(2, OPERATORS)).0
    }

    fn push(&mut self, field: u64, message: &Message) {
        self.message = std::mem::take(&mut self.message).message(field, message);
    }

    fn unnamed(&mut self) -> String {
        self.unnamed += 1;
        format!("value_{}", self.unnamed)
    }
}

/// A weight without its elements.
fn tensor(name: &str, dtype: Dtype, shape: &[usize]) -> Message {
    let dims = shape.iter().fold(Message::default(), |message, &size| message.number(1, size as u64));
    dims.number(2, dtype as u64).bytes(8, name.as_bytes())
}

fn value(name: &str, dtype: Dtype, shape: &[&str]) -> Message {
    let size = |size: &&str| match size.parse() {
        Ok(number) => Message::default().number(1, number),
        Err(_) => Message::default().bytes(2, size.as_bytes()),
    };
    let shape = shape.iter().map(size).fold(Message::default(), |shape, size| shape.message(1, &size));
    let tensor = Message::default().number(1, dtype as u64).message(2, &shape);
    Message::default().bytes(1, name.as_bytes()).message(2, &Message::default().message(1, &tensor))
}

fn attribute(name: &str, value: Attribute<'_>) -> Message {
    let named = Message::default().bytes(1, name.as_bytes());
    // Negative numbers are written as those that have the same 64 bits.
    match value {
        Attribute::Float(number) => named.float(2, number).number(20, 1),
        Attribute::Int(number) => named.number(3, number.cast_unsigned()).number(20, 2),
        Attribute::Ints(numbers) => {
            let named = numbers.iter().fold(named, |named, number| named.number(8, number.cast_unsigned()));
            named.number(20, 7)
        }
    }
}
