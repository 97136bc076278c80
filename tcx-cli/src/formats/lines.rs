//! Files with a line for each row: CSV, and JSON Lines.

use std::fs::File;
use std::io::{BufWriter, Write};

use serde::Serializer;
use serde::ser::SerializeMap;
use tcx_store::Row;

use super::Sink;
use crate::failure::{Code, Failure, Result};
use crate::formats::plain::{Plain, id, unwritable};
use crate::formats::selection::{Chosen, Selection};
use crate::text::ids;

/// Writes CSV: a line with the names of the columns, then the rows.
pub(crate) struct Csv {
    selection: Selection,
    writer: csv::Writer<BufWriter<File>>,
}

impl Csv {
    pub(crate) fn create(file: BufWriter<File>, selection: Selection) -> Result<Self> {
        let mut writer = csv::Writer::from_writer(file);
        let names = selection.outputs.iter().map(Chosen::name);
        let names = ["id".to_owned(), "view".to_owned()].into_iter().chain(names);
        writer.write_record(names).map_err(|error| failed(&error))?;
        Ok(Self { selection, writer })
    }
}

fn failed(error: &csv::Error) -> Failure {
    Failure::new(Code::Io, error.to_string())
}

impl Sink for Csv {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<()> {
        for row in rows {
            let mut record = vec![ids::show(self.selection.key_type, row.key), row.view.to_string()];
            for position in 0..self.selection.outputs.len() {
                record.push(Plain::of(&self.selection, position, row)?.field()?);
            }
            self.writer.write_record(&record).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let file = self.writer.into_inner().map_err(|error| Failure::from(error.into_error()))?;
        sync(file)
    }
}

/// Writes JSON Lines: an object for each row.
pub(crate) struct JsonLines {
    selection: Selection,
    names: Vec<String>,
    file: BufWriter<File>,
}

impl JsonLines {
    pub(crate) fn new(file: BufWriter<File>, selection: Selection) -> Self {
        let names = selection.outputs.iter().map(Chosen::name).collect();
        Self { selection, names, file }
    }

    fn row(&mut self, row: &Row<'_>) -> Result<()> {
        let values = (0..self.names.len()).map(|position| Plain::of(&self.selection, position, row));
        let values = values.collect::<Result<Vec<_>>>()?;
        let mut json = serde_json::Serializer::new(&mut self.file);
        let mut write = || {
            let mut object = json.serialize_map(Some(values.len() + 2))?;
            object.serialize_entry("id", &id(&self.selection, row))?;
            object.serialize_entry("view", &row.view)?;
            self.names
                .iter()
                .zip(&values)
                .try_for_each(|(name, value)| object.serialize_entry(name, value))?;
            object.end()
        };
        write().map_err(|error: serde_json::Error| unwritable(&error))?;
        Ok(self.file.write_all(b"\n")?)
    }
}

impl Sink for JsonLines {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<()> {
        rows.iter().try_for_each(|row| self.row(row))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        sync(self.file)
    }
}

fn sync(file: BufWriter<File>) -> Result<()> {
    Ok(file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?)
}
