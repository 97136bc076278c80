//! The output of a command: text, or one JSON document.

use std::io::{self, Write};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::args::Color;
use crate::failure::{Failure, Result};

pub(crate) const HEADING: Style = Style::new().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// The result of a command.
pub(crate) trait Report: Serialize {
    /// Writes it as text.
    fn text(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// Prints reports.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool, color: Color) -> Self {
        match color {
            Color::Auto => {}
            Color::Always => ColorChoice::Always.write_global(),
            Color::Never => ColorChoice::Never.write_global(),
        }
        Self { json }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    pub(crate) fn show(&self, report: &impl Report) -> Result<()> {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        let written = if self.json {
            serde_json::to_writer_pretty(&mut out, report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
        } else {
            report.text(&mut out)
        };
        match written.and_then(|()| out.flush()) {
            // The reader has closed the pipe, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// A message beside the report.
    pub(crate) fn note(text: &str) {
        // A closed standard error does not fail the command.
        let _ = writeln!(anstream::stderr(), "{FAINT}note:{FAINT:#} {text}");
    }

    pub(crate) fn fail(&self, failure: &Failure) {
        let mut err = anstream::stderr().lock();
        let _ = if self.json {
            let error =
                serde_json::json!({"error": {"code": failure.code.name(), "message": failure.message}});
            writeln!(err, "{error}")
        } else {
            writeln!(err, "{BAD}error:{BAD:#} {failure}")
        };
    }
}

/// A table with headings and without borders.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    /// The headings. A heading that begins with `>` is for numbers and aligned to the right.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let of = |heading: &&str| (heading.trim_start_matches('>').to_owned(), heading.starts_with('>'));
        Self::aligned(headings.iter().map(of))
    }

    /// The headings, each with `true` if its column is aligned to the right.
    pub(crate) fn aligned(headings: impl Iterator<Item = (String, bool)>) -> Self {
        let (headings, right): (Vec<String>, Vec<bool>) = headings.unzip();
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(headings);
        for (column, right) in table.column_iter_mut().zip(right) {
            column.set_padding((0, 2));
            column.set_cell_alignment(if right { CellAlignment::Right } else { CellAlignment::Left });
        }
        Self(table)
    }

    pub(crate) fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter());
    }

    pub(crate) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let text = self.0.trim_fmt();
        let (headings, lines) = text.split_once('\n').unwrap_or((&text, ""));
        writeln!(to, "{HEADING}{headings}{HEADING:#}")?;
        if lines.is_empty() { Ok(()) } else { writeln!(to, "{lines}") }
    }
}
