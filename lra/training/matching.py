"""Regular expressions of a config, matched in bounded time.

Python's `re` tries every way in which a text may match, and holds the
interpreter meanwhile: `(.*.*.*)*x` would take longer than any run, and no
signal or thread could stop it. Which expressions are slow does not show in
their form, so they are matched in a process with a limit of processor time.
"""

import functools
import json
import subprocess
import sys

from lra.errors import UserError

SECONDS = 5  # of a processor, for all expressions of a config
_COMMAND = '''
import json, re, resource, sys
patterns, names, seconds = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
for pattern in map(re.compile, patterns):
  print(json.dumps([bool(pattern.fullmatch(name)) for name in names]),
        flush=True)
'''


@functools.lru_cache(maxsize=100)
def first(patterns: tuple[str, ...], names: tuple[str, ...]
          ) -> tuple[int | None, ...]:
  """For each name, the number of the first pattern that matches all of it.

  Args:
    patterns: regular expressions that can be compiled.
    names: what they are to match.

  Returns:
    Numbers from 0; None for a name that no pattern matches.

  Raises:
    UserError: the patterns take more than `SECONDS`.
  """
  done = subprocess.run(
      (sys.executable, '-I', '-S', '-c', _COMMAND), text=True,
      input=json.dumps([patterns, names, SECONDS]), capture_output=True)
  found = done.stdout.splitlines()
  if done.returncode < 0:
    raise UserError(
        f'config.optim.groups: the expression {patterns[len(found)]!r} takes '
        f'more than {SECONDS} seconds: write it without a repetition inside of '
        'a repetition.')
  if done.returncode:
    raise RuntimeError(done.stderr)
  matches = map(json.loads, found)
  return tuple(next((i for i, match in enumerate(column) if match), None)
               for column in zip(*matches, strict=True))
