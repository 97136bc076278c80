//! Counts the system calls of running processes with `ptrace`, as the kernel sees them: no library can hide one. Every call counts
//! that does not only concern memory, time, threads or signals.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Calls that no file system sees.
const OTHERS: [i64; 27] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_membarrier,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
];

/// `op` of a stop at the beginning of a call.
const ENTRY: u8 = libc::PTRACE_SYSCALL_INFO_ENTRY;

/// Whether this process may count the calls of its children; the reason if not.
pub(super) fn are_counted() -> nix::Result<()> {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().map_err(|_| Errno::ENOENT)?;
    let counted = count(&[child.id()], Duration::ZERO);
    drop(child.stdin.take());
    let _ = child.wait();
    counted.map(drop)
}

/// The number of calls of each process in this time, or until all have ended.
pub(super) fn count(processes: &[u32], time: Duration) -> nix::Result<Vec<usize>> {
    // A thread of its own: it waits for what it traces, and for no other child of this process.
    let count = || {
        let mut tracer = Tracer { processes: BTreeMap::new(), calls: vec![0; processes.len()] };
        let counted = processes.iter().enumerate().try_for_each(|(number, id)| tracer.attach(number, *id));
        counted.and_then(|()| tracer.trace(time))?;
        tracer.detach()?;
        Ok(tracer.calls)
    };
    thread::scope(|scope| scope.spawn(count).join()).unwrap_or(Err(Errno::ECHILD))
}

struct Tracer {
    /// The number of the process of each thread.
    processes: BTreeMap<Pid, usize>,
    calls: Vec<usize>,
}

impl Tracer {
    /// Traces all threads of a process, and those that they start.
    fn attach(&mut self, number: usize, process: u32) -> nix::Result<()> {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).map_err(|_| Errno::ESRCH)?;
        let ids = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
        for thread in ids.map(Pid::from_raw) {
            ptrace::seize(thread, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE)?;
            self.processes.insert(thread, number);
            ptrace::interrupt(thread)?;
        }
        Ok(())
    }

    fn trace(&mut self, time: Duration) -> nix::Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            let Some((thread, signal)) = self.stopped()? else { return Ok(()) };
            let _ended = ptrace::syscall(thread, signal);
        }
        Ok(())
    }

    /// Waits for the next thread that stops, and counts its call; returns it with the signal to pass on. `None` if all have
    /// ended.
    fn stopped(&mut self) -> nix::Result<Option<(Pid, Option<Signal>)>> {
        loop {
            match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Ok(WaitStatus::PtraceSyscall(thread)) => {
                    self.note(thread);
                    return Ok(Some((thread, None)));
                }
                Ok(WaitStatus::PtraceEvent(thread, _, event)) => {
                    self.note_start(thread, event);
                    return Ok(Some((thread, None)));
                }
                Ok(WaitStatus::Stopped(thread, signal)) => return Ok(Some((thread, Some(signal)))),
                Ok(WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..)) => {
                    self.processes.remove(&thread);
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts a call at its beginning.
    fn note(&mut self, thread: Pid) {
        let is_entry = ptrace::syscall_info(thread).is_ok_and(|call| call.op == ENTRY);
        let call = || std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok();
        let number = |call: String| call.split(' ').next()?.parse().ok();
        // An unknown call counts.
        let concerns_files = || call().and_then(number).is_none_or(|number| !OTHERS.contains(&number));
        if is_entry
            && concerns_files()
            && let Some(process) = self.processes.get(&thread)
        {
            self.calls[*process] += 1;
        }
    }

    /// Notes which process a new thread is of.
    fn note_start(&mut self, thread: Pid, event: i32) {
        let new = (event == Event::PTRACE_EVENT_CLONE as i32).then(|| ptrace::getevent(thread));
        if let (Some(Ok(new)), Some(process)) = (new, self.processes.get(&thread)) {
            self.processes.insert(Pid::from_raw(new as i32), *process);
        }
    }

    /// Lets every thread go on by itself.
    fn detach(&mut self) -> nix::Result<()> {
        for thread in self.processes.keys() {
            let _ended = ptrace::interrupt(*thread);
        }
        while !self.processes.is_empty() {
            let Some((thread, signal)) = self.stopped()? else { return Ok(()) };
            let _ended = ptrace::detach(thread, signal);
            self.processes.remove(&thread);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_on_files_is_counted() {
        if let Err(why) = are_counted() {
            return tcx_test_skips::skip("readers", why.to_string());
        }
        // The calls begin after the process is traced: one read and one write for each byte, and hundreds to find libraries. No call
        // counts twice.
        let script = "sleep 0.5; exec dd if=/dev/zero of=/dev/null bs=1 count=3000 status=none";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let counted = count(&[child.id()], Duration::from_mins(1)).unwrap();
        // The tracer has waited for it when it ended, so this fails.
        let _waited = child.wait();
        assert!((6000..9000).contains(&counted[0]), "{counted:?}");
    }
}
