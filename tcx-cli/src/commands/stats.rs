//! `tcx stats`: counts rows and bytes, dead rows too, by reading every key.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tcx_store::{Inspection, Prices};

use crate::args::Modules;
use crate::cache::{self, sessions};
use crate::console::output::{Output, Report, Table};
use crate::console::progress;
use crate::failure::{Result, Verdict};
use crate::report::sessions::{Session, Totals};
use crate::text::human;

#[derive(Debug, Serialize)]
struct Stats {
    modules: Vec<Module>,
    /// What the requests of the recorded sessions have cost, if the user has named prices.
    price: Option<f64>,
    bytes: u64,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    rows: u64,
    dead_rows: u64,
    copies: u64,
    damaged_rows: u64,
    bytes: u64,
    segments: usize,
    segment_bytes: u64,
    reclaimable_segments: usize,
    /// Bytes that `tcx gc` removes.
    reclaimable_bytes: u64,
    damaged_segments: usize,
    changes: u64,
    change_bytes: u64,
    runs: u64,
    run_bytes: u64,
    temporary: u64,
    temporary_bytes: u64,
    /// The totals of the recorded sessions.
    #[serde(flatten)]
    totals: Totals,
}

/// `named` is the cache as the user has named it.
pub(super) fn run(
    (modules, named): (&Modules, &Path),
    prices: Option<Prices>,
    output: &Output,
) -> Result<Verdict> {
    let chosen = cache::chosen(&modules.dir, modules.module.as_deref())?;
    let bar = progress::rows("counting", 0);
    let mut found = Vec::new();
    for name in chosen {
        bar.set_message(format!("counting {name}"));
        let sessions: Vec<_> = sessions::read(named, &name)?.iter().map(Session::new).collect();
        found.push(Module::new(&cache::inspect(&modules.dir, &name)?, name, Totals::of(&sessions)));
    }
    bar.finish_and_clear();
    let bytes = found.iter().map(|module| module.bytes).sum();
    let rows = found.iter().map(|module| module.rows).sum();
    let asked =
        |of: fn(&Totals) -> u64| found.iter().map(|module| of(&module.totals)).fold(0, u64::saturating_add);
    let price = prices.map(|prices| prices.of(asked(|own| own.puts_and_lists), asked(|own| own.gets)));
    output.show(&Stats { modules: found, price, bytes, rows })?;
    Ok(Verdict::Good)
}

impl Module {
    fn new(inspection: &Inspection, module: String, totals: Totals) -> Self {
        let count = inspection.count();
        let segments = || inspection.segments();
        let reclaimable = || segments().filter(|own| own.state.is_reclaimable());
        let others = inspection.other_files();
        Self {
            module,
            rows: count.served,
            dead_rows: count.dead,
            copies: count.copies,
            damaged_rows: count.damaged,
            bytes: cache::bytes(inspection),
            segments: segments().count(),
            segment_bytes: segments().map(|own| own.bytes).sum(),
            reclaimable_segments: reclaimable().count(),
            reclaimable_bytes: reclaimable().map(|own| own.bytes).sum(),
            damaged_segments: segments().filter(|own| own.state.hides_rows()).count(),
            changes: others.changes,
            change_bytes: others.change_bytes,
            runs: others.runs,
            run_bytes: others.run_bytes,
            temporary: others.temporary,
            temporary_bytes: others.temporary_bytes,
            totals,
        }
    }

    fn lines(&self, to: &mut dyn Write) -> io::Result<()> {
        let (count, size) = (human::count, human::size);
        let mut table = Table::new(&["", ">COUNT", ">BYTES"]);
        let mut line =
            |what: &str, number: String, bytes: String| table.line([what.to_owned(), number, bytes]);
        line("rows", count(self.rows), String::new());
        line("dead rows", count(self.dead_rows), String::new());
        line("copies", count(self.copies), String::new());
        line("rows that do not verify", count(self.damaged_rows), String::new());
        line("segments", count(self.segments as u64), size(self.segment_bytes));
        line("reclaimable segments", count(self.reclaimable_segments as u64), size(self.reclaimable_bytes));
        line("damaged segments", count(self.damaged_segments as u64), String::new());
        line("changes", count(self.changes), size(self.change_bytes));
        line("index runs", count(self.runs), size(self.run_bytes));
        line("temporary files", count(self.temporary), size(self.temporary_bytes));
        let Totals { sessions, hits, misses, computed, puts_and_lists, gets, bytes_sent, bytes_received } =
            self.totals;
        line("sessions", count(sessions), String::new());
        if sessions > 0 {
            line("hits", count(hits), String::new());
            line("misses", count(misses), String::new());
            line("rows computed", count(computed), String::new());
        }
        if puts_and_lists > 0 || gets > 0 {
            line("PUT or LIST requests, sent", count(puts_and_lists), size(bytes_sent));
            line("other requests, received", count(gets), size(bytes_received));
        }
        table.write(to)
    }
}

impl Report for Stats {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for module in &self.modules {
            writeln!(to, "{}: {}", module.module, human::size(module.bytes))?;
            module.lines(to)?;
            writeln!(to)?;
        }
        let modules = human::counted(self.modules.len() as u64, "module");
        write!(to, "{modules}, {}, {}", human::counted(self.rows, "row"), human::size(self.bytes))?;
        match self.price {
            Some(price) => writeln!(to, "; the requests have cost {price:.4}"),
            None => writeln!(to),
        }
    }
}
