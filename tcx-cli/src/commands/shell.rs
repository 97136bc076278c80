//! `tcx completions` and `tcx man`: print shell completions and manual pages.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::args::Args;
use crate::failure::{Failure, Result, Verdict};

pub(super) fn completions(shell: clap_complete::Shell) -> Result<Verdict> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "tcx", &mut script);
    print(&script)
}

pub(super) fn man(to: Option<&Path>) -> Result<Verdict> {
    if let Some(folder) = to {
        let written =
            std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Args::command(), folder));
        written.map_err(|error| Failure::file("write the pages into", folder, &error))?;
        return Ok(Verdict::Good);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut page)?;
    print(&page)
}

fn print(bytes: &[u8]) -> Result<Verdict> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Verdict::Good),
        other => Ok(other.map(|()| Verdict::Good)?),
    }
}
