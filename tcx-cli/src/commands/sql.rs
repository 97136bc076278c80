//! `tcx sql`: queries the rows of a cache.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde::ser::{Error as _, SerializeStruct};
use serde::{Serialize, Serializer};
use tcx_sql::{Answer, Database, Error, Value};

use crate::cache::store::StoreCache;
use crate::cache::{self, Hidden};
use crate::console::output::{Output, Report, Table};
use crate::failure::{Code, Failure, Result, Verdict};
use crate::text::human;
use crate::text::ids;
use crate::text::values::{Number, listed, short};

/// The characters of a value that the table shows; of text, only on a terminal and beside other columns.
const ROOM: usize = 60;

/// The answer of a query, whose rows are read while they are printed.
struct Answered<'a> {
    answer: RefCell<Answer<'a>>,
    /// The error that ended the rows.
    failed: RefCell<Option<Failure>>,
}

pub(super) fn run(dir: &Path, query: &str, output: &Output) -> Result<Verdict> {
    match StoreCache::at(dir)? {
        Some(store) => drop(store.chosen(None)?),
        None => drop(cache::all(dir)?),
    }
    let database = Database::open(dir)?;
    let answer = RefCell::new(database.query(query)?);
    let report = Answered { answer, failed: RefCell::default() };
    let shown = output.show(&report);
    if let Some(failure) = report.failed.take() {
        return Err(failure);
    }
    shown?;
    let answer = report.answer.borrow();
    let rows = answer.left_out();
    let hidden = hidden(&answer);
    if rows > 0 {
        let rows = human::counted(rows, "row");
        Output::note(&format!("{rows} left out because they do not verify; run `tcx verify`"));
    }
    hidden.lines().iter().for_each(|line| Output::note(line));
    Ok(Verdict::good_if(rows == 0 && hidden.is_nothing()))
}

fn hidden(answer: &Answer<'_>) -> Hidden {
    Hidden { damaged_segments: answer.damaged_segments(), sound_changes: answer.has_sound_changes() }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Cache(error) => return error.into(),
            Error::NoTable { .. } => Code::NotFound,
            Error::Io(_) => Code::Io,
            _ => Code::Usage,
        };
        Self::new(code, format!("{error:#}"))
    }
}

impl Answered<'_> {
    /// The next row. An error ends the rows and becomes the failure of the command.
    fn next(&self) -> io::Result<Option<Vec<Value>>> {
        self.answer.borrow_mut().next().transpose().map_err(|error| {
            self.failed.replace(Some(error.into()));
            io::Error::other("the remaining rows cannot be read")
        })
    }
}

impl Report for Answered<'_> {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut lines = Vec::new();
        // A column is aligned to the right if it has only numbers.
        let mut right = vec![true; self.answer.borrow().columns().len()];
        // Text is cut only on a terminal and beside other columns: scripts and single columns need whole ids.
        let room = if right.len() > 1 && io::stdout().is_terminal() { ROOM } else { usize::MAX };
        while let Some(row) = self.next()? {
            let numbers = row.iter().map(|value| number(value).is_some() || *value == Value::Null);
            right.iter_mut().zip(numbers).for_each(|(right, is_number)| *right &= is_number);
            lines.push(row.iter().map(|value| cell(value, room)).collect::<Vec<_>>());
        }
        if lines.is_empty() {
            return writeln!(to, "no rows");
        }
        let columns = self.answer.borrow().columns().to_vec();
        let mut table =
            Table::aligned(columns.into_iter().map(|column| one_line(&column.name, room)).zip(right));
        for line in lines {
            table.line(line);
        }
        table.write(to)
    }
}

impl Serialize for Answered<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_struct("Answer", 5)?;
        let columns = self.answer.borrow().columns().to_vec();
        let columns = columns.iter().map(|own| serde_json::json!({"name": own.name, "type": own.data_type}));
        object.serialize_field("columns", &columns.collect::<Vec<_>>())?;
        object.serialize_field("rows", &AnsweredRows(self))?;
        object.serialize_field("left_out", &self.answer.borrow().left_out())?;
        let hidden = hidden(&self.answer.borrow());
        object.serialize_field("damaged_segments", &hidden.damaged_segments)?;
        object.serialize_field("sound_changes", &hidden.sound_changes)?;
        object.end()
    }
}

/// One list for each row, in the order of the columns.
struct AnsweredRows<'a, 'b>(&'a Answered<'b>);

impl Serialize for AnsweredRows<'_, '_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut list = to.serialize_seq(None)?;
        while let Some(row) = self.0.next().map_err(S::Error::custom)? {
            list.serialize_element(&row.iter().map(Json).collect::<Vec<_>>())?;
        }
        list.end()
    }
}

struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Text(text) => to.serialize_str(text),
            Value::Bytes(bytes) => to.serialize_str(&ids::hex(bytes)),
            Value::List(list) => to.collect_seq(list.iter().map(Json)),
            Value::Unsigned(number) => to.serialize_u64(*number),
            other => number(other).serialize(to),
        }
    }
}

/// A value as a number, if it is one. A large unsigned number is rounded, which is enough for the table.
fn number(value: &Value) -> Option<Number> {
    Some(match value {
        Value::Bool(value) => Number::Bool(*value),
        Value::Int(value) => Number::Int(*value),
        Value::Unsigned(value) => i64::try_from(*value).map_or(Number::Double(*value as f64), Number::Int),
        Value::Single(value) => Number::Single(*value),
        Value::Double(value) => Number::Double(*value),
        _ => return None,
    })
}

/// A value on one line.
fn cell(value: &Value, room: usize) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Text(text) => one_line(text, room),
        Value::Bytes(bytes) => one_line(&ids::hex(bytes), room),
        Value::List(list) => {
            listed(list.iter().map(|own| number(own).map_or_else(|| cell(own, ROOM), short)), ROOM)
        }
        Value::Unsigned(number) => number.to_string(),
        other => number(other).map(|number| number.to_string()).unwrap_or_default(),
    }
}

/// Text with escaped control characters, cut at `room` characters.
fn one_line(text: &str, room: usize) -> String {
    let mut line = String::new();
    for c in text.chars().take(room) {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    if text.chars().nth(room).is_some() { line + "…" } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_where_there_is_no_room() {
        let text = format!("two\nlines{}", "s".repeat(100));
        let cut = one_line(&text, ROOM);
        assert!(cut.starts_with("two\\nlines") && cut.ends_with("s…"), "{cut}");
        assert_eq!(one_line(&text, usize::MAX), text.replace('\n', "\\n"));
    }
}
