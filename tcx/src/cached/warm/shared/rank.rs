//! The rank of a process, as launchers say it.

use std::fmt;

use crate::{Error, ErrorKind, Result};

/// Which of several processes this one is. [`from_env`](Self::from_env) reads it from the environment.
///
/// ```
/// use tcx::Rank;
///
/// let rank = Rank::new(3, 8)?;
/// assert_eq!((rank.rank(), rank.world(), rank.to_string()), (3, 8, "rank 3 of 8".to_owned()));
/// assert!(Rank::new(8, 8).is_err());
/// # Ok::<(), tcx::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    rank: u64,
    world: u64,
}

impl Rank {
    /// The process `rank`, counted from 0, of `world` processes.
    ///
    /// # Errors
    ///
    /// Returns an error if `rank` is not below `world`.
    pub fn new(rank: u64, world: u64) -> Result<Self> {
        if rank < world {
            return Ok(Self { rank, world });
        }
        Err(invalid(
            format!("rank {rank} of {world} processes"),
            "ranks are counted from 0, and are below the number of processes",
        ))
    }

    /// The rank that a launcher gave this process. The first of these that is set counts:
    ///
    /// 1. `RANK` and `WORLD_SIZE` (torchrun);
    /// 2. `SLURM_PROCID` with `SLURM_STEP_NUM_TASKS`, or else `SLURM_NTASKS` (srun);
    /// 3. `JOB_COMPLETION_INDEX` (Kubernetes) with `JOB_COMPLETIONS`. Kubernetes does not set the second: set it in the manifest to the
    ///    number of completions.
    ///
    /// ```no_run
    /// let rank = tcx::Rank::from_env()?;
    /// println!("this is {rank}");
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if no variable is set, if one is missing or is no number, and if they contradict each other: where every
    /// process would do the work of all, or this one alone the work of one of several.
    pub fn from_env() -> Result<Self> {
        Self::read(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The number of this process.
    pub fn rank(self) -> u64 {
        self.rank
    }

    /// How many processes there are.
    pub fn world(self) -> u64 {
        self.world
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variables = Variables(variable);
        if variables.has("RANK") || variables.has("WORLD_SIZE") {
            return variables.torchrun();
        }
        if variables.has("SLURM_PROCID") {
            return variables.slurm();
        }
        if variables.has("JOB_COMPLETION_INDEX") {
            return variables.pair("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS");
        }
        Err(invalid(
            "the environment names no rank: neither `RANK`, nor `SLURM_PROCID`, nor `JOB_COMPLETION_INDEX` is set",
            "start the program with torchrun or srun, set the rank with `rank`, or share the work with `run_shared`, which needs none",
        ))
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.world)
    }
}

/// The environment.
struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn has(&self, name: &str) -> bool {
        (self.0)(name).is_some()
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(value) = (self.0)(name) else { return Ok(None) };
        let number = value.trim().parse();
        number.map(Some).map_err(|_| {
            invalid(format!("`{name}` is {value:?}, expected a number"), "set it to a number from 0")
        })
    }

    /// Two variables that are set together.
    fn pair(&self, rank: &str, world: &str) -> Result<Rank> {
        let (Some(own), Some(all)) = (self.number(rank)?, self.number(world)?) else {
            let (set, missing) = if self.has(rank) { (rank, world) } else { (world, rank) };
            return Err(invalid(format!("`{set}` is set, and `{missing}` is not"), "set both, or neither"));
        };
        if own < all {
            return Ok(Rank { rank: own, world: all });
        }
        Err(invalid(
            format!("`{rank}` is {own}, and `{world}` is {all}"),
            "ranks are counted from 0, and are below the number of processes",
        ))
    }

    fn torchrun(&self) -> Result<Rank> {
        let rank = self.pair("RANK", "WORLD_SIZE")?;
        // torchrun starts one process or more in each task of Slurm.
        match self.number("SLURM_STEP_NUM_TASKS")? {
            Some(tasks) if tasks > rank.world => Err(invalid(
                format!(
                    "`WORLD_SIZE` is {}, and `SLURM_STEP_NUM_TASKS` is {tasks}: several tasks would have the same rank",
                    rank.world
                ),
                "unset `RANK` and `WORLD_SIZE`, which are those of another program, or set the rank with `rank`",
            )),
            _ => self.agrees_with_slurm(rank),
        }
    }

    /// Refuses a rank that is not the one of Slurm, where both number the same processes. torchrun says that it has started this
    /// process by `TORCHELASTIC_RUN_ID`, and numbers its processes in an order of its own. A batch script that was not started with srun
    /// has a rank as well, which the processes that it starts inherit.
    fn agrees_with_slurm(&self, rank: Rank) -> Result<Rank> {
        let Rank { rank: own, world } = rank;
        let is_step =
            ["SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"].iter().any(|name| self.has(name));
        match (self.number("SLURM_PROCID")?, self.number(self.tasks())?) {
            (Some(task), Some(tasks))
                if is_step && tasks == world && task != own && !self.has("TORCHELASTIC_RUN_ID") =>
            {
                Err(invalid(
                    format!(
                        "`RANK` is {own} and `SLURM_PROCID` is {task}, each of {world} processes: they contradict each other"
                    ),
                    "unset `RANK` and `WORLD_SIZE` if they are those of another program, or set the rank with `rank`",
                ))
            }
            _ => Ok(rank),
        }
    }

    /// The variable with the number of tasks that have a rank of Slurm.
    fn tasks(&self) -> &'static str {
        if self.has("SLURM_STEP_NUM_TASKS") { "SLURM_STEP_NUM_TASKS" } else { "SLURM_NTASKS" }
    }

    fn slurm(&self) -> Result<Rank> {
        let tasks = self.tasks();
        let rank = self.pair("SLURM_PROCID", tasks)?;
        if rank.world > 1 && !self.has("SLURM_STEP_ID") && !self.has("SLURM_STEPID") {
            return Err(invalid(
                format!(
                    "`{tasks}` is {}, but this process is the batch script's own, and the only one",
                    rank.world
                ),
                "start the program with srun",
            ));
        }
        match self.number("SLURM_ARRAY_TASK_COUNT")? {
            Some(count) if count > 1 => Err(invalid(
                format!(
                    "this is one of {count} tasks of a job array, in each of which `SLURM_PROCID` begins with 0"
                ),
                "set the rank with `rank`, or share the work with `run_shared`, which needs none",
            )),
            _ => Ok(rank),
        }
    }
}

fn invalid(what: impl Into<Box<str>>, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidSettings, what).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Python package reads the same list.
    const CASES: &str = include_str!("rank_cases.txt");

    fn read(variables: &str) -> Result<Rank> {
        let variables = variables.split(' ').filter_map(|variable| variable.split_once('='));
        let variables: Vec<_> = variables.filter(|(_, value)| !value.is_empty()).collect();
        let find = |name: &str| variables.iter().find(|(own, _)| *own == name);
        Rank::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    /// The environments that are refused or not, and what is expected of them.
    fn cases(are_refused: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
        let cases = CASES.lines().filter_map(|line| line.split_once(" => "));
        let cases: Vec<_> =
            cases.filter(|(_, expected)| expected.starts_with("refused: ") == are_refused).collect();
        assert!(cases.len() > 5);
        cases.into_iter()
    }

    #[test]
    fn launchers_say_the_rank() {
        for (variables, expected) in cases(false) {
            assert_eq!(read(variables).unwrap().to_string(), expected, "{variables}");
        }
    }

    #[test]
    fn a_malformed_or_contradictory_environment_is_refused_with_its_variables() {
        for (variables, expected) in cases(true) {
            let (error, what) = (read(variables).unwrap_err(), expected.trim_start_matches("refused: "));
            assert_eq!(error.kind(), ErrorKind::InvalidSettings);
            assert!(error.to_string().contains(what), "{variables}: {error}");
        }
    }
}
