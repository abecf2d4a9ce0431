"""Config and task -> the encoder, with its mixer's arguments checked.

The config is one that `check.check` has passed.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import models
from lra.errors import UserError
from lra.nn.encoder import Encoder
from lra.tasks import Task
from lra.training import check


def sequence_length(config, task: Task) -> int:
  """Tokens per sequence, L, without CLS: the task's, or fewer if asked for."""
  return config.seq_len or task.seq_len


def lengths(config, task: Task) -> tuple[int, ...]:
  """Lengths that sequences may be computed at, rising, the full one last.

  Only the full one where padding takes part in what is computed: as tokens,
  in the size of a mean, or in the mixer.

  Args:
    config: a checked config.
    task: its task.
  """
  full = sequence_length(config, task)
  padding_counts = (
      not config.mask_padding or config.encoder.mean_over != 'tokens'
      or getattr(models.module(config.model.name), 'NEEDS_PADDING', False))
  shorter = {n for n in config.train.lengths if n < full}
  return (*(() if padding_counts else sorted(shorter)), full)


def computing_dtype(config) -> str:
  """'float32' or 'bfloat16': what `config.dtype` comes to on this machine."""
  if config.dtype != 'auto':
    return config.dtype
  return 'float32' if jax.default_backend() == 'cpu' else 'bfloat16'


def encoder(config, task: Task, dtype: str) -> Encoder:
  """The encoder of a config, with `config.model.name` as its mixer.

  Args:
    config: a checked config.
    task: its task.
    dtype: what is computed in, 'float32' or 'bfloat16'.

  Raises:
    UserError: an unknown model, an argument the mixer does not have, or a
      pooling that a causal mixer makes blind.
  """
  settings = config.encoder
  mixer = make_mixer(models.module(config.model.name), config.model)
  if settings.pooling in ('cls', 'first') and getattr(
      mixer(), 'causal', False):
    raise UserError(
        f'config.encoder.pooling={settings.pooling} reads the first position, '
        f'which sees nothing of the rest in {config.model.name}: choose mean '
        'or last.')
  return Encoder(
      mixer=mixer, vocab_size=task.vocab_size,
      num_layers=settings.num_layers, width=settings.width,
      conv_width=settings.conv_width,
      mlp_width=settings.mlp_width, dropout=settings.dropout,
      positions=settings.positions, prepend_cls=settings.pooling == 'cls',
      cls_has_position=settings.cls_has_position,
      embedding_std=settings.embedding_std, remat=settings.remat,
      mask_padding=config.mask_padding, dtype=jnp.dtype(dtype),
      full_length=sequence_length(config, task))


def make_mixer(module, model):
  """The mixer of a config's `model`, as a function of what the encoder gives.

  The function takes `dtype`, `layer`, `num_layers`, `full_length` and `name`;
  a mixer is told what it has a field for.

  Raises:
    UserError: what `check.check_arguments` raises.
  """
  arguments = model.to_dict()
  check.check_arguments(module.Mixer, model.name, arguments)
  del arguments['name']
  return functools.partial(_mixer, module.Mixer, arguments)


def _mixer(cls, arguments, **given) -> nn.Module:
  fields = cls.__dataclass_fields__
  return cls(**arguments, **{k: v for k, v in given.items() if k in fields})
