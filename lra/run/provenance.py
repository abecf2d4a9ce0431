"""Records the origin of a run: commit, files of model and config, machine."""

import hashlib
import pathlib
from collections.abc import Iterable

import jax

from lra import models
from lra.core import files, machine, tasks
from lra.core.errors import UserError
from lra.core.terminal import say
from lra.nn import draws
from lra.run.experiment import Experiment
from lra.run.process_cache import ProcessCache
from lra.run.program import Program, count_parameters
from lra.schema import result

_NAMED = 3  # most run directories in a message
# Ends of the warning that a model file was edited after a run.
FINISHED = 'the score is of the old file, delete the folder to train anew'
GOES_ON = ('training resumes with the new file, delete the folder to train '
           'anew')
LOADED = ('the new file uses parameters that were trained with the old one, so '
          'scores may differ from the recorded ones')


def of_run(program: Program, shared: ProcessCache,
           recorded: bool = False) -> dict:
  """Returns origin, model sizes, device, kernel and flags, for the record.

  The origin is read once in a process, since files may be edited later.
  """
  experiment = program.experiment
  name = experiment.config.model.name
  result.check_name('model', name)
  result.check_name('protocol', experiment.config.protocol)
  # First, so that an impossible kernel fails before `of_files` may warn.
  kernel = experiment.kernel(program.dtype)
  return {**shared.once(f'origin of {name}',
                        lambda: of_files(experiment, recorded)),
          'changes': experiment.changes,
          'runs_at_once': shared.runs_at_once,
          'draws': draws.SCHEME, **of_sizes(program),
          'kernel': kernel, 'device': machine.device_name(),
          'xla_flags': machine.xla_flags(), 'num_devices': program.mesh.size,
          'num_processes': jax.process_count(), 'dtype': program.dtype,
          **count_parameters(program.state_shape),
          'state_size': experiment.state_size}


def of_sizes(program: Program) -> dict[str, int]:
  return {'microbatch_size': program.sizes.microbatch,
          'eval_batch_size': program.sizes.eval_batch}


def of_files(experiment: Experiment, recorded: bool = False) -> dict:
  """Returns the commit, and hashes of the model's and the config's file."""
  made_by = {'model': _file_of(experiment.config.model.name),
             'config': experiment.config_file}
  state = machine.git_state(filter(None, [
      *made_by.values(), tasks.file(experiment.task.name)]))
  if recorded and state['git_published'] is False:
    say(f'Commit {state["git_commit"][:8]} is not on the published branch, and '
        'the records will show that: push it first, so that others can check '
        'out the code of the runs.')
  return {
      **state,
      **{f'{kind}_sha256': _sha256(path) for kind, path in made_by.items()}}


def continued(before: dict, now: dict) -> dict:
  """Merges the origin of a resumed run with that of earlier ones, in env.json.

  `git_commits`, `devices`, `xla_flags` and `draws` get the values of all
  processes in order, if they differ. `git_dirty` is true if it ever was, or if
  the file of the model or config has changed. `git_published` is true if all
  commits are published.
  """
  merged = dict(now)
  for many, one in (('git_commits', 'git_commit'), ('devices', 'device')):
    earlier = before.get(many) or [before.get(one)]
    values = dict.fromkeys(filter(None, (*earlier, now.get(one))))
    if len(values) > 1:
      merged[many] = list(values)
  if now['git_dirty'] is not None:
    merged['git_dirty'] = bool(
        now['git_dirty'] or before.get('git_dirty') or any(
            before.get(name) not in (None, now[name])
            for name in ('model_sha256', 'config_sha256')))
  published = before.get('git_published'), now.get('git_published')
  merged['git_published'] = False if False in published else (
      None if None in published else True)
  flags = [*(before.get('xla_flags') or []), *now.get('xla_flags', [])]
  if flags:
    merged['xla_flags'] = list(dict.fromkeys(flags))
  drawn = before.get('draws', 'microbatch'), now.get('draws')
  if None not in drawn and drawn[0] != drawn[1]:
    merged['draws'] = ', then '.join(drawn)
  return merged


def of_folder(folder: pathlib.Path) -> str | None:
  try:
    kept = files.read_json(folder / 'env.json')
  except UserError:
    return None  # code that needs the file will raise the error
  return kept.get('model_sha256') if isinstance(kept, dict) else None


def warn_of_edits(
    runs: Iterable[tuple[pathlib.Path, str, str | None]], what: str) -> None:
  """Warns of runs (folder, model, `model_sha256`) of another model file."""
  edited = {}
  for folder, model, digest in runs:
    if None not in (digest, now := _sha256(_file_of(model))) and digest != now:
      edited.setdefault(model, []).append(str(folder))
  for model, folders in edited.items():
    more = len(folders) - _NAMED
    named = ', '.join(folders[:_NAMED]) + f' and {more} more' * (more > 0)
    were = 'were' if len(folders) > 1 else 'was'
    say(f'lra/models/{_file_of(model).name} has changed since {named} {were} '
        f'made: {what}.')


def _file_of(name):
  return models.FOLDER / f'{models.place(name)[0]}.py'


def _sha256(path):
  try:
    return path and hashlib.sha256(files.read(path)).hexdigest()
  except OSError:
    return None
