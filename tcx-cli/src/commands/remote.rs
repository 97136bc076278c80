//! `tcx push`, `pull` and `sync`: copies modules between a cache directory and an object store.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use serde::Serialize;
use tcx_remote::{Bucket, ClientOptions, Copied, Location};

use crate::args::Copying;
use crate::cache;
use crate::cache::store::failure;
use crate::console::output::{BAD, Output, Report};
use crate::console::progress;
use crate::failure::{Code, Failure, Result, Verdict};
use crate::text::human;

/// Copies one module; the function gets the bytes that were copied and those to copy.
type Copy<'a> = dyn Fn(&str, &mut (dyn FnMut(u64, u64) + Send)) -> io::Result<Copied> + 'a;

#[derive(Debug, Serialize)]
struct Done {
    modules: Vec<Module>,
    failed: Vec<Failed>,
    requests: Requests,
}

/// What became of the modules so far.
#[derive(Debug, Default)]
struct Copies {
    modules: Vec<Module>,
    failed: Vec<Failed>,
    /// Whether the last error would be that of the other modules as well.
    is_over: bool,
}

/// A module that was not copied, or not as a whole.
#[derive(Debug, Serialize)]
struct Failed {
    module: String,
    direction: &'static str,
    error: String,
    #[serde(skip)]
    code: Code,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    /// `push` or `pull`.
    direction: &'static str,
    files: u64,
    bytes: u64,
    present: u64,
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Serialize)]
struct LeftOut {
    file: String,
    why: String,
}

/// What the store has charged for, in two groups as most do.
#[derive(Debug, Serialize)]
struct Requests {
    puts_and_lists: u64,
    gets: u64,
    bytes_sent: u64,
    bytes_received: u64,
}

pub(super) fn push(copying: &Copying, output: &Output) -> Result<Verdict> {
    let bucket = connect(copying)?;
    let modules = cache::chosen(&copying.dir, copying.module.as_deref())?;
    let mut done = Copies::default();
    done.push_all(&bucket, &copying.dir, modules);
    done.show(&bucket, output)
}

pub(super) fn pull(copying: &Copying, output: &Output) -> Result<Verdict> {
    let bucket = connect(copying)?;
    let modules = modules_of(&bucket, copying.module.as_deref())?;
    if modules.is_empty() {
        return Err(Failure::new(Code::NotFound, format!("no modules in {}", bucket.url())));
    }
    let mut done = Copies::default();
    done.pull_all(&bucket, &copying.dir, modules);
    done.show(&bucket, output)
}

pub(super) fn sync(copying: &Copying, output: &Output) -> Result<Verdict> {
    let bucket = connect(copying)?;
    let chosen = copying.module.as_deref();
    let there = modules_of(&bucket, chosen)?;
    let here = if copying.dir.exists() { cache::place::any(&copying.dir)? } else { Vec::new() };
    let mut here: Vec<_> = here.into_iter().filter(|own| chosen.is_none_or(|chosen| chosen == own)).collect();
    if here.is_empty() && there.is_empty() {
        let message = format!("no modules in {} and {}", copying.dir.display(), bucket.url());
        return Err(Failure::new(Code::NotFound, message));
    }
    let mut done = Copies::default();
    // First what others have added: what is sent then belongs to the changes that are known there.
    done.pull_all(&bucket, &copying.dir, there);
    here.retain(|own| done.failed.iter().all(|failed| failed.module != *own));
    done.push_all(&bucket, &copying.dir, here);
    done.show(&bucket, output)
}

fn connect(copying: &Copying) -> Result<Bucket> {
    cache::place::check_directory(&copying.dir)?;
    let mut options = ClientOptions::default();
    if let Some(deadline) = copying.deadline {
        options = options.deadline(deadline);
    }
    match Location::parse(&copying.url).map_err(failure)? {
        Location::Store(url) => Bucket::new(url, options).map_err(failure),
        Location::Directory(path) => Err(Failure::usage(format!(
            "{} is a directory, expected the URL of an object store, such as s3://bucket/prefix; copy directories with `cp` or `rsync`, or \
             add the rows of one to another with `tcx merge`",
            path.display()
        ))),
    }
}

fn modules_of(bucket: &Bucket, chosen: Option<&str>) -> Result<Vec<String>> {
    let mut modules = tcx_remote::modules(bucket).map_err(failure)?;
    modules.retain(|own| chosen.is_none_or(|chosen| chosen == own));
    Ok(modules)
}

impl Copies {
    fn push_all(&mut self, bucket: &Bucket, dir: &Path, modules: Vec<String>) {
        let push = |module: &str, progress: &mut (dyn FnMut(u64, u64) + Send)| {
            tcx_remote::push(dir, bucket, module, progress)
        };
        self.copy(("push", "sending"), modules, &push);
    }

    fn pull_all(&mut self, bucket: &Bucket, dir: &Path, modules: Vec<String>) {
        let pull = |module: &str, progress: &mut (dyn FnMut(u64, u64) + Send)| {
            tcx_remote::pull(bucket, dir, module, progress)
        };
        self.copy(("pull", "receiving"), modules, &pull);
    }

    /// A module that is refused does not keep the others from being copied.
    fn copy(&mut self, (direction, verb): (&'static str, &str), modules: Vec<String>, copy: &Copy<'_>) {
        for module in modules {
            if self.is_over {
                return;
            }
            let bar = progress::bytes(format!("{verb} {module}"));
            let copied = copy(&module, &mut progress::follow(&bar));
            bar.finish_and_clear();
            match copied {
                Ok(Copied { files, bytes, present, left_out, .. }) => {
                    let left_out = left_out.into_iter().map(|(file, why)| LeftOut { file, why }).collect();
                    self.modules.push(Module { module, direction, files, bytes, present, left_out });
                }
                Err(error) => {
                    self.is_over = concerns_all(&error);
                    let Failure { code, message: error } = failure(error);
                    self.failed.push(Failed { module, direction, error, code });
                }
            }
        }
    }

    /// Prints what was done, and then the errors. The one with the highest code is returned.
    fn show(self, bucket: &Bucket, output: &Output) -> Result<Verdict> {
        let asked = bucket.requests();
        let requests = Requests {
            puts_and_lists: asked.puts + asked.lists,
            gets: asked.gets + asked.heads,
            bytes_sent: asked.sent,
            bytes_received: asked.received,
        };
        let Self { modules, failed, .. } = self;
        let is_whole = modules.iter().all(|module| module.left_out.is_empty());
        let done = Done { modules, failed, requests };
        if done.failed.is_empty() || !done.modules.is_empty() {
            output.show(&done)?;
        }
        let failures = done.failed.into_iter().map(|Failed { code, error, .. }| Failure::new(code, error));
        let mut failures: Vec<_> = failures.collect();
        failures.sort_by_key(|failure| failure.code as u8);
        let worst = failures.pop();
        for failure in &failures {
            output.fail(failure);
        }
        worst.map_or(Ok(Verdict::good_if(is_whole)), Err)
    }
}

/// Whether an error is not of one module: the store is away or refuses this process, or the disk is full.
fn concerns_all(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotConnected
            | ErrorKind::TimedOut
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
            | ErrorKind::StorageFull
    )
}

impl Report for Done {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for Module { module, direction, files, bytes, present, left_out } in &self.modules {
            let verb = if *direction == "push" { "sent" } else { "received" };
            let (copied, there) = (human::counted(*files, "file"), human::count(*present));
            writeln!(to, "{module}: {verb} {copied} ({}), {there} were there", human::size(*bytes))?;
            for LeftOut { file, why } in left_out {
                writeln!(to, "  {file}: {BAD}left out{BAD:#}, {why}")?;
            }
        }
        let Requests { puts_and_lists, gets, .. } = &self.requests;
        writeln!(
            to,
            "{} and {} in all",
            human::counted(*puts_and_lists, "PUT or LIST request"),
            human::counted(*gets, "GET request")
        )
    }
}
