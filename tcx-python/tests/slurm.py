"""A real Slurm on this machine: its controller, one node, and munge, in a folder of their own, started and stopped by the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

#: Where Debian has the daemons.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue")
#: How many tasks run at the same time, whatever this machine has.
CPUS = 8

CONFIGURATION = """
ClusterName=tcx
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# What a machine without cgroups has.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be no Slurm here."""
    lacking = [own for own in PROGRAMS if shutil.which(own, path=PATH) is None]
    if lacking:
        return f"there is no {', '.join(lacking)}: install slurm-wlm and munge"
    return None if os.geteuid() == 0 else "the daemons of Slurm need root here"


class Slurm:
    """Daemons whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        # Munge refuses a socket that not all users can reach.
        folder.chmod(0o755)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        text = CONFIGURATION.format(host=socket.gethostname(), folder=folder, controller=_port(), node=_port(), cpus=CPUS)
        (folder / "slurm.conf").write_text(text)
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Starts the daemons, and waits until the node takes jobs."""
        munge = ["--key-file", "munge.key", "--socket", "munge.socket", "--pid-file", "munged.pid", "--log-file", "munged.log", "--seed-file", "munged.seed"]
        self._daemon("munged", "--foreground", "--force", *(f"{self.folder}/{own}" if own.startswith("munge") else own for own in munge))
        self._daemon("slurmctld", "-D", "-c")
        self._daemon("slurmd", "-D")
        deadline = time.monotonic() + 60
        while "idle" not in self.run("sinfo", "--noheader", "--format=%T", check=False):
            assert time.monotonic() < deadline and all(own.poll() is None for own in self._daemons), self.logs()
            time.sleep(0.2)

    def _daemon(self, *command: str) -> None:
        out = (self.folder / f"{command[0]}.out").open("wb")
        self._daemons.append(subprocess.Popen(command, env=self.environment, stdout=out, stderr=subprocess.STDOUT))

    def run(self, *command: str, check: bool = True, **settings: object) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=240, **settings)
        assert done.returncode == 0 or not check, f"{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        """What the daemons have logged."""
        return "\n".join(f"{own.name}: {own.read_text(errors='replace')[-3000:]}" for own in sorted(self.folder.glob("*.[lo][ou][gt]")))

    def stop(self) -> None:
        """Ends what runs, and the daemons."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--user=root", check=False)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _port() -> int:
    """A port that is free now."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]
