"""Runs a one-node Slurm cluster in a folder, without munge or cgroups."""

import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import time

PROGRAMS = ('slurmctld', 'slurmd', 'sbatch', 'srun', 'scontrol', 'squeue',
            'scancel')
_CONFIG = """\
ClusterName=test
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
KillWait=30
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
  """Returns why Slurm cannot run here, or '' if it can."""
  absent = [name for name in PROGRAMS if shutil.which(name) is None]
  if absent:
    return f'Slurm is not installed: there is no {absent[0]}'
  return '' if os.getuid() == 0 else 'slurmd starts jobs for root only'


class Slurm:
  """A running cluster; `close` ends it.

  Attributes:
    environment: environment variables with which Slurm's commands find it.
  """

  def __init__(self, folder: pathlib.Path):
    for name in ('state', 'spool'):
      (folder / name).mkdir()
    config = folder / 'slurm.conf'
    config.write_text(_CONFIG.format(
        host=socket.gethostname(), user=getpass.getuser(), folder=folder,
        ports=_free_ports(2), cores=os.cpu_count()))
    self.environment = {'SLURM_CONF': str(config)}
    self._daemons, self._log = [], open(folder / 'log', 'w')
    for command in (['slurmctld', '-i', '-D'], ['slurmd', '-D']):
      self._daemons.append(subprocess.Popen(
          command, env={**os.environ, **self.environment}, stdout=self._log,
          stderr=self._log))
    deadline = time.monotonic() + 60
    while 'idle' not in self.ask('sinfo', '--noheader', '--format=%t'):
      assert time.monotonic() < deadline, (folder / 'log').read_text()
      time.sleep(0.2)

  def ask(self, *command: str) -> str:
    """Runs a Slurm command and returns its output."""
    done = subprocess.run(
        command, env={**os.environ, **self.environment}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout

  def jobs(self) -> dict[str, str]:
    """Maps each unfinished job to its state, such as RUNNING."""
    lines = self.ask('squeue', '--noheader', '--array', '--format=%i %T')
    return dict(line.split() for line in lines.splitlines())

  def close(self) -> None:
    self.ask('scancel', '--user', getpass.getuser())
    for daemon in reversed(self._daemons):
      daemon.terminate()
      daemon.wait()
    self._log.close()


def _free_ports(count):
  sockets = [socket.socket() for _ in range(count)]
  for one in sockets:
    one.bind(('', 0))
  ports = [one.getsockname()[1] for one in sockets]
  for one in sockets:
    one.close()
  return ports
