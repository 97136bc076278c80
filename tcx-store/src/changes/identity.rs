//! Change 0: what the rows of a module's folder are, and of which module.

use super::{Change, KIND_IDENTITY, decode, encode};
use crate::error::{Error, ErrorKind, Result};
use crate::schema::identity::Identity;
use crate::schema::key::KeyType;
use crate::schema::leaf::{DType, Leaf, LeafKind};
use crate::schema::spec::Spec;
use crate::sys::bytes::{Cursor, Random, put_count, put_string};
use crate::sys::clock;
use crate::sys::runtime;

/// The kinds of leaves.
const DENSE: u8 = 1;
const TEXT: u8 = 2;
const BYTES: u8 = 3;
const RAGGED: u8 = 4;
/// Precedes the kind of an optional leaf.
const OPTIONAL: u8 = 5;

/// What change 0 holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdentityChange {
    /// Distinguishes this folder from one that is removed and created again under the same name.
    pub(crate) instance: Random,
    /// Of the file.
    pub(crate) nonce: Random,
    pub(crate) created: u64,
    provenance: Vec<(String, String)>,
    module_id: String,
    key_type: u8,
    leaves: Vec<Leaf>,
    identity: Identity,
}

impl IdentityChange {
    /// A new folder for `spec`.
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            instance: Random::new(),
            nonce: Random::new(),
            created: now_millis(),
            provenance: spec.provenance.clone(),
            module_id: spec.module_id.clone(),
            key_type: spec.key_type as u8,
            leaves: spec.leaves.clone(),
            identity: spec.identity.clone(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend_from_slice(&self.instance.0);
        payload.extend_from_slice(&self.created.to_le_bytes());
        put_pairs(&mut payload, &self.provenance);
        payload.extend_from_slice(&self.digested());
        encode(0, KIND_IDENTITY, self.nonce, &payload)
    }

    /// Change 0 from the bytes of its file, or what is wrong with them.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Change { kind, nonce, payload } = decode(0, bytes)?;
        if kind != KIND_IDENTITY {
            return Err(format!("its kind is {kind}, change 0 is an identity (kind {KIND_IDENTITY})"));
        }
        let mut cursor = Cursor::new(payload);
        let change = read(&mut cursor, nonce).ok_or("its payload is malformed")?;
        if cursor.is_at_end() { Ok(change) } else { Err("bytes follow its payload".to_owned()) }
    }

    /// What a store of this folder is opened for, or why none can be.
    pub(crate) fn spec(&self) -> Result<Spec, String> {
        let key_type = KeyType::from_code(self.key_type)
            .ok_or_else(|| format!("its ids are {}", key_name(self.key_type)))?;
        let (leaves, identity) = (self.leaves.clone(), self.identity.clone());
        Spec::of_leaves(&self.module_id, key_type, leaves, identity, self.provenance.clone())
            .map_err(|error| error.to_string())
    }

    /// In the footer of every segment, so that a segment of another identity is recognised.
    pub(crate) fn digest(&self) -> String {
        blake3::hash(&self.digested()).to_hex().to_string()
    }

    /// The part that has to be the same.
    fn digested(&self) -> Vec<u8> {
        digested(&self.module_id, self.key_type, &self.leaves, &self.identity)
    }

    /// Whether this is the identity of `spec`.
    pub(crate) fn is_of(&self, spec: &Spec) -> bool {
        self.digest() == Self::new(spec).digest()
    }

    /// What differs between this cache and the code, one line each; empty if nothing does.
    pub(crate) fn difference(&self, spec: &Spec) -> String {
        if self.is_of(spec) {
            return String::new();
        }
        let mut text = String::new();
        let mut line = |what: String| {
            text.push_str("\n  ");
            text.push_str(&what);
        };
        if self.module_id != spec.module_id {
            line(format!("module id: {:?} in the cache, {:?} in the code", self.module_id, spec.module_id));
        }
        if self.key_type != spec.key_type as u8 {
            line(format!("ids: {} in the cache, {} in the code", key_name(self.key_type), spec.key_type));
        }
        schema_difference(&self.leaves, &spec.leaves, &mut line);
        text.push_str(&self.identity.difference(&spec.identity));
        if text.is_empty() { "\n  its columns".to_owned() } else { text }
    }
}

fn schema_difference(cache: &[Leaf], code: &[Leaf], line: &mut impl FnMut(String)) {
    let find =
        |leaves: &[Leaf], name: &str| leaves.iter().find(|leaf| leaf.name == name).map(Leaf::described);
    for leaf in cache {
        let (name, own) = (&leaf.name, leaf.described());
        match find(code, name) {
            Some(kind) if kind == own => {}
            Some(kind) => line(format!("field `{name}`: {own} in the cache, {kind} in the code")),
            None => line(format!("field `{name}`: {own} in the cache, absent from the code")),
        }
    }
    for leaf in code.iter().filter(|leaf| find(cache, &leaf.name).is_none()) {
        line(format!("field `{}`: absent from the cache, {} in the code", leaf.name, leaf.described()));
    }
    let names = |leaves: &[Leaf]| leaves.iter().map(|leaf| leaf.name.clone()).collect::<Vec<_>>();
    let (mut cache, mut code) = (names(cache), names(code));
    if cache != code {
        let order = format!(
            "order of the fields: {} in the cache, {} in the code",
            cache.join(", "),
            code.join(", ")
        );
        cache.sort();
        code.sort();
        if cache == code {
            line(order);
        }
    }
}

fn key_name(code: u8) -> String {
    KeyType::from_code(code).map_or_else(|| format!("of unknown type {code}"), |key| key.to_string())
}

/// The part of change 0 that its digest covers.
fn digested(module_id: &str, key_type: u8, leaves: &[Leaf], identity: &Identity) -> Vec<u8> {
    let mut out = Vec::new();
    put_string(&mut out, module_id);
    out.push(key_type);
    put_count(&mut out, leaves.len());
    for leaf in leaves {
        put_leaf(&mut out, leaf);
    }
    put_pairs(&mut out, identity.entries());
    out
}

impl Spec {
    /// The bytes that a [`digest`](Self::digest) covers, as change 0 has them. They contain no provenance.
    ///
    /// ```
    /// # use tcx_store::{ColumnType, Identity, KeyType, Spec};
    /// let spec = Spec::new("m_v1", KeyType::Int, &ColumnType::Text, Identity::default(), Vec::new())?;
    /// let same = Spec::from_identity_bytes(&spec.identity_bytes())?;
    /// assert_eq!((same.module_id(), same.digest()), ("m_v1", spec.digest()));
    /// # Ok::<(), tcx_store::Error>(())
    /// ```
    pub fn identity_bytes(&self) -> Vec<u8> {
        digested(&self.module_id, self.key_type as u8, &self.leaves, &self.identity)
    }

    /// The spec of these [bytes](Self::identity_bytes), without provenance.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are malformed, or were written by a program that knows more types.
    pub fn from_identity_bytes(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::of_kind(ErrorKind::Incompatible, "the identity is malformed");
        let mut cursor = Cursor::new(bytes);
        let digested = Digested::read(&mut cursor).ok_or_else(malformed)?;
        if !cursor.is_at_end() {
            return Err(malformed());
        }
        let key_type = KeyType::from_code(digested.key_type).ok_or_else(malformed)?;
        Self::of_leaves(&digested.module_id, key_type, digested.leaves, digested.identity, Vec::new())
    }

    /// The digest of the identity: 64 hex digits. Rows of modules with the same digest are interchangeable.
    pub fn digest(&self) -> String {
        blake3::hash(&self.identity_bytes()).to_hex().to_string()
    }
}

fn put_pairs(out: &mut Vec<u8>, pairs: &[(String, String)]) {
    put_count(out, pairs.len());
    for (name, value) in pairs {
        put_string(out, name);
        put_string(out, value);
    }
}

fn put_leaf(out: &mut Vec<u8>, leaf: &Leaf) {
    put_string(out, &leaf.name);
    if leaf.optional {
        out.push(OPTIONAL);
    }
    match &leaf.kind {
        LeafKind::Dense { dtype, shape } => put_tensor(out, DENSE, *dtype, shape),
        LeafKind::Ragged { dtype, shape } => put_tensor(out, RAGGED, *dtype, shape),
        LeafKind::Text => out.push(TEXT),
        LeafKind::Bytes => out.push(BYTES),
    }
}

fn put_tensor(out: &mut Vec<u8>, kind: u8, dtype: DType, shape: &[usize]) {
    out.extend_from_slice(&[kind, dtype as u8, shape.len() as u8]);
    out.extend(shape.iter().flat_map(|&dim| (dim as u64).to_le_bytes()));
}

fn read(cursor: &mut Cursor<'_>, nonce: Random) -> Option<IdentityChange> {
    let (instance, created, provenance) = (cursor.random()?, cursor.u64()?, read_pairs(cursor)?);
    let Digested { module_id, key_type, leaves, identity } = Digested::read(cursor)?;
    Some(IdentityChange { instance, nonce, created, provenance, module_id, key_type, leaves, identity })
}

/// What [`digested`] writes.
struct Digested {
    module_id: String,
    key_type: u8,
    leaves: Vec<Leaf>,
    identity: Identity,
}

impl Digested {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Some(Self {
            module_id: cursor.string()?,
            key_type: cursor.u8()?,
            leaves: (0..cursor.count(5)?).map(|_| read_leaf(cursor)).collect::<Option<_>>()?,
            identity: read_pairs(cursor)?.into_iter().collect(),
        })
    }
}

fn read_pairs(cursor: &mut Cursor<'_>) -> Option<Vec<(String, String)>> {
    (0..cursor.count(8)?).map(|_| Some((cursor.string()?, cursor.string()?))).collect()
}

fn read_leaf(cursor: &mut Cursor<'_>) -> Option<Leaf> {
    let name = cursor.string()?;
    let mut code = cursor.u8()?;
    let optional = code == OPTIONAL;
    if optional {
        code = cursor.u8()?;
    }
    let kind = match code {
        DENSE | RAGGED => {
            let dtype = DType::from_code(cursor.u8()?)?;
            let rank = cursor.u8()?;
            let shape = (0..rank).map(|_| cursor.u64()?.try_into().ok()).collect::<Option<_>>()?;
            if code == DENSE { LeafKind::Dense { dtype, shape } } else { LeafKind::Ragged { dtype, shape } }
        }
        TEXT => LeafKind::Text,
        BYTES => LeafKind::Bytes,
        _ => return None,
    };
    Some(Leaf { name, kind, optional })
}

pub(crate) fn now_millis() -> u64 {
    clock::millis(runtime::wall())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::leaf::{ColumnType, DYNAMIC_DIM, Field};

    fn spec(size: &str, field: &'static [Field]) -> Spec {
        let identity = [("size".to_owned(), size.to_owned())].into_iter().collect();
        Spec::new("m_v1", KeyType::Text, &ColumnType::Struct(field), identity, Vec::new()).unwrap()
    }

    const F32: Field = Field { name: "a", column: ColumnType::Dense { dtype: DType::F32, shape: &[3, 4] } };
    const F16: Field = Field { name: "a", column: ColumnType::Dense { dtype: DType::F16, shape: &[3, 4] } };
    const TEXT: Field = Field { name: "b", column: ColumnType::Text };
    const BYTES: Field = Field { name: "c", column: ColumnType::Bytes };
    const MAYBE: Field = Field { name: "d", column: ColumnType::Optional(&ColumnType::Bytes) };
    const RAGGED: Field = Field {
        name: "e",
        column: ColumnType::Ragged { dtype: DType::BF16, shape: &[DYNAMIC_DIM, 3, DYNAMIC_DIM] },
    };

    #[test]
    fn an_identity_is_read_back() {
        let change = IdentityChange::new(&spec("224i64", &[F32, TEXT, BYTES, MAYBE, RAGGED]));
        let bytes = change.encode();
        assert_eq!(IdentityChange::decode(&bytes), Ok(change));
        for at in 0..bytes.len() {
            IdentityChange::decode(&bytes[..at]).unwrap_err();
        }
    }

    #[test]
    fn the_digest_is_of_what_has_to_be_the_same() {
        let (a, again) = (IdentityChange::new(&spec("1", &[F32])), IdentityChange::new(&spec("1", &[F32])));
        assert_ne!(a.instance, again.instance);
        assert_eq!(a.digest(), again.digest());
        assert_ne!(a.digest(), IdentityChange::new(&spec("2", &[F32])).digest());
        assert_ne!(a.digest(), IdentityChange::new(&spec("1", &[F16])).digest());
    }

    #[test]
    fn an_optional_field_is_another_one() {
        const PRESENT: Field = Field { name: "d", column: ColumnType::Bytes };
        let (maybe, present) = (spec("1", &[MAYBE]), spec("1", &[PRESENT]));
        let difference = IdentityChange::new(&maybe).difference(&present);
        assert_eq!(difference, "\n  field `d`: optional bytes in the cache, bytes in the code");
    }

    #[test]
    fn a_difference_names_both_sides() {
        let cache = IdentityChange::new(&spec("224i64", &[F32, TEXT]));
        assert_eq!(cache.difference(&spec("224i64", &[F32, TEXT])), "");
        let difference = cache.difference(&spec("448i64", &[F16]));
        for line in [
            "`a`: f32 [3, 4] in the cache, f16 [3, 4] in the code",
            "`b`: String in the cache, absent from the code",
            "`size`: 224i64 in the cache, 448i64 in the code",
        ] {
            assert!(difference.contains(line), "{difference}");
        }
        let order = cache.difference(&spec("224i64", &[TEXT, F32]));
        assert!(order.contains("order of the fields: a, b in the cache, b, a in the code"), "{order}");
    }
}
