"""Writes the model of a finished run to a new folder, in the form of
Hugging Face, with a model card.

  lra export my-model runs/listops_mini/simpletron/b2e07619-s0
  lra export my-model RUN --push=USER/NAME
"""

import json
import os
import pathlib

from lra.board import publish
from lra.cli import arguments, repeat
from lra.core import environment, files, paths, tasks
from lra.core.errors import UserError
from lra.data_prep import encode
from lra.schema import identity, result
from lra.share import card, hub

_ENVIRONMENT = ('dtype', 'data_fingerprint', 'data_origin', 'model_sha256')


def add_arguments(parser):
  parser.add_argument('folder', metavar='FOLDER', type=arguments.path)
  parser.add_argument('run', metavar='RUN', help='a run directory',
                      type=arguments.path)
  parser.add_argument('--push', metavar='USER/NAME', help='also upload the '
                      'folder to Hugging Face as this model')


def main(args) -> int:
  environment.check_xla_flags()
  print(export(args.folder, args.run, args.push))
  return 0


def export(folder: pathlib.Path, run: pathlib.Path,
           push: str | None = None) -> str:
  """Writes the folder in the form of Hugging Face's hub, all or nothing.

  It has the config, the task, the parameters, the vocabulary if there is one,
  the forward function, the result and a model card, without paths. With `push`,
  USER/NAME, it is uploaded as this model.

  Returns:
    A description of what was written.
  """
  from lra.run import weights
  from lra.share import api, stablehlo
  if os.path.lexists(folder):
    raise UserError(f'{folder} exists already: give a new folder.')
  paths.need('safetensors', weights.NAME)
  paths.need('flatbuffers', stablehlo.NAME)
  if push:
    hub.check_push(push)
  recorded = result.classified(run)
  trained = api.load(run)
  config = identity.without_paths(files.read_json(run / 'config.json'))
  recorded = publish.shared(recorded)
  scored = {'params': trained.params, 'constants': trained.constants}
  words = trained.program.experiment.vocabulary
  forward, any_batch = stablehlo.forward(trained.program, scored)
  shape, dtype = trained.program.objective.shapes(
      *([] if any_batch else [1]))['tokens']
  size = ', '.join([*['batch'] * any_batch, *map(str, shape)])
  task = tasks.get(config['task'])
  about = tasks.description(task) | {
      'classes': encode.names(task), 'ids': encode.form(task, bool(words))}
  num_ids = trained.program.objective.task.vocab_size
  files.write_folder(folder, {
      **(words.contents() if words else {}),
      'config.json': _json(config),
      tasks.FILE: _json(about),
      'result.json': _json(recorded.fields),
      'env.json': _json({
          name: getattr(recorded, name) for name in _ENVIRONMENT}),
      weights.NAME: weights.save(scored, trained.step),
      stablehlo.NAME: forward,
      'README.md': card.text(
          recorded, repeat.command(recorded), f'{dtype} [{size}]', about,
          num_ids).encode()})
  lines = [f'wrote {folder}: {recorded.model} on {recorded.task}, parameters '
           f'of step {trained.step}']
  if not any_batch:
    lines.append(f'{stablehlo.NAME} takes one example at a time: this model '
                 'has no program for batches of any size.')
  if push:
    lines.append(f'uploaded to {hub.push(folder, push)}')
  return '\n'.join(lines)


def _json(value):
  return (json.dumps(value, indent=1, sort_keys=True) + '\n').encode()
