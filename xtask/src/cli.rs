//! Parses the command line.

use std::ffi::{OsStr, OsString};

/// What `cargo xtask --help` prints.
pub(crate) const USAGE: &str = "\
usage: cargo xtask COMMAND

commands:
  demo [--backend tch|candle|ort] [ARGS…]
                    provide libtorch and the model, then compile and run the example `minilm` with ARGS
                    (`cargo xtask demo -- --help` shows the example's own options;
                    with `--model DIR` among them no model is downloaded; with `--backend candle` or `ort`, candle or
                    ONNX Runtime computes the network, without libtorch)
  bench [--quick | --check]
                    measure reads, fills and epochs against the limits of the machine and against other stores;
                    fail if a figure is worse than its floor (the figures go to target/bench, the table of
                    docs/performance.md and the pictures are refreshed; `--quick` and `--check` take minutes and fewer
                    rows and write to target/bench only, `--quick` fails for no figure)
  bench --disks DIR…
                    measure a cache in each folder: a fill, flushes, reads from the disk and from memory
  bench --remote    measure a cache in an object store with 10 ms of latency and a line of 200 MB/s against one in a
                    folder: fills, epochs, requests, downloads; fail if a figure is worse than its floor
  bench --python    measure the Python package only, with whole workloads, and print its figures (minutes)
  bench --compile   measure what a hundred cached modules add to `cargo check` (minutes at first;
                    the figures go to target/bench/compile.json)
  counts            count the instructions of the hot paths and compare them with the checked-in counts (part of `test`;
                    needs valgrind)
  stress [--minutes M] [--only TRIAL] [--report FILE.md]
                    run the trials of the engine for up to an hour: kill -9, 800 processes, full disks, moved
                    folders, fuzzing, damage, 100 million keys (writes target/stress/report.json, and with
                    `--report` a report in Markdown; TCX_REQUIRE=all makes a skipped trial a failure)
  simulate [--remote] [--seeds N] [--first SEED]
                    simulate processes on a folder in memory; a seed decides their order, failures and deaths. Runs
                    N seeds (100000) from SEED on, each in five ways, until a run serves a wrong row or loses a row
                    (`--remote`: processes on machines that know the folder by the objects of a store)
  foreign           test SQL and other programs that read caches and exports: DataFusion, Polars, DuckDB, Hugging Face
                    datasets (not part of `test`: the first build takes minutes, and Python packages are large)
  backends          test the tensor libraries besides tch: candle, ndarray and ONNX Runtime, without libtorch and with it,
                    and the demo with candle and ONNX Runtime, which take minutes to build (`test` checks that they
                    compile)
  ballista          build examples/ballista, and have a scheduler and two executors query a cache in an object store (not
                    part of `test`: Ballista takes a quarter of an hour to build)
  remote [--minutes M]
                    four processes with a near tier each, as four machines, fill, read, invalidate and compact one module
                    in a test server for M minutes (5), while requests fail, machines and the server are killed and a
                    disk is lost (`test` runs 18 seconds of it); before that, tests on servers of others if available:
                    Moto (S3, Python) and Azurite (Azure, Node 20)
  recipes           run the recipes of docs/recipes.md: MLflow, DVC and Snakemake with `tcx` (not part of `test`:
                    Python packages are large)
  python [--short]  build the wheel of the Python package, and run its tests with two releases of PyTorch, and the programs of
                    examples/python (`--short`, a part of `test`: with one release, without those and without the wheel)
  cluster           run the programs of examples/cluster with torchrun, Slurm, Ray, Dask and Spark, and as Kubernetes starts
                    them: daemons and clusters of their own on this machine, whose nodes are killed (not part of `test`,
                    which runs those for torchrun, Kubernetes and, where it is installed, Slurm)
  cluster --claims [N…]
                    measure how well N (1 2 4 8 16 32 64) processes share work that takes no processor, and their requests
  package           pack the packages for the registry, and build each of them from what was packed (takes minutes;
                    `test` only packs them)
  test              provide everything, then check the format, lints, tests, documents and examples; ends with a list
                    of skipped and ignored tests
  setup [--model] [--onnxruntime]
                    provide libtorch (and the model, and ONNX Runtime), so that plain `cargo test` and `cargo run` work
  env               print the export lines that a crate of your own needs (with ONNX Runtime if it was set up):
                    eval \"$(cargo xtask env)\"

environment:
  LIBTORCH              use the libtorch 2.13.0 in this folder (an absolute path)
  ORT_DYLIB_PATH        use the library of ONNX Runtime in this file (an absolute path)
  LIBTORCH_USE_PYTORCH  use the libtorch of the torch 2.13.0 that Python imports
  TCX_DOWNLOADS         keep downloads here instead of $XDG_CACHE_HOME/tcx or ~/.cache/tcx
  TCX_PYTHON            use this Python, which has pyarrow, for the tests
  TCX_REQUIRE           what tests must not skip, separated by commas (pyarrow, pytorch, model, valgrind, chromium, rsync, git,
                        slurm, spark, moto, azurite, cuda, and the trials of `stress`: full, faults, fuzz, readers), or `all`
";

/// One call of this program.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Setup { model: bool, onnxruntime: bool },
    Env,
    Demo { arguments: Vec<OsString> },
    Bench { flag: Option<&'static str> },
    BenchDisks { folders: Vec<OsString> },
    BenchCompile,
    BenchRemote,
    Counts,
    Stress { arguments: Vec<OsString> },
    Simulate { seeds: u64, first: u64, is_remote: bool },
    Foreign,
    Backends,
    Ballista,
    Recipes,
    Remote { minutes: u64 },
    Package,
    Python { is_short: bool },
    Cluster { claims: Option<Vec<String>> },
    Test,
}

/// Parses the arguments, or names the one that is wrong.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Command, String> {
    let mut arguments = arguments.into_iter();
    let Some(name) = arguments.next() else { return Ok(Command::Help) };
    let rest: Vec<OsString> = arguments.collect();
    if asks_for_help(&name) || rest.first().is_some_and(|first| asks_for_help(first)) {
        return Ok(Command::Help);
    }
    match name.to_str() {
        Some("help") => Ok(Command::Help),
        Some("demo") => Ok(Command::Demo { arguments: without_separator(rest) }),
        Some("setup") => setup(&rest),
        Some("env") => alone(&name, &rest, Command::Env),
        Some("bench") => bench(&rest),
        Some("counts") => alone(&name, &rest, Command::Counts),
        Some("stress") => Ok(Command::Stress { arguments: rest }),
        Some("simulate") => simulate(&rest),
        Some("foreign") => alone(&name, &rest, Command::Foreign),
        Some("backends") => alone(&name, &rest, Command::Backends),
        Some("ballista") => alone(&name, &rest, Command::Ballista),
        Some("recipes") => alone(&name, &rest, Command::Recipes),
        Some("remote") => remote(&rest),
        Some("python") => python(&rest),
        Some("cluster") => cluster(&rest),
        Some("package") => alone(&name, &rest, Command::Package),
        Some("test") => alone(&name, &rest, Command::Test),
        _ => Err(format!("unknown command `{}`", name.display())),
    }
}

fn asks_for_help(argument: &OsStr) -> bool {
    argument == "--help" || argument == "-h"
}

fn setup(rest: &[OsString]) -> Result<Command, String> {
    let (mut model, mut onnxruntime) = (false, false);
    for flag in rest {
        match flag.to_str() {
            Some("--model") => model = true,
            Some("--onnxruntime") => onnxruntime = true,
            _ => {
                let found = flag.display();
                return Err(format!("`setup` takes only `--model` and `--onnxruntime`, found `{found}`"));
            }
        }
    }
    Ok(Command::Setup { model, onnxruntime })
}

fn remote(rest: &[OsString]) -> Result<Command, String> {
    let minutes = match rest {
        [] => Some(5),
        [flag, minutes] if flag == "--minutes" => minutes.to_str().and_then(|minutes| minutes.parse().ok()),
        _ => return Err("`remote` takes only `--minutes M`".to_owned()),
    };
    let minutes = minutes.filter(|minutes| *minutes > 0).ok_or("`--minutes` needs a whole number above 0")?;
    Ok(Command::Remote { minutes })
}

fn python(rest: &[OsString]) -> Result<Command, String> {
    match rest {
        [] => Ok(Command::Python { is_short: false }),
        [flag] if flag == "--short" => Ok(Command::Python { is_short: true }),
        [other, ..] => Err(format!("`python` takes only `--short`, found `{}`", other.display())),
    }
}

fn cluster(rest: &[OsString]) -> Result<Command, String> {
    match rest {
        [] => Ok(Command::Cluster { claims: None }),
        [flag, counts @ ..] if flag == "--claims" => {
            let number = |count: &OsString| {
                let found = count.to_str().filter(|count| count.parse::<u16>().is_ok_and(|count| count > 0));
                found.map(str::to_owned).ok_or_else(|| {
                    format!("`--claims` takes numbers of processes, found `{}`", count.display())
                })
            };
            Ok(Command::Cluster { claims: Some(counts.iter().map(number).collect::<Result<_, _>>()?) })
        }
        [other, ..] => Err(format!("`cluster` takes only `--claims N…`, found `{}`", other.display())),
    }
}

fn bench(rest: &[OsString]) -> Result<Command, String> {
    match rest {
        [] => Ok(Command::Bench { flag: None }),
        [flag] if flag == "--quick" => Ok(Command::Bench { flag: Some("--quick") }),
        [flag] if flag == "--check" => Ok(Command::Bench { flag: Some("--check") }),
        [flag] if flag == "--python" => Ok(Command::Bench { flag: Some("--python") }),
        [flag] if flag == "--compile" => Ok(Command::BenchCompile),
        [flag] if flag == "--remote" => Ok(Command::BenchRemote),
        [flag] if flag == "--disks" => Err("`bench --disks` needs one or more folders".to_owned()),
        [flag, folders @ ..] if flag == "--disks" => Ok(Command::BenchDisks { folders: folders.to_vec() }),
        [other, ..] => Err(format!(
            "`bench` takes `--quick`, `--check`, `--python`, `--compile`, `--remote` or `--disks DIR…`, found `{}`",
            other.display()
        )),
    }
}

/// How many seeds `simulate` runs by default, and which is the first.
const SEEDS: (u64, u64) = (100_000, 1_000_000);

fn simulate(mut rest: &[OsString]) -> Result<Command, String> {
    let ((mut seeds, mut first), mut is_remote) = (SEEDS, false);
    while let [flag, following @ ..] = rest {
        let into = match flag.to_str() {
            Some("--remote") => {
                (is_remote, rest) = (true, following);
                continue;
            }
            Some("--seeds") => &mut seeds,
            Some("--first") => &mut first,
            _ => {
                let found = flag.display();
                return Err(format!("`simulate` takes `--remote`, `--seeds` and `--first`, found `{found}`"));
            }
        };
        let [number, following @ ..] = following else {
            return Err(format!("`{}` needs a number", flag.display()));
        };
        *into = number.to_str().and_then(|number| number.parse().ok()).ok_or_else(|| {
            format!("`{}` needs a whole number, found `{}`", flag.display(), number.display())
        })?;
        rest = following;
    }
    Ok(Command::Simulate { seeds, first, is_remote })
}

fn alone(name: &OsStr, rest: &[OsString], command: Command) -> Result<Command, String> {
    match rest {
        [] => Ok(command),
        [other, ..] => Err(format!("`{}` takes no arguments, found `{}`", name.display(), other.display())),
    }
}

/// `demo -- --help` passes `--help` to the demo.
fn without_separator(mut rest: Vec<OsString>) -> Vec<OsString> {
    if rest.first().is_some_and(|first| first == "--") {
        rest.remove(0);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn commands_are_understood() {
        assert_eq!(parsed(""), Ok(Command::Help));
        assert_eq!(parsed("--help"), Ok(Command::Help));
        assert_eq!(parsed("demo --help"), Ok(Command::Help));
        assert_eq!(parsed("setup"), Ok(Command::Setup { model: false, onnxruntime: false }));
        let both = Command::Setup { model: true, onnxruntime: true };
        assert_eq!(parsed("setup --onnxruntime --model"), Ok(both));
        assert_eq!(parsed("setup --model"), Ok(Command::Setup { model: true, onnxruntime: false }));
        assert_eq!(parsed("env"), Ok(Command::Env));
        assert_eq!(parsed("test"), Ok(Command::Test));
        assert_eq!(parsed("counts"), Ok(Command::Counts));
        assert_eq!(parsed("foreign"), Ok(Command::Foreign));
        assert_eq!(parsed("backends"), Ok(Command::Backends));
        assert_eq!(parsed("ballista"), Ok(Command::Ballista));
        assert_eq!(parsed("recipes"), Ok(Command::Recipes));
        assert_eq!(parsed("package"), Ok(Command::Package));
        assert_eq!(parsed("cluster"), Ok(Command::Cluster { claims: None }));
        let claims = Some(vec!["1".to_owned(), "64".to_owned()]);
        assert_eq!(parsed("cluster --claims 1 64"), Ok(Command::Cluster { claims }));
        assert!(parsed("cluster --claims many").unwrap_err().contains("`many`"));
        assert_eq!(parsed("remote"), Ok(Command::Remote { minutes: 5 }));
        assert_eq!(parsed("remote --minutes 1"), Ok(Command::Remote { minutes: 1 }));
        let simulate = |seeds, first, is_remote| Ok(Command::Simulate { seeds, first, is_remote });
        assert_eq!(parsed("simulate"), simulate(100_000, 1_000_000, false));
        assert_eq!(parsed("simulate --first 7 --seeds 10"), simulate(10, 7, false));
        assert_eq!(parsed("simulate --remote --seeds 10"), simulate(10, 1_000_000, true));
        assert_eq!(parsed("bench"), Ok(Command::Bench { flag: None }));
        assert_eq!(parsed("bench --quick"), Ok(Command::Bench { flag: Some("--quick") }));
        assert_eq!(parsed("bench --check"), Ok(Command::Bench { flag: Some("--check") }));
        assert_eq!(parsed("bench --python"), Ok(Command::Bench { flag: Some("--python") }));
        let folders = vec!["/tmp".into(), "cache".into()];
        assert_eq!(parsed("bench --disks /tmp cache"), Ok(Command::BenchDisks { folders }));
        assert_eq!(parsed("bench --compile"), Ok(Command::BenchCompile));
        assert_eq!(parsed("bench --remote"), Ok(Command::BenchRemote));
        let arguments = vec!["--minutes".into(), "5".into()];
        assert_eq!(parsed("stress --minutes 5"), Ok(Command::Stress { arguments }));
    }

    #[test]
    fn the_demo_gets_its_arguments_unread() {
        let expected =
            |list: &[&str]| Ok(Command::Demo { arguments: list.iter().map(OsString::from).collect() });
        assert_eq!(parsed("demo --limit 10 folder"), expected(&["--limit", "10", "folder"]));
        assert_eq!(parsed("demo -- --help"), expected(&["--help"]));
        assert_eq!(parsed("demo --limit 10 --help"), expected(&["--limit", "10", "--help"]));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parsed("tset").unwrap_err().contains("`tset`"));
        assert!(parsed("test --fast").unwrap_err().contains("`--fast`"));
        assert!(parsed("bench --fast").unwrap_err().contains("`--fast`"));
        assert!(parsed("bench --disks").unwrap_err().contains("needs one or more folders"));
        assert!(parsed("remote --minutes x").unwrap_err().contains("`--minutes`"));
        assert!(parsed("remote 5").unwrap_err().contains("`--minutes M`"));
        assert!(parsed("simulate --seed 5").unwrap_err().contains("`--seed`"));
        assert!(parsed("simulate --seeds").unwrap_err().contains("`--seeds`"));
        assert!(parsed("simulate --seeds -5").unwrap_err().contains("`-5`"));
        assert!(parsed("setup --modle").unwrap_err().contains("`--modle`"));
    }
}
