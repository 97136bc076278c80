//! The arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::text::human::{parse_age, parse_size};
use crate::text::prices::parse_prices;
use tcx_store::Prices;

const CODES: &str = "Exit codes: 0 done, no problem found; 1 done, with a problem (damage is left, ids are missing, \
something differs, rows were left out); 2 wrong arguments; 3 no such directory, module, id or file; 4 a file is damaged; \
5 the modules, files or arguments do not match; 6 a disk failure; 7 not confirmed.";

/// Inspect, verify and maintain tcx cache directories. Programs may use them at the same time.
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
    /// Print one JSON document.
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

/// Options of the commands that delete.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Deleting {
    /// Only print what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// A copy between a cache directory and an object store.
#[derive(Debug, clap::Args)]
pub(crate) struct Copying {
    /// The cache directory.
    pub(crate) dir: PathBuf,
    /// The store: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or `http(s)://host/bucket/prefix`.
    pub(crate) url: String,
    /// The module's id; all modules without it.
    pub(crate) module: Option<String>,
    /// The longest time that one request may take with its retries, such as `2min`; a minute without it.
    #[arg(long, value_parser = parse_age, value_name = "TIME")]
    pub(crate) deadline: Option<Duration>,
}

/// A part in the work on a list of ids.
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) module: Module,
    /// The ids of all workers: a text file with one a line, or a Parquet or Arrow file.
    #[arg(long, value_name = "FILE")]
    pub(crate) ids: PathBuf,
    /// The column of the ids in a Parquet or Arrow file; `id` without it, or the only one.
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,
    /// The view of the samples.
    #[arg(long, default_value_t = 0)]
    pub(crate) view: u32,
    /// Workers with the same name share the work.
    #[arg(long, default_value = "warm", value_name = "NAME")]
    pub(crate) job: String,
    /// The number of ids that a worker leases at a time, and the most that one run of the command gets; the same in all workers.
    #[arg(long, value_name = "IDS")]
    pub(crate) range_size: Option<u64>,
    /// After this time without a sign of life, others take over what a worker has leased.
    #[arg(long, value_parser = parse_age, default_value = "2min", value_name = "TIME")]
    pub(crate) expiry: Duration,
    /// Computes the rows of the ids on its standard input, one a line, and ends with status 0 when they are flushed.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the modules of a cache directory.
    Ls {
        /// The cache directory.
        dir: PathBuf,
    },
    /// Show the outputs, the identity and the provenance of a module.
    Info(Module),
    /// Show the first rows of a module.
    Head {
        #[command(flatten)]
        module: Module,
        /// The number of rows.
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
    /// Count the rows and bytes of modules, dead rows too; reads every key.
    Stats {
        #[command(flatten)]
        modules: Modules,
        /// What a thousand PUT or LIST requests and a thousand others cost, as in 0.005,0.0004.
        #[arg(long, value_parser = parse_prices, value_name = "PRICES")]
        prices: Option<Prices>,
    },
    /// Query the live rows in SQL: each module is a table.
    Sql {
        /// The cache directory.
        dir: PathBuf,
        /// The query, as in `select id from clip_v1 where score > 30`.
        query: String,
    },
    /// Report which of some ids have rows.
    Coverage {
        #[command(flatten)]
        module: Module,
        /// A file with one id a line; `-` is standard input.
        ids: PathBuf,
        /// The view of the samples.
        #[arg(long, default_value_t = 0)]
        view: u32,
        /// Write the missing ids into this file.
        #[arg(long, value_name = "FILE")]
        missing_to: Option<PathBuf>,
    },
    /// Read every byte and verify its checksum.
    Verify {
        #[command(flatten)]
        modules: Modules,
        /// Repair damaged files; each is verified again first.
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Join segments into as few as possible and leave out dead rows.
    Compact(Modules),
    /// Remove files that were replaced.
    Gc {
        #[command(flatten)]
        modules: Modules,
        /// Keep files that are younger; 60s without it, in an object store 1h.
        #[arg(long, value_parser = parse_age, value_name = "TIME")]
        older_than: Option<Duration>,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Remove the oldest rows.
    #[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
    Prune {
        #[command(flatten)]
        modules: Modules,
        /// Remove rows until at most this size is left, as in 50GB.
        #[arg(long, value_parser = parse_size, group = "limit", value_name = "SIZE")]
        max_size: Option<u64>,
        /// Remove rows that were computed longer ago, as in 30d.
        #[arg(long, value_parser = parse_age, group = "limit", value_name = "TIME")]
        older_than: Option<Duration>,
        /// Remove the caches of other identities (`MODULE+DIGEST`) that no program has used for this time, as in 30d.
        #[arg(long, value_parser = parse_age, group = "limit", value_name = "TIME")]
        unused_for: Option<Duration>,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Remove a module, or invalidate some of its rows.
    Rm {
        #[command(flatten)]
        module: Module,
        /// Invalidate this id in all its views; can be repeated.
        #[arg(long, allow_hyphen_values = true)]
        id: Vec<String>,
        /// Invalidate all ids with this prefix; can be repeated.
        #[arg(long)]
        prefix: Vec<String>,
        #[command(flatten)]
        deleting: Deleting,
    },
    /// Write the rows of a module to a file for other programs.
    Export {
        #[command(flatten)]
        module: Module,
        /// The file to create, or the folder for npy; it must not exist.
        #[arg(long, value_name = "PATH")]
        to: PathBuf,
        /// The format; by default, the ending of PATH decides.
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// Only these outputs, separated by commas; all without it. `inner` selects every `inner.…`.
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        fields: Vec<String>,
    },
    /// Add rows that were computed elsewhere to an existing module; you are responsible for their values.
    Import {
        #[command(flatten)]
        module: Module,
        /// A Parquet or Arrow file, or a folder of .npy files with ids.txt, as `export` writes them.
        from: PathBuf,
        /// Also add ids that were invalidated.
        #[arg(long)]
        revive: bool,
    },
    /// Write the live rows of a module to one file for `unpack`; the same rows give the same bytes.
    Pack {
        #[command(flatten)]
        module: Module,
        /// The file to create; it must not exist.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Add the rows of a packed module to a cache, after every byte was verified.
    Unpack {
        /// The cache directory to add rows to; it must exist, unless --create is given.
        dir: PathBuf,
        /// The file that `pack` has written.
        from: PathBuf,
        /// Also add ids that were invalidated.
        #[arg(long)]
        revive: bool,
        /// Create the cache if it does not exist.
        #[arg(long)]
        create: bool,
        /// Add the rows to a folder of their identity beside the module, as programs do that separate identities.
        #[arg(long)]
        separate: bool,
        /// Only print what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Add the rows of B that A lacks to A, module by module.
    Merge {
        /// The cache directory to add rows to; it must exist, unless --create is given.
        a: PathBuf,
        /// The cache directory to copy rows from.
        b: PathBuf,
        /// Only this module; all modules without it.
        #[arg(conflicts_with = "only")]
        module: Option<String>,
        /// The same as MODULE.
        #[arg(long = "module", value_name = "MODULE")]
        only: Option<String>,
        /// Also add ids that were invalidated in A.
        #[arg(long)]
        revive: bool,
        /// Create A if it does not exist.
        #[arg(long)]
        create: bool,
        /// Only print what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Compare two cache directories: modules, identities, ids and values.
    Diff {
        /// A cache directory.
        a: PathBuf,
        /// Another cache directory.
        b: PathBuf,
        /// Only this module; all modules without it.
        #[arg(conflicts_with = "only")]
        module: Option<String>,
        /// The same as MODULE.
        #[arg(long = "module", value_name = "MODULE")]
        only: Option<String>,
    },
    /// Copy modules of a cache directory to an object store: what the store lacks.
    Push(Copying),
    /// Copy modules in an object store to a cache directory: what the directory lacks.
    Pull(Copying),
    /// Copy modules between a cache directory and an object store, in both directions.
    Sync(Copying),
    /// Write an HTML page: growth, sizes, norms, NaN values, and the rows in the plane.
    Report {
        #[command(flatten)]
        modules: Modules,
        /// The file to write; it must not exist.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// The maximum number of rows to sample in a module.
        #[arg(long, default_value_t = 1000, value_name = "ROWS")]
        sample: usize,
        /// Colour the points by this output, an enum or a number; by default the first enum, or the first number.
        #[arg(long, value_name = "NAME")]
        color_by: Option<String>,
    },
    /// Show how fast modules grow, until Ctrl-C; once, if the output is not a terminal.
    Top {
        /// The cache directory.
        dir: PathBuf,
        /// The time between two refreshes.
        #[arg(long, value_parser = parse_age, default_value = "2s", value_name = "TIME")]
        every: Duration,
    },
    /// Show how far processes are that fill modules together, until their jobs end or Ctrl-C; once, if the output is not a terminal.
    Jobs {
        #[command(flatten)]
        modules: Modules,
        /// The time between two refreshes. In an object store, each costs a listing and a read for each worker.
        #[arg(long, value_parser = parse_age, default_value = "5s", value_name = "TIME")]
        every: Duration,
        /// What a thousand PUT or LIST requests and a thousand others cost, as in 0.005,0.0004.
        #[arg(long, value_parser = parse_prices, value_name = "PRICES")]
        prices: Option<Prices>,
    },
    /// Work on a list of ids together with other processes, by a command that gets the missing ids of one part at a time.
    Work(Work),
    /// Print a shell completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all manual pages into a folder.
    Man {
        /// The folder for the pages.
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
    /// A folder of .npy files for the columns, and ids.txt.
    Npy,
    /// A Parquet file (.parquet).
    Parquet,
    /// A line of text for each row, and one with the names of the columns (.csv).
    Csv,
    /// A JSON object in a line for each row (.jsonl, .ndjson).
    Jsonl,
}
