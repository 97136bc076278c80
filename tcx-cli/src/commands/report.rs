//! `tcx report`: writes an HTML page about a cache.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::args::Modules;
use crate::cache::{self, sessions};
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Failure, Result, Verdict};
use crate::report::sessions::Session;
use crate::report::{Figures, Module, Shades, page};

#[derive(Debug, Serialize)]
struct Written {
    to: PathBuf,
    #[serde(flatten)]
    figures: Figures,
}

/// Which rows are drawn, and how.
#[derive(Debug)]
pub(super) struct Drawing {
    /// The cache, as the user has named it.
    pub(super) place: PathBuf,
    /// The maximum number of rows.
    pub(super) sample: usize,
    /// The output that colours the points.
    pub(super) color_by: Option<String>,
}

pub(super) fn run(modules: &Modules, to: &Path, drawing: &Drawing, output: &Output) -> Result<Verdict> {
    let names = cache::chosen(&modules.dir, modules.module.as_deref())?;
    let bar = progress::rows("reporting", names.len() as u64);
    let color_by = drawing.color_by.as_deref();
    let (mut found, mut is_colored) = (Vec::new(), false);
    for name in names {
        bar.set_message(format!("reporting on {name}"));
        let inspection = cache::inspect(&modules.dir, &name)?;
        is_colored |= Shades::choose(inspection.spec(), color_by).is_some();
        let sessions = sessions::read(&drawing.place, &name)?.iter().map(Session::new).collect();
        found.push(Module::new(&inspection, drawing.sample, color_by, sessions));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(name) = color_by.filter(|_| !is_colored) {
        let message =
            format!("no module has an enum or a number named `{name}`; `tcx info` lists the outputs");
        return Err(Failure::usage(message));
    }
    let bytes = found.iter().map(|module| module.bytes).sum();
    let figures = Figures { modules: found, bytes };
    let failed = |error: io::Error| Failure::file("write", to, &error);
    let mut file = std::fs::File::create_new(to).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} exists; name another path, or remove it first", to.display()))
        }
        _ => failed(error),
    })?;
    file.write_all(page(&drawing.place.display().to_string(), &figures).as_bytes()).map_err(failed)?;
    output.show(&Written { to: to.to_owned(), figures })?;
    Ok(Verdict::Good)
}

impl Report for Written {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let modules = crate::text::human::counted(self.figures.modules.len() as u64, "module");
        writeln!(to, "{modules} → {}", self.to.display())
    }
}
