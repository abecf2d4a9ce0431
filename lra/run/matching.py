"""Matches the regular expressions of a config in bounded time.

Python's `re` may try exponentially many ways to match a text, and blocks the
interpreter meanwhile: `(.*.*.*)*x` would take longer than any run. So a
separate process with a limit of CPU time does the matching.
"""

import functools
import json
import subprocess
import sys

from lra.core.errors import UserError

SECONDS = 5  # most CPU time for all expressions of a config
_COMMAND = '''
import json, re, resource, sys
patterns, names, seconds = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
for pattern in map(re.compile, patterns):
  print(json.dumps([bool(pattern.fullmatch(name)) for name in names]),
        flush=True)
'''


@functools.lru_cache(maxsize=100)
def first(patterns: tuple[str, ...], names: tuple[str, ...], field: str
          ) -> tuple[int | None, ...]:
  """Returns the index of the first pattern that matches each whole name.

  It is None for a name that no pattern matches. `field` is the field of the
  config that has the patterns, for the error.
  """
  done = subprocess.run(
      (sys.executable, '-I', '-S', '-c', _COMMAND), text=True,
      input=json.dumps([patterns, names, SECONDS]), capture_output=True)
  found = done.stdout.splitlines()
  if done.returncode < 0:
    raise UserError(
        f'{field}: the expression {patterns[len(found)]!r} takes '
        f'more than {SECONDS} seconds: write it without a repetition inside a '
        'repetition.')
  if done.returncode:
    raise RuntimeError(done.stderr)
  matches = map(json.loads, found)
  return tuple(next((i for i, match in enumerate(column) if match), None)
               for column in zip(*matches, strict=True))
