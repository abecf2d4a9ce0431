"""Tests which flags belong to which command."""

import re
import shlex

import pytest
from absl import flags
from absl.testing import flagsaver

from lra.cli import command, options
from lra.data_prep import __main__ as data_prep_main
from lra.run import loader
from lra.run.experiment import resolve
from tests.helpers import documents
from tests.helpers.paths import ROOT

COMMANDS = documents.commands(r'run_lra\.py|lra|lra-cuda')
# The documents ask readers to write these files.
_WRITTEN = ('configs/mean.py', 'configs/aft.py', 'my_sweep.txt')
# The documents ask readers to download this folder.
_DOWNLOADED = '=bert-base-uncased'


def test_documents_have_commands_of_every_kind():
  text = ' '.join(COMMANDS)
  assert [name for name in options.COMMANDS if f'--{name}' not in text] == []


@pytest.mark.parametrize('line', COMMANDS)
def test_commands_of_the_documents_are_taken(line, monkeypatch):
  monkeypatch.chdir(ROOT)
  words = shlex.split(line.replace('$JOB_COMPLETION_INDEX', '0'))
  if any(name in line for name in _WRITTEN):
    pytest.skip('a file that the reader writes')
  made = [word for word in words if word.startswith('--config')]
  if made:
    loader.made_by(made)
    resolve(loader.made_by([
        word for word in made if not word.endswith(_DOWNLOADED)]))
  with flagsaver.flagsaver():
    flags.FLAGS(['lra', *(
        word for word in words if not word.startswith('--config.'))])
    options.check()


@pytest.mark.parametrize(
    'line', documents.commands(r'python -m lra.data_prep'))
def test_commands_that_prepare_data_are_taken(line):
  data_prep_main.parser().parse_args(shlex.split(line))


def test_commands_that_measure_costs_have_flags_that_are_there():
  text = (ROOT / 'tools/__main__.py').read_text()
  for line in documents.commands(r'python -m lra\.costs'):
    for word in shlex.split(line):
      name = word.removeprefix('--').partition('=')[0]
      assert name.startswith('config') or (
          re.search(rf"DEFINE_\w+\(\s*'{name}',", text)), line


def test_help_shows_commands_on_one_screen():
  text = options.summary()
  lines = text.splitlines()
  assert len(lines) <= 40 and max(map(len, lines)) <= 80
  shown = re.findall(r'^  (--.*?)(?:   +.*)?$', text, re.MULTILINE)
  assert [name for name in options.COMMANDS
          if not any(line.startswith(f'--{name}') for line in shown)] == []
  for line in shown:
    words = [word for word in shlex.split(line) if word.startswith('--')]
    for word in words:
      name = word.removeprefix('--').partition('=')[0].removeprefix('no')
      assert name.startswith('config.') or name in flags.FLAGS, line


def test_every_flag_is_of_a_command():
  ours = flags.FLAGS.flags_by_module_dict()
  named = {flag.name for flag in ours[options.__name__]}
  assert named | {command.CONFIG.name, command.CACHE.name} == {
      name for taker, taken in options.COMMANDS.items()
      for name in (taker, *taken)}


@pytest.mark.parametrize('folder', ['/', '//', '/tmp/..', 'link'])
def test_the_root_folder_is_no_run_directory(folder, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'link').symlink_to('/')
  with flagsaver.flagsaver():
    with pytest.raises(flags.IllegalFlagValueError, match='the root folder'):
      flags.FLAGS(['lra', f'--workdir={folder}'])
    flags.FLAGS(['lra', '--workdir=here'])
