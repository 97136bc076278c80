//! The arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::text::human::{parse_age, parse_size};

const CODES: &str = "Exit codes: 0 done and good; 1 done, and the answer is no (damage, missing ids, a difference); \
2 wrong arguments; 3 no such directory, module or id; 4 a damaged file; 5 things that do not belong together; \
6 trouble with the disk; 7 not confirmed.";

/// Looks into the cache directories of tcx, checks and tends them. Programs that use them may go on meanwhile.
#[derive(Debug, Parser)]
#[command(name = "tcx", version, after_help = CODES, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Answer with one JSON document.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}

/// A module of a cache directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Module {
    /// The cache directory.
    pub(crate) dir: PathBuf,
    /// The module's id.
    pub(crate) module: String,
}

/// All modules of a cache directory, or one.
#[derive(Debug, clap::Args)]
pub(crate) struct Modules {
    /// The cache directory.
    pub(crate) dir: PathBuf,
    /// The module's id; all modules without it.
    pub(crate) module: Option<String>,
}

/// How something is deleted.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Deleting {
    /// Only say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the modules of a cache directory.
    Ls {
        /// The cache directory.
        dir: PathBuf,
    },
    /// Show what a module is: its outputs, where its rows come from, its identity.
    Info(Module),
    /// Show the first rows of a module.
    Head {
        #[command(flatten)]
        module: Module,
        /// How many rows.
        #[arg(short = 'n', long, default_value_t = 5)]
        rows: usize,
    },
    /// Show the row of an id.
    Show {
        #[command(flatten)]
        module: Module,
        /// The id: text as it is, an integer in decimal, bytes in hex.
        #[arg(allow_hyphen_values = true)]
        id: String,
        /// The view of the sample.
        #[arg(long, default_value_t = 0)]
        view: u32,
    },
    /// Count rows and bytes, dead ones too: every key is read.
    Stats(Modules),
    /// Ask in SQL: each module is a table, of the rows that are served.
    Sql {
        /// The cache directory.
        dir: PathBuf,
        /// The question, as in `select id from clip_v1 where score > 30`.
        query: String,
    },
    /// Tell which of some ids are there.
    Coverage {
        #[command(flatten)]
        module: Module,
        /// A file of ids, one a line; `-` is standard input.
        ids: PathBuf,
        /// The view of the samples.
        #[arg(long, default_value_t = 0)]
        view: u32,
        /// Write the missing ids into this file.
        #[arg(long, value_name = "FILE")]
        missing_to: Option<PathBuf>,
    },
    /// Read every byte and verify it.
    Verify {
        #[command(flatten)]
        modules: Modules,
        /// Repair what is found to be damaged twice.
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Join segments into as few as can be, without dead rows.
    Compact(Modules),
    /// Remove files that nobody needs any more.
    Gc {
        #[command(flatten)]
        modules: Modules,
        /// Leave files that are younger.
        #[arg(long, value_parser = parse_age, default_value = "60s", value_name = "TIME")]
        older_than: Duration,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Remove the oldest rows.
    #[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
    Prune {
        #[command(flatten)]
        modules: Modules,
        /// Until no more than this is left, as in 50GB.
        #[arg(long, value_parser = parse_size, group = "limit", value_name = "SIZE")]
        max_size: Option<u64>,
        /// Those that were computed longer ago, as in 30d.
        #[arg(long, value_parser = parse_age, group = "limit", value_name = "TIME")]
        older_than: Option<Duration>,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Remove a module, or invalidate some of its rows.
    Rm {
        #[command(flatten)]
        module: Module,
        /// Invalidate this id, in all its views; may be given several times.
        #[arg(long, allow_hyphen_values = true)]
        id: Vec<String>,
        /// Invalidate all ids that begin so; may be given several times.
        #[arg(long)]
        prefix: Vec<String>,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Write the rows of a module for other programs.
    Export {
        #[command(flatten)]
        module: Module,
        /// The file, or the folder for npy, to write; it must not exist.
        #[arg(long, value_name = "PATH")]
        to: PathBuf,
        /// The format; without it, what the ending of PATH says.
        #[arg(long, value_enum)]
        format: Option<Format>,
    },
    /// Add rows that were computed elsewhere to a module that is there. You vouch for them.
    Import {
        #[command(flatten)]
        module: Module,
        /// A Parquet or Arrow file, or a folder of .npy files with ids.txt, as `export` writes them.
        from: PathBuf,
        /// Also ids that were invalidated here.
        #[arg(long)]
        revive: bool,
    },
    /// Add the rows of B that A lacks to A, module by module.
    Merge {
        /// The cache directory that gets the rows; it must exist, unless `--create` says otherwise.
        a: PathBuf,
        /// The cache directory that has them.
        b: PathBuf,
        /// Only this module.
        #[arg(long)]
        module: Option<String>,
        /// Also ids that were invalidated in A.
        #[arg(long)]
        revive: bool,
        /// Make A if it is not there.
        #[arg(long)]
        create: bool,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Compare two cache directories: modules, identities, ids and values.
    Diff {
        /// A cache directory.
        a: PathBuf,
        /// Another.
        b: PathBuf,
        /// Only this module.
        #[arg(long)]
        module: Option<String>,
    },
    /// Write a page of HTML: growth, sizes, norms, what is not a number, and the rows in the plane.
    Report {
        #[command(flatten)]
        modules: Modules,
        /// The file to write; it must not exist.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// The most rows of a module that are looked at.
        #[arg(long, default_value_t = 1000, value_name = "ROWS")]
        sample: usize,
    },
    /// Show what is being written, again and again; once, where the output is no terminal.
    Top {
        /// The cache directory.
        dir: PathBuf,
        /// How often.
        #[arg(long, value_parser = parse_age, default_value = "2s", value_name = "TIME")]
        every: Duration,
    },
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all of them into a folder.
    Man {
        /// The folder.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// An Arrow IPC file of plain columns (.arrow, .feather).
    Arrow,
    /// An Arrow IPC stream (.arrows).
    Stream,
    /// A folder of .npy files, one a column, and ids.txt.
    Npy,
    /// A Parquet file (.parquet).
    Parquet,
}
