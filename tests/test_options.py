"""Which flags are of which command."""

import pathlib
import re
import shlex

import pytest
from absl import flags
from absl.testing import flagsaver

from lra import command, options

ROOT = pathlib.Path(__file__).parent.parent


def _commands():
  """What the code blocks of the documents pass to the program."""
  for name in ('README.md', 'lra/recipes/README.md'):
    text = (ROOT / name).read_text()
    for block in re.findall(r'```\w*\n(.*?)```', text, re.S):
      lines = re.sub(r'\\?\n +--', ' --', block)
      yield from re.findall(
          r'(?:^|[ /])(?:run_lra\.py|lra|lra-cuda) (--[^\'\n]*)', lines, re.M)


COMMANDS = sorted(set(_commands()))


def test_documents_have_commands_of_every_kind():
  text = ' '.join(COMMANDS)
  assert len(COMMANDS) > 15
  assert [name for name in options.COMMANDS if f'--{name}' not in text] == []


@pytest.mark.parametrize('line', COMMANDS)
def test_commands_of_the_documents_are_taken(line, monkeypatch):
  monkeypatch.chdir(ROOT)
  words = shlex.split(line.replace('$JOB_COMPLETION_INDEX', '0'))
  with flagsaver.flagsaver():
    flags.FLAGS(['lra', *(
        word for word in words if not word.startswith('--config.'))])
    options.check()


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
