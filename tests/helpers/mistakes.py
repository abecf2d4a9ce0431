"""Wrong commands of a user, and words that each error message must contain."""

import gzip
import tarfile
from typing import NamedTuple

from lra.data_prep import aan as aan_files
from lra.data_prep import retrieval
from tests.helpers.paths import ROOT

FIXTURES = ROOT / 'tests' / 'fixtures'


class Case(NamedTuple):
  """A wrong command and the words that its error must contain.

  Attributes:
    words: fields, flags, files, lines or values that the error must name.
    arguments: arguments of the command line.
    files: {path: content} of files in the working directory.
    program: 'run_lra' or 'data_prep', see `commands.run`.
    environment: environment variables of the command.
  """
  words: tuple[str, ...]
  arguments: tuple[str, ...]
  files: dict[str, bytes] = {}  # noqa: RUF012
  program: str = 'run_lra'
  environment: dict[str, str] = {}  # noqa: RUF012

  def __str__(self):
    variables = (f'{k}={v}' for k, v in self.environment.items())
    return ' '.join((*variables, *self.arguments))[-80:]


def mini(words, *changes, model='simpletron'):
  """Returns a case that changes fields of a config."""
  return Case(tuple(words.split('|')), (
      f'--config=configs/{model}.py:listops_mini', *(
          c if c.startswith('--') else f'--config.{c}' for c in changes)))


def command(words, *arguments, **files):
  """Returns a case with these arguments; `_` in names of `files` means a dot.
  """
  return Case(tuple(words.split('|')), arguments, {
      name.replace('_', '.'): content for name, content in files.items()})


def own_file(words, body, config='own.py:listops_mini', *changes):
  """Returns a case with a user's config file."""
  content = body if isinstance(body, bytes) else body.encode()
  return Case(tuple(words.split('|')), (f'--config={config}', *changes),
              {'own.py': content})


def own_line(words, line, *changes):
  """Returns a case with a config file whose seventh line is `line`."""
  return own_file(words, (
      'from configs import base\n\n\n'
      'def get_config(arg=""):\n'
      '  config = base.get_config(arg)\n'
      '  config.model.name = "simpletron"\n'
      f'  {line}\n'
      '  return config\n'), 'own.py:listops_mini', *changes)


def environment(words, **variables):
  """Returns a case with invalid environment variables."""
  return Case(tuple(words.split('|')), (
      '--config=configs/simpletron.py:listops_mini',), {}, 'run_lra', variables)


def runs(words, content):
  """Returns a case with a file of runs."""
  content = content if isinstance(content, bytes) else content.encode()
  return Case(tuple(words.split('|')), ('runs', 'a.toml', '--status'),
              {'a.toml': content})


def source(words, task, files):
  """Returns a case with source files of a data set."""
  return Case(tuple(words.split('|')), (
      f'--task={task}', '--source=source', '--data_dir=data'),
      {f'source/{name}': content for name, content in files.items()},
      'data_prep')


def aan(words, row):
  """Returns a case with an extra row in an AAN table."""
  rows = {name: (FIXTURES / 'aan' / name).read_bytes()
          for name in aan_files.FILES.values()}
  name = aan_files.FILES['train']
  return source(f'{words}|{name}, line', 'retrieval',
                 {**rows, name: rows[name] + row + b'\n'})


def rfc(words, document='', pair=''):
  """Returns a case with an extra RFC document or pair."""
  files = {name: '0\ta\ta\n' for name in retrieval.RFC_FILES.values()}
  files['documents.jsonl'] = f'{{"id": "a", "text": "b"}}\n{document}'
  files['pairs.test.tsv'] += pair
  return source(words, 'retrieval_rfc', {
      name: content.encode() for name, content in files.items()})


def listops(words, **tables):
  """Returns a case with these ListOps tables instead of valid ones."""
  files = {name: (FIXTURES / 'listops' / name).read_bytes() for name in (
      'basic_train.tsv', 'basic_val.tsv', 'basic_test.tsv')}
  files.update({f'basic_{k}.tsv': v for k, v in tables.items()})
  return source(words, 'listops', files)


def tar(name, size, content):
  """Returns a gzipped tar archive whose only member claims `size` bytes."""
  member = tarfile.TarInfo(name)
  member.size = size
  return gzip.compress(member.tobuf() + content, mtime=0)


def archive(words, content):
  """Returns a case with an archive of reviews."""
  return Case(tuple(words.split('|')), (
      '--task=text', '--source=a.tar.gz', '--data_dir=data'),
      {'a.tar.gz': content}, 'data_prep')
