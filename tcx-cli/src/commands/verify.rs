//! `tcx verify`: reads every byte and verifies its checksum; `--repair` repairs damaged files.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tcx_store::{Damage, DamagedFile, Repaired, VerifyReport, url_scheme};

use crate::args::{Deleting, Modules};
use crate::cache;
use crate::cache::received::{LeftOut, Received};
use crate::cache::store;
use crate::console::ask::confirm;
use crate::console::output::{BAD, FAINT, GOOD, Output, Report};
use crate::console::progress;
use crate::failure::{Failure, Result, Unreadable, Verdict};
use crate::text::human;

#[derive(Debug, Serialize)]
struct Verification {
    modules: Vec<Module>,
    unreadable: Vec<Unreadable>,
    #[serde(skip)]
    is_in_store: bool,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    segments: u64,
    rows: u64,
    changes: u64,
    runs: u64,
    bytes: u64,
    damage: Vec<Fault>,
    unreadable: Vec<OtherFile>,
    foreign: Vec<OtherFile>,
}

#[derive(Debug, Serialize)]
struct Fault {
    file: String,
    kind: &'static str,
    what: String,
    /// How it was repaired.
    repaired: Option<String>,
}

#[derive(Debug, Serialize)]
struct OtherFile {
    file: String,
    why: String,
}

pub(super) fn run(
    mut modules: Modules,
    repair: bool,
    deleting: Deleting,
    output: &Output,
) -> Result<Verdict> {
    let is_in_store = url_scheme(&modules.dir).is_some();
    if repair && is_in_store {
        return Err(Failure::usage(
            "--repair works on directories: remove a damaged segment from an object store with the tools of its provider; its rows are computed \
             again",
        ));
    }
    // What was received before says nothing of what the store has now.
    let received = store::bring_again(&mut modules.dir, modules.module.as_deref())?;
    let Received { modules: names, failed, left_out } = if let Some(received) = received {
        received
    } else {
        let modules = cache::chosen(&modules.dir, modules.module.as_deref())?;
        Received { modules, ..Received::default() }
    };
    let mut found = Vec::new();
    let mut unreadable: Vec<_> =
        failed.into_iter().map(|(name, error)| Unreadable::new(name, error)).collect();
    for name in names {
        let dir = modules.dir.join(&name);
        match verify(&dir, &name) {
            Ok(verified) => {
                let repaired = repair_some(&dir, &verified.damage, repair, deleting)?;
                let mut module = Module::new(name, verified, &repaired);
                module.add_left_out(&left_out);
                found.push(module);
            }
            Err(error) => unreadable.push(Unreadable::new(name, error)),
        }
    }
    let verification = Verification { modules: found, unreadable, is_in_store };
    output.show(&verification)?;
    if let Some(first) = verification.unreadable.first() {
        return Err(Failure::new(first.code, format!("cannot verify {}: {}", first.module, first.error)));
    }
    Ok(Verdict::good_if(verification.modules.iter().all(Module::is_good)))
}

fn verify(dir: &Path, name: &str) -> tcx_store::Result<VerifyReport> {
    let bar = progress::bytes(format!("verifying {name}"));
    let verified = tcx_store::verify(dir, &mut progress::follow(&bar));
    bar.finish_and_clear();
    verified
}

fn repair_some(dir: &Path, damage: &[Damage], repair: bool, deleting: Deleting) -> Result<Vec<Repaired>> {
    if !repair || deleting.dry_run || damage.is_empty() {
        return Ok(Vec::new());
    }
    let files = human::counted(damage.len() as u64, "damaged file");
    let action = format!(
        "repair {files} in {} (move segments to its folder `damaged`, remove index runs and merged changes, replace \
         changes)",
        dir.display()
    );
    confirm(deleting.yes, &action)?;
    let bar = progress::bytes("verifying again");
    let repaired = tcx_store::repair(dir, damage, &mut progress::follow(&bar));
    bar.finish_and_clear();
    Ok(repaired?)
}

impl Module {
    /// Adds the files of the store that are not in the directory.
    fn add_left_out(&mut self, left_out: &[LeftOut]) {
        for LeftOut { file, why, is_foreign, .. } in left_out.iter().filter(|own| own.module == self.module) {
            if *is_foreign {
                self.foreign.push(OtherFile { file: file.clone(), why: why.clone() });
            } else {
                self.damage.push(Fault::left_out(file, why));
            }
        }
    }

    /// Whether no damage is left.
    fn is_good(&self) -> bool {
        self.unreadable.is_empty() && self.damage.iter().all(|own| own.repaired.is_some())
    }

    fn new(module: String, verified: VerifyReport, repaired: &[Repaired]) -> Self {
        let fault = |Damage { file, kind, what, .. }| {
            let repaired = repaired.iter().find(|own| own.damage.file == file).map(|own| own.done.clone());
            Fault { file, kind: kind_name(kind), what, repaired }
        };
        let other = |(file, why)| OtherFile { file, why };
        Self {
            module,
            segments: verified.segments,
            rows: verified.rows,
            changes: verified.changes,
            runs: verified.runs,
            bytes: verified.bytes,
            damage: verified.damage.into_iter().map(fault).collect(),
            unreadable: verified.unreadable.into_iter().map(other).collect(),
            foreign: verified.foreign.into_iter().map(other).collect(),
        }
    }
}

impl Fault {
    /// A file of an object store that arrives damaged.
    fn left_out(file: &str, why: &str) -> Self {
        let kind = if file.starts_with("seg-") { "segment" } else { "merged" };
        Self { file: file.to_owned(), kind, what: why.to_owned(), repaired: None }
    }
}

fn kind_name(kind: DamagedFile) -> &'static str {
    match kind {
        DamagedFile::Segment => "segment",
        DamagedFile::Run => "run",
        DamagedFile::Merged => "merged",
        DamagedFile::Change => "change",
        DamagedFile::UnfinishedRepair => "unfinished repair",
        DamagedFile::Stray => "stray",
        _ => "file",
    }
}

/// The consequence of a damaged file.
fn cost(kind: &str) -> &'static str {
    match kind {
        "segment" => "its rows will be computed again",
        "run" => "it will be rebuilt",
        "merged" => "the single changes are read instead",
        "unfinished repair" => {
            "programs that had read it before it was damaged may serve rows that it had replaced others by"
        }
        _ => "rows before it will be computed again, and no segment is joined or removed",
    }
}

impl Report for Verification {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for module in &self.modules {
            module.text(to)?;
        }
        let open = self.modules.iter().flat_map(|module| &module.damage).any(|own| own.repaired.is_none());
        if open && !self.is_in_store {
            writeln!(
                to,
                "`tcx verify --repair` moves damaged segments to the folder `damaged` and removes or replaces other files"
            )?;
        }
        Ok(())
    }
}

impl Module {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let state = match (self.damage.len() as u64, self.unreadable.len() as u64) {
            (0, 0) => format!("{GOOD}good{GOOD:#}"),
            (0, unread) => format!("{BAD}{}{BAD:#}", human::counted(unread, "unreadable file")),
            (damaged, _) => format!("{BAD}{}{BAD:#}", human::counted(damaged, "damaged file")),
        };
        writeln!(
            to,
            "{}: {state} ({}, {}, {}, {}, {})",
            self.module,
            human::size(self.bytes),
            human::counted(self.rows, "row"),
            human::counted(self.segments, "segment"),
            human::counted(self.changes, "change"),
            human::counted(self.runs, "index run"),
        )?;
        for Fault { file, kind, what, repaired } in &self.damage {
            match repaired {
                Some(done) => writeln!(to, "  {file}: {what}; {GOOD}{done}{GOOD:#}")?,
                None => writeln!(to, "  {file}: {what}; {}", cost(kind))?,
            }
        }
        for OtherFile { file, why } in &self.unreadable {
            writeln!(to, "  {file}: {BAD}unreadable{BAD:#} ({why}); left in place, since it may be intact")?;
        }
        for OtherFile { file, why } in &self.foreign {
            writeln!(to, "  {FAINT}{file}: not served, {why}{FAINT:#}")?;
        }
        Ok(())
    }
}
