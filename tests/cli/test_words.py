"""Tests the words of the command line, their flags and their errors."""

import re
import shlex

import pytest
from absl.testing import flagsaver

from lra.cli import arguments, main, train
from lra.core.errors import UserError
from lra.run import loader
from lra.run.experiment import resolve
from tests.helpers import documents
from tests.helpers.paths import ROOT

COMMANDS = documents.commands(r'run_lra\.py|lra|lra-cuda')
# The documents ask readers to write these files.
_WRITTEN = ('configs/mean.py', 'configs/aft.py', 'my_runs.toml', ':mine')
# The documents ask readers to download this folder.
_DOWNLOADED = '=bert-base-uncased'
_PARSED = sorted({*arguments.WORDS} - {'train', 'data'})


@pytest.mark.parametrize('line', COMMANDS)
def test_commands_of_the_documents_are_taken(line, monkeypatch):
  monkeypatch.chdir(ROOT)
  words = shlex.split(line.replace('$JOB_COMPLETION_INDEX', '0'))
  if any(name in line for name in _WRITTEN):
    pytest.skip('a file that the reader writes')
  if words[0] in _PARSED or words[0] == '--leaderboard':
    arguments.parsed(words[0].replace('--leaderboard', 'board'), words[1:])
  elif words[0] == 'data':
    from lra.data_prep import __main__ as data
    data.parser().parse_args(words[1:])
  elif words != ['--help']:
    made = [word for word in words if word.startswith('--config')]
    resolve(loader.made_by([
        word for word in made if not word.endswith(_DOWNLOADED)]))
    with flagsaver.flagsaver():
      train.parse([w for w in words if not w.startswith('--config.')])


def test_help_fits_a_screen_and_names_every_word():
  lines = main.summary().splitlines()
  assert len(lines) <= 40 and max(map(len, lines)) <= 80
  listed = {line.split()[0] for line in lines if line.startswith('  ')}
  assert {*arguments.WORDS} <= listed


@pytest.mark.parametrize('word', _PARSED)
def test_the_help_of_a_word_has_two_examples_that_are_taken(word):
  parser = arguments.Parser(word)
  examples = re.findall(r'^  python run_lra.py (\S+ ?.*)$', parser.description,
                        re.MULTILINE)
  assert len(examples) == 2
  for example in examples:
    name, *rest = shlex.split(example.partition(' | ')[0])
    assert name == word and arguments.parsed(word, rest).main


@pytest.mark.parametrize('given, named', [
    ('evalute RUN', "'evalute': did you mean evaluate"),
    ('dta --task=text', "'dta': did you mean data"),
    ('a.py:text', '--config=a.py:text'),
    ('xyzzy', 'choose one of train, '),
    ('board x', "'x' is one argument too many"),
    ('list x', "'x' is no family, model or task: `list` without it"),
    ('list performr', 'did you mean performer'),
    ('compare A', 'required: B'), ('curves a.png', 'required: RUN'),
    ('evaluate RUN --html=a', '--html is a flag of .* board '),
    ('board --seeds=0-3', '--seeds is a flag of .* train '),
    ('list --norecord', '--norecord is a flag of .* train '),
    ('list --frobnicate', '--frobnicate is no flag'),
    *((given, given.split()[-1]) for given in (
        'board --html=', 'runs mini --models=', 'runs mini --log=',
        'evaluate RUN --lengths=', 'export OUT RUN --push=', 'data --source=',
        '--config=simpletron:text --log=')),
    ('runs mini --models=,', '--models'),
    ('board --html=gs://a', 'is a URL'),
    ('--source=aclImdb.tar.gz', '--source is a flag of .* data '),
    ('--evaluate=RUN', 'write .* evaluate'),
    ('--lr=1', "'lr'.*--config.train.learning_rate"),
    ('--batch_size=1', "'batch_size'.*--config.train.batch_size"),
    ('--max_minutes=1', 'needs --config|Nothing to do'),
    ('--config=simpletron:text x', "argument 'x'")])
def test_a_wrong_argument_is_named(given, named):
  with flagsaver.flagsaver(), pytest.raises(UserError, match=named):
    main.main(given.split())


@pytest.mark.parametrize('folder', ['/', '/tmp/..'])
def test_the_root_folder_is_no_run_directory(folder):
  with flagsaver.flagsaver(), pytest.raises(UserError, match='root folder'):
    train.parse(['--config=simpletron:text', f'--workdir={folder}'])
