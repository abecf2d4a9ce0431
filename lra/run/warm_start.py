"""Starts a run from the parameters of another.

The config names the source: `config.init_from` or `config.pretrain`. Or the
source is a BERT in a folder of Hugging Face; see `lra.run.bert`.
`config.init_rules` decides for each array of the new model. The first rule
whose regular expression matches the whole name counts. It names an array of the
source, or is None for a fresh array. Names are like
encoder/block_0/mixer/query/kernel; those of other collections, such as the
random features of performer, begin with the collection.
"""

import collections
import dataclasses
import hashlib
import pathlib
import re
from typing import Any

import jax
import numpy as np

from lra.core.errors import UserError
from lra.run import bert, optim, restore, sources
from lra.run.program import Program

_SAME = ('.*', r'\g<0>')  # the rule of a config without rules
# Those after a first phase: the head is fresh.
_ENCODER = ((r'(.*/)?encoder/.*', r'\g<0>'), ('.*', None))


@dataclasses.dataclass(frozen=True)
class WarmStart:
  """The arrays that a run takes from another.

  Attributes:
    folder: the source.
    taken: name of the new model's array -> (name in the source, float32 array).
    fresh: names of the new model's arrays that are initialised.
    dropped: names of the source's arrays that nothing takes.
  """
  folder: pathlib.Path
  taken: dict[str, tuple[str, np.ndarray]]
  fresh: tuple[str, ...]
  dropped: tuple[str, ...]

  @property
  def sha256(self) -> str:
    """Hex digest of the names, shapes and bytes of the arrays taken."""
    digest = hashlib.sha256()
    for name, (_, array) in sorted(self.taken.items()):
      digest.update(f'{name} {array.shape} {array.dtype}\n'.encode())
      digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()

  def state(self, fresh):
    def put(tree, prefix=''):
      def one(path, array):
        name = prefix + optim.path_name(path)
        if name not in self.taken:
          return array
        value = self.taken[name][1]
        return jax.make_array_from_callback(
            array.shape, array.sharding, lambda index: value[index])
      return jax.tree_util.tree_map_with_path(one, tree)

    return fresh.replace(
        params=put(fresh.params),
        ema=None if fresh.ema is None else put(fresh.ema),
        constants={name: put(tree, f'{name}/')
                   for name, tree in fresh.constants.items()})

  def table(self) -> str:
    rows = [(name, 'taken', '' if origin == name else origin)
            for name, (origin, _) in self.taken.items()]
    rows += [(name, 'fresh', '') for name in self.fresh]
    rows += [(name, 'dropped', '') for name in self.dropped]
    joined = collections.Counter(
        tuple(re.sub(r'(block_|layer\.)\d+', r'\1*', part) for part in row)
        for row in rows)
    width = max(len(name) for name, _, _ in joined)
    return '\n'.join(
        f'  {fate:8}{count:4} x  {name:{width}}{origin and f"  from {origin}"}'
        .rstrip() for (name, fate, origin), count in joined.items())


def read(config, program: Program) -> WarmStart:
  """Reads the source of a run with `init_from`, and decides about each array.
  """
  if not (config.init_from or config.pretrain.objective):
    raise UserError(
        f'config.init_source={config.init_source} does not say where the '
        'parameters are: give config.init_from instead.')
  folder = program.experiment.start
  found = sources.fingerprint(folder)
  if found != config.init_source:
    raise UserError(
        f'config.init_from={folder} is now {found}, but '
        f'{config.init_source} is expected: give all seeds runs of one config.')
  ours = names_of(program.state_shape.params, program.state_shape.constants)
  if bert.made(found):
    theirs, given = bert.tensors(folder), tuple(config.init_rules)
    return choose(
        (*given, *bert.rules(ours, theirs, given)), ours, theirs, folder)
  _, scored, _ = restore.scored(folder)
  theirs = names_of(scored['params'], scored['constants'])
  rules = config.init_rules or (
      _ENCODER if config.pretrain.objective else (_SAME,))
  return choose(tuple(rules), ours, theirs, folder)


def names_of(params, constants) -> dict[str, Any]:
  return optim.named(params) | optim.named(dict(constants))


def choose(rules, ours: dict, theirs: dict,
           folder: pathlib.Path = pathlib.Path()) -> WarmStart:
  """Applies rules to the arrays of a new model, {name: array or shape}.

  A rule is a regular expression and a name in the source, where `\\1` is the
  first group of the match, or None for a fresh array.
  """
  numbers = optim.first_matches(
      rules, ours, 'config.init_rules', "('.*', None) for a fresh start")
  taken, fresh = {}, []
  for (name, array), number in zip(ours.items(), numbers, strict=True):
    pattern, template = rules[number]
    if template is None:
      fresh.append(name)
      continue
    try:
      origin = re.fullmatch(pattern, name).expand(template)
    except (re.error, IndexError) as e:
      raise UserError(
          f'config.init_rules: the name {template!r} cannot be made from '
          f'{pattern!r} ({e}): correct it.') from e
    if origin not in theirs:
      raise UserError(
          f'config.init_rules takes {name} from {origin}, which the source '
          'does not have: add a rule with another name, or with None before.')
    value = theirs[origin]
    if value.shape != array.shape:
      raise UserError(
          f'config.init_rules takes {name} of shape {array.shape} from '
          f'{origin} of shape {value.shape}: make the sizes equal, or add the '
          'rule with None for it.')
    taken[name] = origin, np.asarray(value)
  if not taken:
    raise UserError('config.init_rules takes no array: leave out '
                    'config.init_from, or name one.')
  used = {origin for origin, _ in taken.values()}
  dropped = tuple(name for name in theirs if name not in used)
  return WarmStart(folder, taken, tuple(fresh), dropped)

