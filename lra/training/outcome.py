"""What a run says of itself: identity of model and machine, and its result."""

import jax.numpy as jnp

from lra import machine
from lra.training import build
from lra.training.program import Program, count_parameters


def implementation(program: Program) -> str:
  """Name of the kernel that the mixers run; `xla` where there is no choice."""
  mixer = program.model.encoder.mixer(
      dtype=jnp.dtype(build.DTYPES[program.config.dtype]))
  describe = getattr(mixer, 'implementation', None)
  if describe is None:
    return 'xla'
  cls = program.config.encoder.pooling == 'cls'
  return describe(program.seq_len + cls, program.config.encoder.width)


def identity(program: Program) -> dict:
  """Parameter counts, device and kernel, as kept in env.json and results."""
  return {'kernel': implementation(program), 'device': machine.device_name(),
          'num_devices': program.mesh.size, 'dtype': program.config.dtype,
          **count_parameters(program.state_shape)}


def outcome(program: Program, status: str, step: int, memory, **fields) -> dict:
  """The fields of result.json.

  Args:
    program: what was trained.
    status: ok, diverged, oom or stopped.
    step: updates made.
    memory: `train.Memory` of the run.
    **fields: `test`, `floors`, `data_fingerprint` and `identity`'s.
  """
  config = program.config
  best = config.train.select == 'best' and memory.best_val is not None
  speed = memory.timed_steps / max(memory.train_seconds, 1e-9)
  documents = 2 if program.task.dual else 1
  tokens = config.train.batch_size * program.seq_len * documents
  return {
      'status': status, 'task': config.task, 'model': config.model.name,
      'protocol': config.protocol, 'seed': config.seed, 'steps': step,
      'best_step': memory.best_step if best else step,
      'val': memory.best_val if best else memory.last_val,
      'steps_per_s': speed, 'tokens_per_s': speed * tokens,
      'peak_memory_bytes': machine.peak_memory(),
      'train_seconds': memory.train_seconds,
      'eval_seconds': memory.eval_seconds,
      'compile_seconds': memory.compile_seconds,
      **machine.git_state(), 'config': config.to_dict(), **fields}
