"""The experiment of a config, which `resolve` checks once."""

import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lra import models, objectives
from lra.configs import base
from lra.core import paths, tasks
from lra.core.errors import UserError
from lra.core.tasks import Task
from lra.data import prepared, wordpiece
from lra.nn import mixer as mixers
from lra.nn.encoder import Encoder
from lra.run import bert, check, loader, sources
from lra.schema import identity
from lra.schema.fields import FIELDS, PATCH


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A checked config with all that follows from it; `resolve` makes it.

  Attributes:
    config: the whole config, without references.
    encoder: the encoder in float32; `model` changes the dtype.
    folder: the run directory.
    made_by: file and task of --config; '' for a config made in Python.
  """
  config: ConfigDict
  task: Task
  objective: objectives.Objective
  encoder: Encoder
  folder: pathlib.Path
  made_by: str = ''

  @functools.cached_property
  def changes(self) -> dict[str, Any] | None:
    """See `protocol_changes`; None without `made_by`."""
    return protocol_changes(
        self.config.to_dict(), self.made_by) if self.made_by else None

  @property
  def marks(self) -> dict[str, str]:
    """Who set each field that has not its default: {dotted field: words}."""
    flat = lambda config: identity.flatten(json.loads(json.dumps(config)))
    ours, name = flat(self.config.to_dict()), self.config.model.name
    file = loader.made_by([f'--config={self.made_by}'])
    given = flat(base.settings(self.task.name, self.config.protocol) | {
        f'model.{key}': value for key, value in base.arguments(file).items()})
    usual = flat({field: info.default for field, info in FIELDS.items()} | {
        f'model.{key}': value for key, value in models.defaults(name).items()})
    usual |= {field: given.get(field) for field in base.FOLLOWING}
    file = flat(file.copy_and_resolve_references().to_dict())
    return {field: (
        'changed' if value != file.get(field) else
        f'protocol {self.config.protocol}' if value == given.get(field) else
        str(self.config_file)) for field, value in ours.items()
            if (value != usual.get(field) or value != file.get(field))
            and field not in ('task', 'protocol', 'model.name')}

  @property
  def config_file(self) -> pathlib.Path | None:
    """The file that made the config; None for a config made in Python."""
    return paths.config_file(
        paths.config_parts(self.made_by)[0]) if self.made_by else None

  @property
  def dtype(self) -> str:
    """Compute dtype on this machine, 'float32' or 'bfloat16'."""
    if self.config.dtype != 'auto':
      return self.config.dtype
    return 'float32' if jax.default_backend() == 'cpu' else 'bfloat16'

  @property
  def length(self) -> int:
    """Positions of a whole sequence, the CLS token included."""
    return self.encoder.full_length + self.encoder.prepend_cls

  @property
  def lengths(self) -> tuple[int, ...]:
    """Rising lengths that sequences may be computed at, the full one last.

    There is only the full length if padding takes part in the computation: as
    tokens, in the size of a mean, in a batch norm, or in the mixer.
    """
    config, full = self.config, self.objective.seq_len
    padding_counts = (
        not config.mask_padding or config.encoder.mean_over != 'tokens'
        or config.encoder.norm == 'batch'
        or getattr(models.module(config.model.name), 'NEEDS_PADDING', False))
    shorter = {n for n in config.train.lengths if n < full}
    return (*(() if padding_counts else sorted(shorter)), full)

  def model(self, dtype: str) -> nn.Module:
    return self.objective.model(
        self.encoder.clone(dtype=jnp.dtype(dtype)), jnp.dtype(dtype))

  def kernel(self, dtype: str) -> str:
    """Returns the kernel that the mixers run; `xla` if there is no choice."""
    runs = getattr(
        self.encoder.mixer(dtype=jnp.dtype(dtype)), 'kernel_for', None)
    return runs(self.length, self.encoder.width) if runs else 'xla'

  @property
  def state_size(self) -> int | None:
    """Numbers that one layer keeps from token to token; see `lra.nn.mixer`."""
    return mixers.state_size(
        self.encoder.mixer(), self.encoder.width, self.length)

  @functools.cached_property
  def source(self) -> 'Experiment | None':
    """The run whose parameters it starts with, if a config describes it."""
    return _source(self.config)

  @property
  def start(self) -> pathlib.Path:
    """The run or BERT whose parameters it starts with; it may not exist."""
    return self.source.folder if self.source else sources.path(self.config)

  @property
  def vocabulary(self) -> wordpiece.Vocabulary | None:
    """The word pieces of its texts; None for bytes."""
    if not self.config.encoder.vocab_size:
      return None
    return sources.vocabulary(self.config, self.folder)

  def data(self, data_dir: str | os.PathLike | None = None
           ) -> prepared.Content:
    words = self.vocabulary  # an error here is known before data are prepared
    data = prepared.load(
        self.task.name, data_dir or self.config.data_dir or None)
    return words.prepared(data, self.objective.seq_len) if words else data

  def with_seed(self, seed: int) -> 'Experiment':
    config = self.config.copy_and_resolve_references()
    config.seed = seed
    return dataclasses.replace(
        self, config=config,
        objective=dataclasses.replace(self.objective, config=config),
        folder=identity.run_folder(config.to_dict()))


def resolve(config: ConfigDict, *, made_by: str = '',
            folder: str | os.PathLike | None = None) -> Experiment:
  """Checks a config, without a device, and builds what follows from it."""
  check.check(config)
  task = tasks.get(config.task)
  if made_by and not task.probe:
    paths.data_dir(config.data_dir)
  made = objectives.get(config.objective)
  config = config.copy_and_resolve_references()
  if (config.init_from or config.pretrain.objective) and (
      not config.init_source):
    begun = _source(config)
    config.init_source = (
        identity.config_hash(begun.config.to_dict()) if begun else
        sources.fingerprint(sources.path(config)))
    if bert.made(config.init_source):
      bert.check(config, sources.path(config))
  if not config.tokenizer_source:
    config.tokenizer_source = sources.check_tokenizer(config)
  if config.encoder.vocab_size:
    task = dataclasses.replace(task, vocab_size=config.encoder.vocab_size)
  objective = made(config, task, config.seq_len or task.seq_len)
  encoder = _encoder(config, objective)
  objective.check(encoder)
  return Experiment(
      config, task, objective, encoder,
      pathlib.Path(paths.local(
          folder or identity.run_folder(config.to_dict()))), made_by)


def _source(config):
  made = sources.config_of(config)
  return made and resolve(made[0], made_by=made[1])


def _encoder(config, objective):
  settings = config.encoder
  mixer = make_mixer(config.model)
  traits = mixers.traits_of(mixer())
  if traits.alternates and settings.num_layers == 1:
    raise UserError(
        'config.model.direction=alternating means nothing to one layer: set it '
        'to causal, or choose another config.encoder.num_layers.')
  if settings.pooling in ('cls', 'first') and (
      traits.causal and not traits.alternates):
    raise UserError(
        f'config.encoder.pooling={settings.pooling} reads the first position, '
        f'which sees no other token in {config.model.name}: choose mean or '
        'last.')
  return _made(Encoder, {}, **{
      **settings.to_dict(), 'mixer': mixer,
      'vocab_size': objective.task.vocab_size,
      'prepend_cls': settings.pooling == 'cls',
      'norm_rows': settings.norm_examples * (2 if objective.task.dual else 1),
      'mask_padding': config.mask_padding, 'dtype': jnp.dtype('float32'),
      'full_length': objective.seq_len // (
          PATCH**2 if settings.inputs == 'patches' else 1)})


def make_mixer(model):
  """Returns a function with which the encoder makes mixers of `config.model`.
  """
  arguments = model.to_dict()
  cls = models.mixer(arguments.pop('name'))
  return functools.partial(_made, cls, arguments)


def _made(cls, arguments, **given) -> nn.Module:
  """Makes a module, with those of the given values that it has a field for."""
  fields = cls.__dataclass_fields__
  return cls(**arguments, **{k: v for k, v in given.items() if k in fields})


def protocol_changes(config: dict, made_by: str) -> dict[str, Any]:
  """Returns the fields a config changes: {dotted field: the protocol's value}.

  A protocol sets the fields that every model has. The other arguments of a
  mixer count as changed if they differ from its config file, `made_by`.
  """
  said = base.settings(config['task'], config['protocol'])
  return identity.changes(config, {**_own(made_by), **said})


@functools.lru_cache(maxsize=1)
def _own(made_by):
  """Returns a mixer's arguments in its config file, before that may change."""
  made = loader.made_by([f'--config={made_by}'])
  return identity.flatten({
      'model': made.copy_and_resolve_references().to_dict().get('model', {})})
