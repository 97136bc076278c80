//! Slurm: the daemons and commands of the distribution, for tests that start a cluster of their own.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process;

/// What a cluster needs. Debian has the daemons where only root looks for programs.
const PROGRAMS: [&str; 4] = ["munged", "slurmctld", "slurmd", "srun"];
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/bin", "/sbin"];

/// Installs Slurm, where the distribution has it and this user may. Returns why it is not available.
pub(crate) fn provide() -> Option<String> {
    if are_there() {
        return None;
    }
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let installed = process::run(
        apt.args(["install", "--yes", "slurm-wlm", "munge"]),
        "`apt-get install slurm-wlm munge`",
    );
    match installed {
        Ok(()) if are_there() => None,
        Ok(()) => Some("slurm-wlm and munge are installed, but have no daemons".to_owned()),
        Err(failure) => Some(format!("Slurm cannot be installed: {failure}; install slurm-wlm and munge")),
    }
}

fn are_there() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = || FOLDERS.iter().map(Path::new).map(Path::to_owned).chain(env::split_paths(&path));
    PROGRAMS.iter().all(|program| folders().any(|folder| folder.join(program).is_file()))
}
