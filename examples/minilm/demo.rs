//! The epochs and the table.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use indicatif::HumanCount;
use tcx::Cached;
use tcx_examples::{Epoch, INTERRUPTED, Line, Place, Stopped, Table, first_name};

use crate::args::Args;
use crate::corpus::{Corpus, Passage};
use crate::epoch::epoch;
use crate::memory::Memory;
use crate::model::MiniLm;
use crate::record::Record;

/// One text in this number is edited.
const EDITED: usize = 10;

/// What the epochs share.
pub(crate) struct Demo<'a> {
    pub(crate) args: &'a Args,
    pub(crate) model: &'a Path,
    pub(crate) place: &'a Place,
    pub(crate) corpus: &'a Corpus,
    pub(crate) cached: &'a Cached<MiniLm>,
}

impl Demo<'_> {
    /// Runs all epochs and prints the table.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut memory = Memory::recall(self.place);
        let mut notes = Vec::new();
        let first = self.first(&mut memory, &mut notes)?;
        eprintln!("warm epoch: the same texts again");
        let warm = self.line("warm", epoch(self.cached, &self.corpus.passages, self.args.batch, drop)?);
        eprintln!("a new process: the same texts from there");
        let process = self.line("new process", self.elsewhere(&mut notes)?);
        for line in [&warm, &process] {
            ensure!(
                line.epoch.digest == first.epoch.digest,
                "the {} epoch got other embeddings than the first: this is a bug of tcx",
                line.name
            );
        }
        let digest = first.epoch.digest.get(..16).unwrap_or_default();
        notes.push(format!(
            "the embeddings of these three epochs are the same, bit for bit (blake3 {digest}…)"
        ));
        eprintln!("an epoch with every tenth text edited");
        let edited = self.edited(&mut memory, &mut notes)?;
        let speed = memory.cold.as_ref().map(Record::speed);
        println!("\n{}", Table { what: "texts", lines: vec![first, warm, process, edited], speed });
        for note in notes {
            println!("- {note}");
        }
        Ok(())
    }

    /// The epoch that fills the cache; where an earlier run has filled it, what is remembered of that.
    fn first(&self, memory: &mut Memory, notes: &mut Vec<String>) -> anyhow::Result<Line> {
        eprintln!("cold epoch: every text that is not in the cache goes through the model");
        let done = epoch(self.cached, &self.corpus.passages, self.args.batch, drop)?;
        let record = Record::now(self.corpus.fingerprint(), done, self.place.bytes());
        let remembered = memory.cold.as_ref().filter(|cold| cold.corpus == record.corpus);
        if let (0, Some(cold)) = (record.epoch.misses, remembered) {
            notes.push(format!("cold: recorded on {}; `--fresh` starts again", cold.when()));
            notes.extend(resumed(&cold.epoch));
            let epoch = Epoch { digest: record.epoch.digest, ..cold.epoch.clone() };
            return Ok(Line { name: first_name(&epoch), epoch, bytes: cold.bytes });
        }
        notes.extend(resumed(&record.epoch));
        if record.outweighs(memory.cold.as_ref()) {
            memory.cold = Some(record.clone());
            memory.keep(self.place)?;
        } else {
            notes.push(match &memory.cold {
                Some(cold) => format!(
                    "times faster: than the {} rows computed on {}",
                    HumanCount(cold.epoch.misses),
                    cold.when()
                ),
                None => "times faster: unknown, as nothing was computed; `--fresh` starts again".to_owned(),
            });
        }
        Ok(Line { name: first_name(&record.epoch), epoch: record.epoch, bytes: record.bytes })
    }

    /// The same epoch in another process, which knows nothing but the cache's folder.
    fn elsewhere(&self, notes: &mut Vec<String>) -> anyhow::Result<Epoch> {
        let start = Instant::now();
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut process = Command::new(program);
        process.args(self.args.for_epoch(self.model)).stderr(Stdio::inherit());
        let output = process.output().context("cannot start a new process")?;
        let took = start.elapsed();
        let report = String::from_utf8_lossy(&output.stdout);
        if output.status.code() == Some(INTERRUPTED.into()) {
            bail!(Stopped);
        }
        ensure!(output.status.success(), "the new process failed ({})", output.status);
        notes.push(format!(
            "new process: {:.1} s from start to end, reading texts and loading the model included",
            took.as_secs_f64()
        ));
        report.trim().parse().with_context(|| format!("the new process said `{}`", report.trim()))
    }

    /// The epoch after a user has edited a tenth of the texts.
    fn edited(&self, memory: &mut Memory, notes: &mut Vec<String>) -> anyhow::Result<Line> {
        let passages = edit(&self.corpus.passages, memory.edits);
        let done = epoch(self.cached, &passages, self.args.batch, drop)?;
        let edits = passages.len().div_ceil(EDITED) as u64;
        if done.misses < edits {
            let known = HumanCount(edits - done.misses);
            notes.push(format!("a tenth edited: {known} of the edited texts had been there already"));
        }
        memory.edits += 1;
        memory.keep(self.place)?;
        Ok(self.line("a tenth edited", done))
    }

    fn line(&self, name: &'static str, epoch: Epoch) -> Line {
        Line { name, epoch, bytes: self.place.bytes() }
    }
}

/// What the first epoch did not have to compute.
fn resumed(epoch: &Epoch) -> Option<String> {
    let hits = HumanCount(epoch.hits);
    (epoch.hits > 0).then(|| format!("{}: {hits} rows had been there already", first_name(epoch)))
}

/// Gives every tenth text another ending: the first sentence of a text that is another one in every run.
fn edit(passages: &[Passage], run: usize) -> Vec<Passage> {
    let edited = |(i, passage): (usize, &Passage)| {
        if !i.is_multiple_of(EDITED) {
            return passage.clone();
        }
        let other = &passages[(i + 1 + run) % passages.len()].text;
        let sentence = other.split_inclusive(". ").next().unwrap_or(other);
        passage.edited(format!("{} {}", passage.text, sentence.trim_end()))
    };
    passages.iter().enumerate().map(edited).collect()
}
