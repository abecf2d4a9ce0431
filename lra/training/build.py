"""Config and task -> Flax module, with every field checked."""

import functools

import flax.linen as nn
import jax.numpy as jnp

from lra import models
from lra.errors import UserError
from lra.nn import encoder, heads
from lra.tasks import Task

DTYPES = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}


def sequence_length(config, task: Task) -> int:
  """Tokens per sequence, L, without CLS: the task's, or fewer if asked for.

  Raises:
    UserError: `config.seq_len` is not in 1..task.seq_len (or 0).
  """
  L = config.seq_len or task.seq_len
  if not 0 < L <= task.seq_len:
    raise UserError(
        f'config.seq_len={L} is not possible: {task.name} has sequences of '
        f'{task.seq_len} tokens; choose 1 to {task.seq_len}, or 0 for all.')
  return L


def build(config, task: Task) -> nn.Module:
  """Returns the module of `config.model.name`: ids to float32 logits [B, C].

  Raises:
    UserError: an unknown model, pooling, head, dtype or positions, an
      argument the mixer does not have, a number of heads that does not
      divide the width, or a pooling that a causal mixer makes blind.
  """
  enc = config.encoder
  check_choice('config.dtype', config.dtype, DTYPES)
  check_choice('config.encoder.pooling', enc.pooling, encoder.POOLING)
  check_choice('config.encoder.positions', enc.positions, encoder.POSITIONS)
  check_choice('config.encoder.head', enc.head, heads.HEADS)
  dtype = DTYPES[config.dtype]
  module = models.module(config.model.name)
  fields = enc.to_dict()
  head = fields.pop('head')
  mixer = make_mixer(module, config.model)
  if enc.pooling in ('cls', 'first') and getattr(mixer(), 'causal', False):
    raise UserError(
        f'config.encoder.pooling={enc.pooling} reads the first position, which '
        f'sees nothing of the rest in {config.model.name}: choose mean or '
        'last.')
  body = encoder.Encoder(
      block=getattr(module, 'Block', encoder.Block),
      mixer=mixer, vocab_size=task.vocab_size,
      mask_padding=config.mask_padding, dtype=dtype, **fields)
  F = enc.mlp_width
  return heads.Classifier(
      encoder=body, num_classes=task.num_classes, head=head, dtype=dtype,
      hidden=(F, F // 2) if task.dual else (F,))


def check_choice(field: str, value, choices):
  """Raises a UserError naming `field` unless `value` is one of `choices`."""
  if value not in choices:
    raise UserError(
        f'{field}={value!r} is not possible: choose one of '
        f'{", ".join(choices)}.')


def make_mixer(module, model):
  """The mixer of a config's `model`, as a function of `dtype` and `name`.

  Raises:
    UserError: an argument the mixer does not have, or a number of heads that
      does not divide the width.
  """
  kwargs = model.to_dict()
  name = kwargs.pop('name')
  known = set(module.Mixer.__dataclass_fields__) - {'parent', 'name', 'dtype'}
  unknown = sorted(set(kwargs) - known)
  if unknown:
    raise UserError(
        f'config.model.{unknown[0]} means nothing to {name}: its arguments '
        f'are {", ".join(sorted(known))}.')
  heads, width = kwargs.get('num_heads', 1), kwargs.get('qkv_width', 0)
  if width % heads:
    raise UserError(
        f'config.model.num_heads={heads} does not divide '
        f'config.model.qkv_width={width}: choose a divisor.')
  return functools.partial(module.Mixer, **kwargs)
