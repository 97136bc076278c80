//! What a table is opened for: id, type of the ids, columns, identity.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tcx_store::{DType, DYNAMIC_DIM, Identity, Inspection, Leaf, LeafKind};

use crate::interop::error::{OrRaise, invalid, of_kind};
use crate::schema::keys::{key_name, key_type};

/// A column: its name, `dense`, `ragged`, `text` or `bytes`, the dtype, the shape with `None` for the dimensions that differ, and whether
/// samples may be without a value.
type LeafParts = (String, String, Option<String>, Vec<Option<usize>>, bool);

const DTYPES: [DType; 10] = [
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::Bool,
];

fn dtype(name: Option<&str>) -> PyResult<DType> {
    let found = DTYPES.into_iter().find(|dtype| Some(dtype.name()) == name);
    found.ok_or_else(|| of_kind("InvalidOutput", &format!("tcx has no dtype `{}`", name.unwrap_or("None"))))
}

fn leaf((name, kind, of, shape, optional): LeafParts) -> PyResult<Leaf> {
    let shape: Vec<usize> = shape.into_iter().map(|dim| dim.unwrap_or(DYNAMIC_DIM)).collect();
    let kind = match kind.as_str() {
        "dense" => LeafKind::Dense { dtype: dtype(of.as_deref())?, shape },
        "ragged" => LeafKind::Ragged { dtype: dtype(of.as_deref())?, shape },
        "text" => LeafKind::Text,
        "bytes" => LeafKind::Bytes,
        other => return Err(invalid(format!("tcx has no column of kind `{other}`"))),
    };
    Ok(Leaf { name, kind, optional })
}

fn parts(leaf: &Leaf) -> LeafParts {
    let dims = |shape: &[usize]| shape.iter().map(|&dim| (dim != DYNAMIC_DIM).then_some(dim)).collect();
    let (kind, shape) = match &leaf.kind {
        LeafKind::Dense { shape, .. } => ("dense", dims(shape)),
        LeafKind::Ragged { shape, .. } => ("ragged", dims(shape)),
        LeafKind::Text => ("text", Vec::new()),
        _ => ("bytes", Vec::new()),
    };
    let dtype = leaf.kind.dtype().map(|dtype| dtype.name().to_owned());
    (leaf.name.clone(), kind.to_owned(), dtype, shape, leaf.optional)
}

/// The id of a table, the type of its ids, its columns and its identity.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Spec(tcx_store::Spec);

impl Spec {
    pub(crate) fn of(spec: tcx_store::Spec) -> Self {
        Self(spec)
    }

    pub(crate) fn get(&self) -> &tcx_store::Spec {
        &self.0
    }
}

#[pymethods]
impl Spec {
    #[new]
    fn new(
        module: &str,
        ids: &str,
        leaves: Vec<LeafParts>,
        identity: Vec<(String, String)>,
        provenance: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let leaves = leaves.into_iter().map(leaf).collect::<PyResult<_>>()?;
        let identity = Identity::from_iter(identity);
        tcx_store::Spec::of_leaves(module, key_type(ids)?, leaves, identity, provenance).or_raise().map(Self)
    }

    /// That of an existing folder.
    #[staticmethod]
    fn read(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let inspected = py.detach(|| Inspection::open(&folder).map(|module| module.spec().clone()));
        inspected.or_raise().map(Self)
    }

    /// What [`bytes`](Self::bytes) has returned, of this or another process.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        tcx_store::Spec::from_identity_bytes(bytes).or_raise().map(Self)
    }

    /// The whole of it but the provenance, for another process.
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.identity_bytes())
    }

    #[getter]
    fn module(&self) -> &str {
        self.0.module_id()
    }

    #[getter]
    fn ids(&self) -> &'static str {
        key_name(self.0.key_type())
    }

    #[getter]
    fn leaves(&self) -> Vec<LeafParts> {
        self.0.leaves().iter().map(parts).collect()
    }

    #[getter]
    fn identity(&self) -> Vec<(String, String)> {
        self.0.identity().entries().to_vec()
    }

    #[getter]
    fn provenance(&self) -> Vec<(String, String)> {
        self.0.provenance().to_vec()
    }
}
