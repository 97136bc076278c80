//! What is written is read back: by arrow's own reader and by the store's, from batches and from segments.

mod chunks;
pub(crate) mod forged;
mod layout;
mod written;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_data::ArrayData;
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, SchemaRef};

use super::metadata::Metadata;
use super::*;
use crate::changes::{Needs, Seen};
use crate::computed::RowBatch;
use crate::segment::memory_cache::MemoryCache;
use crate::storage::{LocalStorage, Storage, System};
use crate::sys::bytes::Random;
use crate::sys::checksum::{BlockChecksums, CHECKSUM_BLOCK, checksum};
use crate::{
    Column, ColumnType, Compression, DType, DYNAMIC_DIM, Field, KeyType, Keys, Leaf, LeafKind,
    MemoryCachePolicy, ReadMode,
};

const fn dense(name: &'static str, dtype: DType, shape: &'static [usize]) -> Field {
    Field { name, column: ColumnType::Dense { dtype, shape } }
}

const fn optional(name: &'static str, column: &'static ColumnType) -> Field {
    Field { name, column: ColumnType::Optional(column) }
}

const TOKENS: ColumnType = ColumnType::Ragged { dtype: DType::F32, shape: &[DYNAMIC_DIM, 3] };
const MAPS: ColumnType = ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2, DYNAMIC_DIM] };

/// Every dtype, several shapes, text, bytes, tensors that differ in size, what not every row has, and rows that are long enough to be written as they lie.
const OUTPUT: ColumnType = ColumnType::Struct(&[
    dense("f16", DType::F16, &[]),
    dense("bf16", DType::BF16, &[3]),
    dense("f32", DType::F32, &[2, 3]),
    dense("f64", DType::F64, &[]),
    dense("i8", DType::I8, &[1]),
    dense("i16", DType::I16, &[]),
    dense("i32", DType::I32, &[5]),
    dense("i64", DType::I64, &[]),
    dense("u8", DType::U8, &[70_000]),
    dense("bool", DType::Bool, &[]),
    dense("mask", DType::Bool, &[7]),
    Field { name: "bytes", column: ColumnType::Bytes },
    Field { name: "tokens", column: TOKENS },
    Field { name: "maps", column: MAPS },
    optional("number", &ColumnType::Dense { dtype: DType::F64, shape: &[] }),
    optional("vector", &ColumnType::Dense { dtype: DType::BF16, shape: &[4] }),
    optional("words", &ColumnType::Text),
    optional("image", &ColumnType::Bytes),
    optional("pieces", &TOKENS),
    Field { name: "text", column: ColumnType::Text },
]);
const KEY_TYPES: [KeyType; 3] = [KeyType::Text, KeyType::Int, KeyType::Bytes];
const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];
pub(super) const INSTANCE: Random = Random([9; 16]);

/// A key and its view: what its row holds follows from them.
type Id = (i64, u32);

fn key(key_type: KeyType, id: i64) -> Vec<u8> {
    match key_type {
        KeyType::Int => id.to_le_bytes().to_vec(),
        _ => format!("sample {id} ").repeat(1 + id as usize % 3).into_bytes(),
    }
}

fn seed(leaf: &Leaf, (id, view): Id) -> usize {
    let name = leaf.name.strip_suffix(".sizes").unwrap_or(&leaf.name);
    (id * 31 + i64::from(view)) as usize + name.len()
}

/// Views of 7 have every value.
fn is_present(leaf: &Leaf, id: Id) -> bool {
    !leaf.optional || !seed(leaf, id).is_multiple_of(3) || id.1 == 7
}

fn row(leaf: &Leaf, id: Id) -> Vec<u8> {
    let seed = seed(leaf, id);
    if !is_present(leaf, id) {
        return vec![0; leaf.kind.width().unwrap_or(0)];
    }
    match &leaf.kind {
        LeafKind::Dense { .. } if leaf.name == "maps.sizes" => {
            [1, (seed % 5) as i64].map(i64::to_le_bytes).concat()
        }
        LeafKind::Bytes => vec![255; seed % 4],
        LeafKind::Ragged { .. } => {
            let unit = leaf.kind.unit() * leaf.kind.element_bytes();
            (0..unit * (seed % 5)).map(|i| (seed * 7 + i) as u8).collect()
        }
        LeafKind::Text => "é".repeat(seed % 5).into_bytes(),
        LeafKind::Dense { dtype: DType::Bool, shape } => {
            (0..shape.iter().product()).map(|i: usize| ((seed + i) % 2) as u8).collect()
        }
        kind => (0..kind.width().unwrap()).map(|i| (seed * 7 + i) as u8).collect(),
    }
}

/// A folder of segments of one key type.
pub(super) struct Folder {
    dir: tempfile::TempDir,
    pub(super) storage: LocalStorage<System>,
    key_type: KeyType,
    pub(super) leaves: Vec<Leaf>,
    pub(super) schema: SchemaRef,
    compression: Compression,
}

impl Folder {
    pub(super) fn new(key_type: KeyType) -> Self {
        Self::compressed(key_type, Compression::None)
    }

    /// One whose segments are compressed.
    fn compressed(key_type: KeyType, compression: Compression) -> Self {
        Self { compression, ..Self::with(key_type, OUTPUT.leaves()) }
    }

    /// One whose rows are short.
    pub(super) fn of_short_rows(key_type: KeyType) -> Self {
        Self::with(key_type, OUTPUT.leaves().into_iter().filter(|leaf| leaf.name != "u8").collect())
    }

    fn with(key_type: KeyType, leaves: Vec<Leaf>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().to_owned(), System);
        let schema = arrow_schema(key_type, &leaves);
        Self { dir, storage, key_type, leaves, schema, compression: Compression::None }
    }

    pub(super) fn batch(&self, ids: Range<i64>, view: u32) -> RowBatch {
        let keys: Vec<Vec<u8>> = ids.clone().map(|id| key(self.key_type, id)).collect();
        let keys = match self.key_type {
            KeyType::Int => Keys::ints(ids.clone(), view),
            KeyType::Bytes => Keys::bytes(&keys, view).unwrap(),
            KeyType::Text => Keys::text(keys.iter().map(|key| str::from_utf8(key).unwrap()), view).unwrap(),
        };
        let column = |leaf: &Leaf| {
            let rows: Vec<Vec<u8>> = ids.clone().map(|id| row(leaf, (id, view))).collect();
            let column = match leaf.kind {
                LeafKind::Text => Column::text(rows.iter().map(|row| str::from_utf8(row).unwrap())),
                LeafKind::Dense { .. } => Column::dense(&rows.concat()),
                _ => {
                    let ends = rows.iter().scan(0, |end, row| {
                        *end += row.len();
                        Some(*end)
                    });
                    Column::varying(rows.concat(), ends)
                }
            };
            let present = ids.clone().map(|id| is_present(leaf, (id, view)));
            if leaf.optional { column.optional(present) } else { column }
        };
        RowBatch::new(keys, self.leaves.iter().map(column).collect(), &self.leaves, Seen::default(), None)
            .unwrap()
    }

    pub(super) fn write(&self, pieces: &[Piece<'_>], inputs: &[SegmentName]) -> io::Result<SegmentName> {
        let header = SegmentHeader {
            schema: &self.schema,
            leaves: &self.leaves,
            key_type: self.key_type,
            identity: "ab",
            instance: INSTANCE,
            needs: Needs { base: 3, commit: None },
            born: 5,
            youngest: (!inputs.is_empty()).then_some(5),
            inputs: inputs.to_vec(),
            ancestors: Ancestors::default(),
            compression: self.compression,
        };
        let written = write_segment(&self.storage, &header, pieces)?;
        let (name, bytes) = (written.name, written.bytes);
        written.publish()?;
        assert_eq!(self.path(name).metadata()?.len(), bytes);
        Ok(name)
    }

    pub(super) fn path(&self, name: SegmentName) -> std::path::PathBuf {
        self.dir.path().join(name.to_string())
    }

    pub(super) fn open(&self, name: SegmentName) -> Segment {
        self.try_open(name).unwrap()
    }

    pub(super) fn try_open(&self, name: SegmentName) -> Result<Segment, SegmentError> {
        self.open_from(&self.storage, name)
    }

    fn open_from(&self, storage: &dyn Storage, name: SegmentName) -> Result<Segment, SegmentError> {
        let file = storage.open(&name.to_string()).unwrap();
        let columns = (&self.schema, &self.leaves.clone().into());
        Segment::open(
            file,
            &Arc::new(MemoryCache::new(0, MemoryCachePolicy::Lru)),
            name,
            columns,
            "ab",
            INSTANCE,
        )
    }

    /// The same rows as in `name`, in record batches of so many rows, as another writer may have made them.
    fn in_batches_of(&self, name: SegmentName, rows: usize) -> SegmentName {
        let whole = &record_batches(&self.path(name))[0];
        let options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5).unwrap();
        let mut file = FileWriter::try_new_with_options(Vec::new(), &self.schema, options).unwrap();
        for start in (0..whole.num_rows()).step_by(rows) {
            file.write(&whole.slice(start, rows.min(whole.num_rows() - start))).unwrap();
        }
        let body = file.get_ref().len();
        let mut checksums = BlockChecksums::new(CHECKSUM_BLOCK);
        checksums.update(file.get_ref());
        let metadata = Metadata {
            identity: "ab".to_owned(),
            instance: INSTANCE,
            base: 3,
            commit: None,
            born: 5,
            youngest: None,
            rows: whole.num_rows(),
            batch_rows: rows,
            view: None,
            inputs: Vec::new(),
            ancestors: Ancestors::default(),
            codec: None,
            chunk_rows: None,
            checksums: crate::segment::checksums::BodyChecksums::InFooter(checksums.finish()),
        };
        metadata.entries().into_iter().for_each(|(name, value)| file.write_metadata(name, value));
        let bytes = file.into_inner().unwrap();
        let name = SegmentName { random: Random::new(), tail: checksum(&bytes[body..]) };
        File::create(self.path(name)).unwrap().write_all(&bytes).unwrap();
        name
    }

    /// Both readers find these rows, in this order.
    pub(super) fn check(&self, name: SegmentName, ids: &[Id]) {
        let segment = self.open(name);
        let reading = LocalStorage::new(self.dir.path().to_owned(), System).reading(ReadMode::Pread);
        let read = self.open_from(&reading, name).unwrap();
        assert_eq!(segment.judge_all(), Verdict::Sound);
        let batches = record_batches(&self.path(name));
        assert_eq!(batches[0].schema(), self.schema);
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        let rows: Vec<_> = rows.collect();
        assert_eq!((segment.rows(), rows.len()), (ids.len(), ids.len()));
        for (number, (&id, (batch, at))) in ids.iter().zip(rows).enumerate() {
            let key = key(self.key_type, id.0);
            assert_eq!(segment.key(number), Some((Cow::Borrowed(&key[..]), id.1)), "row {number}");
            assert_eq!(value(batch.column(0), at), key, "row {number}");
            assert_eq!(value(batch.column(1), at), id.1.to_le_bytes(), "row {number}");
            assert_eq!(read.key(number), segment.key(number), "row {number}");
            let expected = self.leaves.iter().map(|leaf| (row(leaf, id).into(), is_present(leaf, id)));
            assert!(read.read_row(number) == Some(expected.collect()), "row {number}, read");
            for (leaf, column) in self.leaves.iter().zip(2..) {
                let expected = row(leaf, id);
                let found = leaf_of(&segment, column - 2, number);
                assert!(found.as_ref() == Some(&expected), "{} of row {number}", leaf.name);
                assert!(value(batch.column(column), at) == expected, "{} of row {number}", leaf.name);
                let present = is_present(leaf, id);
                assert_eq!(
                    segment.is_present(column - 2, number),
                    Some(present),
                    "{} of row {number}",
                    leaf.name
                );
                assert_eq!(batch.column(column).is_valid(at), present, "{} of row {number}", leaf.name);
            }
        }
    }
}

/// A row of a leaf, wherever it lies.
fn leaf_of(segment: &Segment, leaf: usize, row: usize) -> Option<Vec<u8>> {
    if segment.is_direct() {
        return segment.leaf(leaf, row).map(<[u8]>::to_vec);
    }
    let (rows, number) = segment.packed_rows(row)?;
    segment.unpack(rows)?.value(leaf, number).map(|(bytes, _)| bytes.to_vec())
}

fn record_batches(path: &Path) -> Vec<RecordBatch> {
    FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
}

/// The bytes of a value as arrow reads it.
fn value(array: &ArrayRef, row: usize) -> Vec<u8> {
    match array.data_type() {
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes().to_vec(),
        DataType::LargeBinary => array.as_binary::<i64>().value(row).to_vec(),
        DataType::LargeList(_) => numbers(&array.as_list::<i64>().value(row).to_data()),
        DataType::FixedSizeList(..) => numbers(&array.as_fixed_size_list().value(row).to_data()),
        _ => numbers(&array.slice(row, 1).to_data()),
    }
}

fn numbers(data: &ArrayData) -> Vec<u8> {
    let width = data.data_type().primitive_width().unwrap();
    data.buffers()[0][data.offset() * width..][..data.len() * width].to_vec()
}

fn every_kind() -> impl Iterator<Item = (KeyType, Compression)> {
    KEY_TYPES.into_iter().flat_map(|key_type| COMPRESSIONS.map(|compression| (key_type, compression)))
}

pub(super) fn ids(rows: impl IntoIterator<Item = i64>, view: u32) -> impl Iterator<Item = Id> {
    rows.into_iter().map(move |id| (id, view))
}
