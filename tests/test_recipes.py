"""Files, extras, flags and commands that lra/recipes names exist."""

import configparser
import os
import re
import shlex
import subprocess

import pytest
from packaging import requirements, utils

from lra.cli import arguments
from tests.helpers.paths import ROOT

RECIPES = ROOT / 'lra' / 'recipes'
DOCKERFILE = (RECIPES / 'Dockerfile').read_text()
README = (RECIPES / 'README.md').read_text()
SBATCH = (RECIPES / 'run.sbatch').read_text()


def _setup():
  parser = configparser.ConfigParser()
  parser.read(ROOT / 'setup.cfg')
  return parser


def _words(instruction):
  """Returns the arguments of each Dockerfile line with this instruction."""
  return [line.split()[1:] for line in DOCKERFILE.splitlines()
          if line.startswith(f'{instruction} ')]


def test_the_build_sees_what_it_copies_and_no_more():
  copied = {source for *words, _ in _words('COPY') for source in words
            if not words[0].startswith('--from')}
  assert {'lra', 'configs', 'setup.cfg'} <= copied
  assert [name for name in copied if not (ROOT / name).exists()] == []
  lines = (RECIPES / 'Dockerfile.dockerignore').read_text().splitlines()
  assert [line for line in lines if line[0] != '#'][0] == '*'
  assert {line[1:] for line in lines if line[0] == '!'} == copied


def test_extras_are_those_of_the_package():
  text = DOCKERFILE + README
  named = {extra for found in re.findall(
      r'EXTRAS=([\w,-]+)|\.\[([\w,-]+)\]|\*\.whl\)\[([\w,-]+)\]|`\[([\w-]+)\]`',
      text) for group in found for extra in group.split(',') if extra}
  assert {'cuda13', 'tpu', 'slurm'} <= named
  assert named <= set(_setup()['options.extras_require'])


def test_flags_are_those_of_the_command():
  """Each `lra` command of README and run.sbatch has flags of its word."""
  blocks = re.findall(r'```\w*\n(.*?)```', README, re.S)
  text = '\n'.join(blocks).replace('\\\n', ' ')
  text = re.sub(r'\n +--', ' --', text) + SBATCH
  commands = [line.split() for line in re.findall(
      r'(?:^|[ /])(?:lra|run\.sbatch|lra-cuda) ((?:runs|--).*)$', text, re.M)]
  assert len(commands) > 8
  for words in commands:
    named = {word.removeprefix('--').split('=')[0].strip('"\'')
             for word in words if word.startswith('--')}
    word = 'runs' if words[0] == 'runs' else 'train'
    assert named <= arguments.flags_of(word)


def test_configs_and_files_that_are_named_are_there():
  text = README + SBATCH
  configs = re.findall(r'configs/[\w/]+\.\w+', text)
  links = re.findall(r'\]\((?!https:)([^)]+)\)', README)
  assert configs and links
  assert [name for name in configs if not (ROOT / name).exists()] == []
  assert [name for name in links if not (RECIPES / name).exists()] == []


@pytest.mark.parametrize(('code', 'restarts', 'again'), [
    (75, None, True), (75, 99, True), (75, 100, False), (0, None, False),
    (2, None, False)])
def test_what_was_stopped_is_queued_again_but_not_for_ever(
    tmp_path, code, restarts, again):
  asked = tmp_path / 'asked'
  for name, does in (('srun', f'exit {code}'),
                     ('scontrol', f'echo "$@" > {shlex.quote(str(asked))}')):
    (tmp_path / name).write_text(f'#!/bin/sh\n{does}\n')
    (tmp_path / name).chmod(0o755)
  environment = {'PATH': f'{tmp_path}:{os.environ["PATH"]}',
                 'SLURM_JOB_ID': '7'}
  if restarts is not None:
    environment['SLURM_RESTART_COUNT'] = str(restarts)
  done = subprocess.run(['bash', str(RECIPES / 'run.sbatch')], check=False,
                        env=environment)
  assert done.returncode == code
  assert (asked.read_text() if asked.exists() else '') == (
      'requeue 7\n' if again else '')


@pytest.mark.parametrize(
    'path', sorted((ROOT / '.ci/constraints').iterdir()), ids=lambda p: p.stem)
def test_tested_versions_are_those_that_the_package_may_have(path):
  """A constraints file pins each required package to an allowed version."""
  lines = path.read_text().splitlines()
  pinned = {}
  for line in lines:
    name, version = re.fullmatch(r'([\w.-]+)==([\w.]+)', line).groups()
    pinned[utils.canonicalize_name(name)] = version
  assert len(pinned) == len(lines)
  setup = _setup()
  wanted = setup['options']['install_requires'] + (
      setup['options.extras_require']['dev'])
  for line in filter(None, wanted.splitlines()):
    needed = requirements.Requirement(line)
    name = utils.canonicalize_name(needed.name)
    assert needed.specifier.contains(pinned[name], prereleases=True), line
