"""Trains a config: loads or resumes its run, trains, validates and scores."""

import contextlib
import pathlib
from collections.abc import Sequence

import jax

from lra import paths
from lra.records.result import Result
from lra.system import distributed, machine
from lra.system.distributed import leads, several
from lra.system.terminal import TIME_LIMIT, StopRequest, bar, say
from lra.training.shared import Shared
from lra.training.trainer import Diverged, Trainer


def train(config, folder: pathlib.Path, max_minutes: float | None = None,
          log: Sequence[str] = (), profiled: range = range(0),
          shared: Shared | None = None) -> Result:
  """Trains to the end, a stop or a failure, and scores.

  An interrupted run resumes from its newest checkpoint.

  Args:
    config: the whole config, without references.
    folder: the run directory.
    max_minutes: stop, with a checkpoint, after so many minutes.
    log: names of writers besides metrics.jsonl; see `writers.WRITERS`.
    profiled: updates, from 1, to trace in `profile/`.
    shared: data and compiled steps of other runs of this process.

  Returns:
    The result, which is in the run directory too.

  Raises:
    UserError: the config, the data, the directory or its checkpoint is not
      valid; see `program.make`, `prepared.load`, `Run` and `Checkpoints`.
  """
  folder, t = paths.local(folder), config.train
  with StopRequest(max_minutes) as own, contextlib.closing(
      Trainer(config, folder, log, profiled if leads() else range(0),
              shared)) as trainer:
    status, test = 'stopped', None
    begun = trainer.step, trainer.progress.validated_step
    stop = trainer.listen(own)
    try:
      trainer.compile()
      with bar(total=t.steps, done=trainer.step, what=trainer.title) as shown:
        while not stop.reason:
          if trainer.validation_due() and trainer.validate(stop):
            trainer.save()
          if trainer.step == t.steps or stop.reason:
            break
          if stop.checkpoint(
              due=trainer.minutes_since_save() > t.checkpoint_minutes):
            trainer.save()
          trainer.update(trainer.next_batch())
          shown.update()
          if trainer.step % t.log_every == 0 or trainer.step == t.steps:
            shown.set_postfix_str(trainer.log(), refresh=False)
      if not stop.reason:
        test = trainer.score(stop)
      if test is None:
        trainer.save()
        say(f'{trainer.title}: stopped at step {trainer.step} '
            f'({stop.reason}): the same '
            'command continues from here.')
        if stop.reason == TIME_LIMIT and begun == (
            trainer.step, trainer.progress.validated_step):
          say(f'{trainer.title}: no training step, validation or test finished '
              'within --max_minutes. If this happens again, increase '
              '--max_minutes.')
      else:
        status = 'ok'
    except Diverged:
      status = 'diverged'
    except jax.errors.JaxRuntimeError as e:
      status = 'oom'
      if not machine.out_of_memory(e):
        if several() and distributed.lost(e):
          distributed.abandon(e)
        raise
    return trainer.finish(status, test)
