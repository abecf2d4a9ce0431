"""The sources of a run: another run or a BERT, and their vocabulary."""

import pathlib
import re

from ml_collections import ConfigDict

from lra.core import files, paths
from lra.core.errors import UserError
from lra.data import wordpiece
from lra.run import bert, loader
from lra.schema import grid, identity
from lra.schema.fields import FIELDS


def config_of(config) -> tuple[ConfigDict, str] | None:
  """Returns the source's config and its --config; None if it is a path.

  The source is the config in `config.init_from`, or the first phase that
  `config.pretrain` describes, which has no --config. Its seed is the config's.
  """
  if config.pretrain.objective:
    return _first_phase(config), ''
  if not identity.names_config(config.init_from):
    return None
  file, *changes = grid.words(config.init_from)
  return loader.made_by([
      f'--config={file}', *(f'--config.{change}' for change in changes),
      f'--config.seed={config.seed}']), file


def _first_phase(config):
  """Returns the config with another objective and its own steps and rate."""
  made = config.copy_and_resolve_references()
  phase = made.pretrain
  made.objective, made.init_source = phase.objective, ''
  made.train.masked_loss = FIELDS['train.masked_loss'].default
  made.train.steps = phase.steps or made.train.steps
  if phase.learning_rate >= 0:
    made.train.learning_rate = phase.learning_rate
  made.pretrain = {name: FIELDS[f'pretrain.{name}'].default for name in phase}
  return made


def path(config) -> pathlib.Path:
  named = config.init_from.replace('{seed}', str(config.seed))
  return pathlib.Path(paths.local(named, 'config.init_from'))


def fingerprint(folder: pathlib.Path) -> str:
  """Returns the value of `config.init_source` for a run or a BERT.

  It is the hash of the run's config, and the checkpoint if the path names one;
  or the hash of the BERT's weights. It does not depend on the seed.
  """
  if not folder.exists():
    raise UserError(f'config.init_from: {folder} does not exist: restore the '
                    'folder of that run or BERT, or correct the path.')
  if bert.settings(folder):
    return bert.fingerprint(folder)
  run_folder, kind, step = place(folder)
  done = files.read_json(run_folder / 'result.json')
  if step is None and (not isinstance(done, dict) or done.get('status') in (
      'stopped', 'oom')):
    raise UserError(
        f'config.init_from: {run_folder} is not finished, so its parameters '
        'still change: finish it, or name a step, such as '
        'checkpoints/best/1000.')
  values = files.read_json(run_folder / 'config.json')
  if not identity.is_config(values):
    raise UserError(f'config.init_from: {run_folder / "config.json"} is not '
                    'the config of a run: restore it.')
  return '/'.join(filter(None, (
      identity.config_hash(values), kind, '' if step is None else str(step))))


def place(folder: pathlib.Path) -> tuple[pathlib.Path, str, int | None]:
  """Splits a path into (run directory, 'best', 'last' or '', step or None)."""
  inner = folder.resolve()
  for run_folder in (inner, *inner.parents[:3]):
    inside = inner.relative_to(run_folder).parts
    room, kind, step = (*inside, *('checkpoints', '', '')[len(inside):])
    if room != 'checkpoints' or kind not in ('', 'best', 'last') or (
        step and not (re.fullmatch('[0-9]+', step) and inner.is_dir())):
      continue
    values = files.read_json(run_folder / 'config.json')
    if isinstance(values, dict) and 'task' in values:
      return run_folder, kind, int(step) if step else None
  close = paths.near(folder)
  close = close and (close / 'config.json').exists() and close
  raise UserError(
      f'{folder} is not the directory of a run, nor a checkpoint in one, nor '
      'a folder that `export` wrote, nor that of a BERT: ' + (
          f'did you mean {close}?' if close else
          'give a directory with the config.json of a run, such as '
          'runs/listops_mini/'
          'simpletron/<config hash>-s0, or its checkpoints/best, '
          'checkpoints/last or a step in one of these.'))


def tokenizer(config) -> pathlib.Path | None:
  """Returns the path of the vocabulary that a config names; None for bytes."""
  if config.tokenizer:
    return pathlib.Path(config.tokenizer)
  named = bert.made(config.init_source) and config.init_from
  return path(config) if named else None


def check_tokenizer(config) -> str:
  """Returns the value of `config.tokenizer_source`; '' for bytes."""
  named = tokenizer(config)
  if not named:
    return ''
  if 0 < config.seq_len < 3:
    raise UserError(
        f'config.seq_len={config.seq_len} leaves no room for a word between '
        'the marks of its start and its end: set it to 3 or more.')
  found, size = wordpiece.read(named), config.encoder.vocab_size
  if size < len(found.pieces):
    raise UserError(
        f'config.encoder.vocab_size={size} is too small for {named}: set it to '
        f'{len(found.pieces)}, or to the vocab_size of its model.')
  return found.sha256[:16]


def vocabulary(config, folder: pathlib.Path) -> wordpiece.Vocabulary:
  """Returns the vocabulary of a run; the copy in its directory comes first."""
  if not config.tokenizer_source:
    raise UserError(
        f'config.encoder.vocab_size={config.encoder.vocab_size} needs a '
        'tokenizer: give the folder of a BERT as --config.init_from, or as '
        '--config.tokenizer for fresh parameters.')
  kept = folder / 'vocab.txt'
  named = kept if kept.exists() else tokenizer(config)
  if not named:
    raise UserError(f'{folder} has no vocab.txt: copy it there from the folder '
                    'of the tokenizer.')
  found = wordpiece.read(named)
  if found.sha256[:16] != config.tokenizer_source:
    raise UserError(f'{named} has another vocabulary than the run {folder}: '
                    'restore it.')
  return found
