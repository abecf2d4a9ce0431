"""Writes the model card of an exported run, in the form of Hugging Face.

The values of its front matter are JSON, which YAML includes.
"""

import json

from lra.board import catalogue
from lra.board.markdown import code, escape, table
from lra.board.rows import Row
from lra.core import tasks
from lra.core.formats import count, percent
from lra.schema.result import Result

LICENSE = 'apache-2.0'  # users may release a model under another one
_USE = '''\
## Use

```python
import lra

model = lra.load('FOLDER')  # or 'hf:USER/NAME'
{predict}model.evaluate('test')
```

`model.stablehlo` is the forward function. It needs `pip install jax flatbuffers
safetensors`, but not this project's code:

```python
import pathlib
import jax
from safetensors.numpy import load_file

forward = jax.export.deserialize(bytearray(
    pathlib.Path('model.stablehlo').read_bytes()))
tokens = ...  # {inputs}, 0 at padding
logits = forward.call(load_file('model.safetensors'), tokens)
```
'''


def text(run: Result, command: str, inputs: str, task_file: dict,
         num_ids: int) -> str:
  """Returns the README.md of an exported folder.

  The run of a classifier is without paths. The command trains it; the inputs
  are dtype and shape of those of the forward function. `task_file` is the
  content of task.json.
  """
  entry = next((e for e in catalogue.read() if e.name == run.model), None)
  task = tasks.get(run.task)
  about = [f'{entry.title}: {entry.summary}', entry.source] if entry else []
  return '\n'.join([
      *_front(run, task),
      f'# {run.model} on {run.task}', '',
      *(f'{escape(line)}\n' for line in about),
      f'It was trained with seed {run.seed} under the protocol '
      f'{code(run.protocol)} of Long Range Arena ({task.seq_len} tokens, '
      f'{task.num_classes} classes).', '',
      '## Scores', '', _scores(run), '',
      'The interval is Wilson\'s, over test examples: it does not allow for '
      'other seeds.', '',
      *(['Baselines are methods without a neural network.', '',
         table(['baseline', 'test accuracy'], [
             (name, f'{percent(accuracy)}%') for name, accuracy in sorted(
                 run.baselines.items(), key=lambda item: -item[1])]),
         ''] if run.baselines else []),
      '## Input and output', '', *_ends(run, task_file, num_ids), '',
      '## Training', '', _origin(run), '',
      'This command trains it:', '', '```sh', command, '```', '',
      _USE.replace('{inputs}', inputs).replace(
          '{predict}', 'model.predict([...])\n' * (not task.probe))])


def _front(run, task):
  """Returns the lines of the front matter."""
  kind = ('image' if task.image else 'token' if task.probe else
          'text') + '-classification'
  fields = {
      'license': LICENSE, 'library_name': 'lra',
      'tags': ['long-range-arena', 'lra', 'jax', 'flax', run.model],
      'datasets': [run.task], 'metrics': ['accuracy'],
      'model-index': [{
          'name': f'{run.model}-{run.task}',
          'results': [{
              'task': {'type': kind},
              'dataset': {'type': run.task, 'name': task.title or run.task,
                          'split': 'test'},
              'metrics': [{'type': 'accuracy', 'name': 'test accuracy',
                           'value': run.test.accuracy}]}]}]}
  return ['---', *(f'{name}: {json.dumps(value)}'
                   for name, value in fields.items()), '---', '']


def _ends(run, about, num_ids):
  """Returns how an example becomes ids, and what the classes are."""
  length = run.config.get('seq_len') or about['seq_len']
  named = [f'{i} {name}' for i, name in enumerate(about['classes'])
           if name != str(i)]
  yield (f'The ids of an example are {escape(about["ids"])}. They are cut to '
         f'{length:,}, and 0 fills the rest. The model has the ids 0 to '
         f'{num_ids - 1:,}; an example with another one gives NaN in '
         '`model.stablehlo`.')
  if run.config.get('mask_black'):
    yield 'A black pixel has the id 0.'
  if named:
    yield f'The classes are {escape(", ".join(named))}.'


def _scores(run):
  row = Row([run])
  ends = [percent(end, row.digits)
          for end in (row.interval.low, row.interval.high)]
  lines = [
      ('test accuracy', f'{percent(run.test.accuracy, row.digits)}%'),
      ('95% interval', f'{ends[0]}% to {ends[1]}%'),
      ('test examples', count(run.test.examples)),
      *([('validation accuracy', f'{percent(run.val.accuracy, row.digits)}%')]
        if run.val else []),
      *((f'accuracy on {length} tokens', f'{percent(found.accuracy)}%')
        for length, found in run.longer.items())]
  return table(['score', 'value'], lines)


def _origin(run):
  commit = run.git_commit and run.git_commit + ' (modified)' * bool(
      run.git_dirty)
  return table(['field', 'value'], [
      ('commit', commit or 'unknown'),
      ('steps', count(run.steps)),
      ('parameters', count(run.num_params)),
      ('dtype', run.dtype), ('kernel', run.kernel or 'unknown'),
      ('device', run.device),
      ('data', f'{run.data_origin or "unknown"}, {run.data_fingerprint[:8]}'),
      *([('search', run.search.text)] if run.search else [])])
