//! `tcx report`: writes an HTML page about a cache.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::args::Modules;
use crate::cache;
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Failure, Result, Verdict};
use crate::report::{Figures, Module, page, sessions};

#[derive(Debug, Serialize)]
struct Written {
    to: PathBuf,
    #[serde(flatten)]
    figures: Figures,
}

pub(super) fn run(modules: &Modules, to: &Path, sample: usize, output: &Output) -> Result<Verdict> {
    let names = cache::chosen(&modules.dir, modules.module.as_deref())?;
    let bar = progress::rows("reporting", names.len() as u64);
    let mut found = Vec::new();
    for name in names {
        bar.set_message(format!("reporting on {name}"));
        let inspection = cache::inspect(&modules.dir, &name)?;
        found.push(Module::new(&inspection, sample, sessions::read(&modules.dir.join(&name))?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let bytes = found.iter().map(|module| module.bytes).sum();
    let figures = Figures { modules: found, bytes };
    let failed = |error: io::Error| Failure::file("write", to, &error);
    let mut file = std::fs::File::create_new(to).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} exists; name another path, or remove it first", to.display()))
        }
        _ => failed(error),
    })?;
    file.write_all(page(&modules.dir.display().to_string(), &figures).as_bytes()).map_err(failed)?;
    output.show(&Written { to: to.to_owned(), figures })?;
    Ok(Verdict::Good)
}

impl Report for Written {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let modules = crate::text::human::counted(self.figures.modules.len() as u64, "module");
        writeln!(to, "{modules} → {}", self.to.display())
    }
}
