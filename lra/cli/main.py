"""The command line: a word chooses a command, and flags alone train a run.

Exit codes: 0 done; 1 a bug of ours, with its traceback; 2 something for the
user to correct, in one sentence; 3 the run diverged; 4 the device's memory was
too small; 75 stopped early, the same command resumes; 130 ended by a second
Ctrl-C.
"""

import sys

import lra
from lra.cli import arguments, command
from lra.core import paths
from lra.core.errors import check_given

_HELP = '''\
Trains attention mechanisms on Long Range Arena and compares them.

Train a model and score it. The same command resumes a stopped run.
  {lra} --config={model}:listops_mini
and with further flags:
  --config={model}:listops,protocol=nystrom   another protocol
  --config.train.steps=100    change a field
  --print_config              explain every field
  --seeds=0-4                 several seeds
  --trial                     estimate hours and memory
  --max_minutes=30            checkpoint and stop in time (exit code 75)
  --norecord                  keep the result off the leaderboard
  --version                   print the version of lra

Every other command is a word. RUN is a folder such as runs/listops/gla/...
{words}

  {lra} runs configs/runs/mini.toml --status
  {lra} evaluate RUN --lengths=64,128
  {lra} compare RUN RUN
  {lra} board --html=site

Flags of a word: {lra} WORD --help. Documentation: docs/index.md.'''
_ASKS_HELP = {'-h', '-help', '--help', '--helpshort', '--helpfull'}


def summary() -> str:
  """Returns the text of --help, which fits a screen."""
  words = '\n'.join(f'  {word:10}{what}'
                    for word, what in arguments.WORDS.items())
  return _HELP.format(lra=' '.join(paths.program()), words=words,
                      model=paths.config_said('simpletron'))


def run() -> None:
  """Entry point of `run_lra.py`."""
  command.run(lambda: main(sys.argv[1:]))


def main(argv: list[str]) -> int:
  """Runs the command of these arguments; returns the exit code.

  Raises:
    UserError: an argument is wrong.
  """
  check_given(argv)
  word, *rest = argv or ['']
  if word == '--version':
    print(f'lra {lra.__version__}')
    return 0
  if word == '--leaderboard':
    word = 'board'
  elif word.startswith('-') or not word:
    word, rest = 'train', argv
    if _ASKS_HELP & {*argv}:
      print(summary())
      return 0
  if word == 'train':
    from lra.cli import train
    if _ASKS_HELP & {*rest}:
      print(train.summary())
      return 0
    return train.main(rest)
  if word == 'data':
    from lra.data_prep import __main__ as data
    return data.main(rest, ' '.join([*paths.program(), 'data']))
  if word not in arguments.WORDS:
    raise arguments.unknown(word)
  args = arguments.parsed(word, rest)
  return args.main(args)
