//! The files that a model names: large weights can lie beside it.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use super::protobuf::{Fields, Malformed, Value};

/// Messages may contain messages, such as a graph in a node: no model is as deep as this.
const DEEPEST: usize = 100;

/// What a message is. The numbers of the fields are those of `onnx.proto`, which never change.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Training,
    Function,
    /// With `true`, that of the model itself.
    Graph(bool),
    Node,
    Attribute,
    /// With `true`, a weight of the graph of the model itself.
    Tensor(bool),
    SparseTensor,
}

impl Message {
    /// The message in a field; `None` if no file can be named in it.
    fn inner(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
            (Self::Model, 7) => Self::Graph(true),
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Training, 1 | 2) | (Self::Attribute, 6 | 11) => Self::Graph(false),
            (Self::Function, 7) | (Self::Graph(_), 1) => Self::Node,
            (Self::Function, 11) | (Self::Node, 5) => Self::Attribute,
            (Self::Graph(own), 5) => Self::Tensor(own),
            (Self::Graph(_), 15) | (Self::Attribute, 22 | 23) => Self::SparseTensor,
            (Self::Attribute, 5 | 10) | (Self::SparseTensor, 1 | 2) => Self::Tensor(false),
            _ => return None,
        })
    }
}

/// The files with weights of a model, as it names them: relative to its folder.
///
/// # Errors
///
/// Returns what is wrong with the model: the bytes are no model, or it names a file in a form, at a place or in a folder that
/// cannot be part of a fingerprint.
pub(super) fn locations(model: &[u8]) -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    let has_graph = Fields::of(model).any(|field| matches!(field, Ok((7, Value::Bytes(_)))));
    if model.get(4..8) == Some(b"ORTM") {
        return Err("is in the format ORT, whose files tcx cannot read: expected the format ONNX".to_owned());
    }
    if !has_graph {
        return Err(not_onnx());
    }
    walk(Message::Model, model, DEEPEST, &mut found)?;
    Ok(found)
}

fn not_onnx() -> String {
    "cannot be read as a network in the format ONNX".to_owned()
}

fn walk(message: Message, bytes: &[u8], levels: usize, found: &mut BTreeSet<String>) -> Result<(), String> {
    let levels = levels.checked_sub(1).ok_or_else(not_onnx)?;
    if let Message::Tensor(own) = message {
        return tensor(bytes, own, found);
    }
    for field in Fields::of(bytes) {
        let (field, value) = field.map_err(|Malformed| not_onnx())?;
        let Value::Bytes(inside) = value else { continue };
        // Compiled for one device; the compiled part may be in a file that an attribute names.
        if matches!((message, field), (Message::Node, 4)) && inside == b"EPContext" {
            return Err("contains an `EPContext`, which a tool has compiled for one device: expected the network that \
                        it was compiled from"
                .to_owned());
        }
        if let Some(inner) = message.inner(field) {
            walk(inner, inside, levels, found)?;
        }
    }
    Ok(())
}

/// The file of a tensor, if its elements are in one.
fn tensor(bytes: &[u8], own: bool, found: &mut BTreeSet<String>) -> Result<(), String> {
    let (mut is_external, mut name, mut named) = (false, "", Vec::new());
    for field in Fields::of(bytes) {
        match field.map_err(|Malformed| not_onnx())? {
            (8, Value::Bytes(text)) => name = std::str::from_utf8(text).unwrap_or_default(),
            (13, Value::Bytes(entry)) => named.extend(location(entry)?),
            (14, Value::Number(number)) => is_external = number == 1,
            _ => {}
        }
    }
    // A message in such a place can be written in several parts, which a reader joins: then the two are in different parts.
    if !own && (is_external || !named.is_empty()) {
        return Err(format!(
            "has elements of the constant `{name}`, which is in a node or in an inner graph, in another file: expected only weights \
             of the outer graph there; save the network again with its constants inside"
        ));
    }
    if !is_external {
        return Ok(());
    }
    match &named[..] {
        [location] => {
            check(location, name)?;
            found.insert((*location).to_owned());
            Ok(())
        }
        _ => {
            Err(format!("names {} files for the elements of the weight `{name}`: expected one", named.len()))
        }
    }
}

/// The path in an entry of a key and a value.
fn location(entry: &[u8]) -> Result<Option<&str>, String> {
    let (mut key, mut value) = (&b""[..], &b""[..]);
    for field in Fields::of(entry) {
        match field.map_err(|Malformed| not_onnx())? {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    if key != b"location" {
        return Ok(None);
    }
    std::str::from_utf8(value).map(Some).map_err(|_| not_onnx())
}

/// A file is below the folder of the model. `*/_ORT_MEM_ADDR_/*` is no file for ONNX Runtime, but an address in memory.
fn check(location: &str, weight: &str) -> Result<(), String> {
    let mut parts = Path::new(location).components();
    let is_below =
        !location.is_empty() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if is_below && !location.contains(['\\', '\0']) && !location.contains("_ORT_MEM_ADDR_") {
        return Ok(());
    }
    Err(format!(
        "names the file `{location}` for the weight `{weight}`: expected a file in the folder of the network"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2][..], &[u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    /// A field whose number needs two bytes in its tag.
    fn wide_field(number: u16, bytes: &[u8]) -> Vec<u8> {
        let tag = number << 3 | 2;
        let tag = [(tag & 0x7f) as u8 | 0x80, (tag >> 7) as u8];
        [&tag[..], &[u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn entry(key: &str, value: &str) -> Vec<u8> {
        field(13, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    }

    /// A weight whose elements are in this file.
    fn weight(location: &str) -> Vec<u8> {
        [field(8, b"w"), entry("location", location), entry("offset", "0"), vec![14 << 3, 1]].concat()
    }

    fn model(graph: &[u8]) -> Vec<u8> {
        field(7, graph)
    }

    #[test]
    fn the_files_of_a_graph_are_found_once() {
        let graph =
            [field(5, &weight("b.bin")), field(5, &weight("a.bin")), field(5, &weight("b.bin"))].concat();
        let found = locations(&model(&graph)).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a.bin", "b.bin"]);
        assert!(locations(&model(&field(5, &field(8, b"inside")))).unwrap().is_empty());
    }

    #[test]
    fn entries_of_a_weight_that_is_inside_name_no_file() {
        let inside = [field(8, b"w"), entry("location", "none.bin"), vec![14 << 3, 0]].concat();
        assert!(locations(&model(&field(5, &inside))).unwrap().is_empty());
    }

    #[test]
    fn files_outside_the_folder_are_refused() {
        for bad in ["", "/etc/passwd", "../w.bin", "a/../../w.bin", "*/_ORT_MEM_ADDR_/*", "..\\w.bin"] {
            let refused = locations(&model(&field(5, &weight(bad)))).unwrap_err();
            assert!(refused.contains("expected a file in the folder of the network"), "{bad}: {refused}");
        }
        assert!(locations(&model(&field(5, &weight("parts/w.bin")))).is_ok());
    }

    #[test]
    fn a_file_is_found_wherever_a_model_can_name_one() {
        let tensor = weight("w.bin");
        let split = entry("location", "w.bin");
        let inner = field(1, &field(5, &field(6, &field(5, &tensor))));
        for graph in [
            field(1, &field(5, &field(5, &tensor))),
            field(1, &field(5, &field(5, &split))),
            field(1, &field(5, &field(10, &tensor))),
            field(1, &field(5, &field(11, &field(5, &tensor)))),
            field(1, &field(5, &wide_field(22, &field(1, &tensor)))),
            field(15, &field(2, &tensor)),
            inner,
        ] {
            let refused = locations(&model(&graph)).unwrap_err();
            assert!(refused.contains("constant"), "{refused}");
        }
        let node = field(5, &field(5, &tensor));
        let own = model(&field(5, &field(8, b"w")));
        for outside in [wide_field(25, &field(7, &node)), wide_field(20, &field(1, &field(5, &tensor)))] {
            assert!(locations(&[own.clone(), outside].concat()).is_err());
        }
    }

    #[test]
    fn what_was_compiled_for_a_device_is_refused() {
        let refused = locations(&model(&field(1, &field(4, b"EPContext")))).unwrap_err();
        assert!(refused.contains("EPContext"), "{refused}");
    }

    #[test]
    fn other_files_are_no_models() {
        let mut deep = field(5, b"");
        for _ in 0..20 {
            deep = field(1, &field(5, &field(6, &deep)));
        }
        assert!(locations(&model(&deep)).is_ok());
        for bytes in [&b"no model"[..], b"", &[0x08, 0x07], b"\x18\0\0\0ORTM\0\0\0\0"] {
            assert!(locations(bytes).is_err());
        }
    }
}
