"""Builds the encoder of a config and checks the arguments of its mixer.

The config must have passed `check.check`.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import models
from lra.errors import UserError
from lra.experiment import check
from lra.nn.encoder import Encoder
from lra.tasks import Task


def sequence_length(config, task: Task) -> int:
  """Returns L, the tokens per sequence without CLS: `seq_len` or the task's."""
  return config.seq_len or task.seq_len


def lengths(config, task: Task) -> tuple[int, ...]:
  """Returns the rising lengths that sequences may be computed at.

  The last one is the full length. It is the only one if padding takes part in
  the computation: as tokens, in the size of a mean, or in the mixer.

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
  """Returns the compute dtype on this machine, 'float32' or 'bfloat16'."""
  if config.dtype != 'auto':
    return config.dtype
  return 'float32' if jax.default_backend() == 'cpu' else 'bfloat16'


def encoder(config, task: Task, dtype: str) -> Encoder:
  """Builds the encoder of a config, with `config.model.name` as its mixer.

  Args:
    config: a checked config.
    task: its task.
    dtype: the compute dtype, 'float32' or 'bfloat16'.

  Raises:
    UserError: the model is unknown, its mixer lacks an argument, or the pooling
      reads the first position of a causal mixer.
  """
  settings = config.encoder
  mixer = make_mixer(models.module(config.model.name), config.model)
  if settings.pooling in ('cls', 'first') and getattr(
      mixer(), 'causal', False):
    raise UserError(
        f'config.encoder.pooling={settings.pooling} reads the first position, '
        f'which sees no other token in {config.model.name}: choose mean or '
        'last.')
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
  """Returns a function with which the encoder makes its mixers.

  The function takes `dtype`, `layer`, `num_layers`, `full_length` and `name`.
  It passes on those for which the mixer has a field.

  Raises:
    UserError: an argument is not valid; see `check.check_arguments`.
  """
  arguments = model.to_dict()
  check.check_arguments(module.Mixer, model.name, arguments)
  del arguments['name']
  return functools.partial(_mixer, module.Mixer, arguments)


def _mixer(cls, arguments, **given) -> nn.Module:
  fields = cls.__dataclass_fields__
  return cls(**arguments, **{k: v for k, v in given.items() if k in fields})
