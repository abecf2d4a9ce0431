"""Collects the fields of a result: model, machine, origin and scores."""

import jax
import jax.numpy as jnp

from lra.experiment import build
from lra.nn import draws
from lra.records import result
from lra.system import machine
from lra.training import provenance
from lra.training.program import Program, count_parameters
from lra.training.shared import Shared


def kernel(program: Program) -> str:
  """Returns the kernel that the mixers run; `xla` if there is no choice."""
  config = program.config
  mixer = build.encoder(config, program.objective.task, program.dtype).mixer(
      dtype=jnp.dtype(program.dtype))
  runs = getattr(mixer, 'kernel_for', None)
  if runs is None:
    return 'xla'
  cls = config.encoder.pooling == 'cls'
  return runs(program.objective.seq_len + cls, config.encoder.width)


def identity(program: Program, shared: Shared) -> dict:
  """Returns origin, parameter counts, device, kernel and flags of a run.

  They are for env.json and results. The first run of a process reads the
  origin for all: files that are edited later are not the ones that run.

  Raises:
    UserError: the name of the model or protocol is not valid in a record.
  """
  config = program.config
  name = config.model.name
  result.check_name('model', name)
  result.check_name('protocol', config.protocol)
  # First, since an impossible kernel must fail before the origin may warn.
  kernel_name = kernel(program)
  return {**shared.once(f'origin of {name}', lambda: provenance.of_model(name)),
          'changes': provenance.changes(config.to_dict()),
          'runs_at_once': shared.runs_at_once,
          'draws': draws.SCHEME, **sizes(program),
          'kernel': kernel_name, 'device': machine.device_name(),
          'xla_flags': machine.xla_flags(), 'num_devices': program.mesh.size,
          'num_processes': jax.process_count(), 'dtype': program.dtype,
          **count_parameters(program.state_shape)}


def sizes(program: Program) -> dict[str, int]:
  """Returns the batch sizes of a run on its hardware."""
  return {'microbatch_size': program.sizes.microbatch,
          'eval_batch_size': program.sizes.eval_batch}


def outcome(program: Program, status: str, step: int, progress,
            **fields) -> dict:
  """Returns the fields of result.json.

  Args:
    program: the trained program.
    status: ok, diverged, oom or stopped.
    step: updates made.
    progress: `progress.Progress` of the run.
    **fields: `test`, `floors` (baselines), `data_fingerprint`, `data_origin`
      and those of `identity`.
  """
  config, objective = program.config, program.objective
  best = progress.scores_best(config)
  speed = progress.timed_steps / max(progress.train_seconds, 1e-9)
  documents = 2 if objective.task.dual else 1
  tokens = config.train.batch_size * objective.seq_len * documents
  return {
      'status': status, 'objective': config.objective, 'task': config.task,
      'model': config.model.name, 'protocol': config.protocol,
      'seed': config.seed, 'steps': step,
      'best_step': progress.best_step if best else step,
      'val': progress.best_val if best else progress.last_val,
      'steps_per_s': speed, 'tokens_per_s': speed * tokens,
      'peak_memory_bytes': progress.peak_memory_bytes,
      'train_seconds': progress.train_seconds,
      'eval_seconds': progress.eval_seconds,
      'compile_seconds': progress.compile_seconds,
      'config': config.to_dict(), **fields}
