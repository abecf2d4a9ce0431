"""Writes the operations of a trace that take the most time, as JSON.

  python tools/gpu_trace.py RUN/profile OPERATIONS.json

reads the newest trace of --profile in the folder. It counts the operations on
the streams of a device, or on XLA's threads if there is no device.
"""

import collections
import gzip
import json
import pathlib
import sys

MOST = 40  # most operations to list
# The function that calls operations on a CPU and waits for them.
_CALLER = 'ThunkExecutor'


def operations(events: list[dict]) -> list[dict]:
  """Returns name, calls, seconds and share of each operation, longest first.

  Args:
    events: `traceEvents` of a trace in Chrome's format; times in microseconds.
  """
  lines = _lines(events)
  calls, micros = collections.Counter(), collections.Counter()
  for event in events:
    if event.get('ph') == 'X' and (
        (event['pid'], event.get('tid')) in lines) and (
            not event['name'].startswith(_CALLER)):
      calls[event['name']] += 1
      micros[event['name']] += event.get('dur', 0)
  total = sum(micros.values()) or 1
  return [{'name': name, 'calls': calls[name], 'seconds': time / 1e6,
           'share': round(time / total, 4)}
          for name, time in micros.most_common()]


def _lines(events):
  """Returns (process, thread) of the lines that hold each operation once."""
  processes, threads = {}, {}
  for event in events:
    name = event.get('args', {}).get('name', '')
    if event.get('name') == 'process_name':
      processes[event['pid']] = name
    elif event.get('name') == 'thread_name':
      threads[event['pid'], event.get('tid')] = name
  for place, begins in (('/device:', 'Stream'), ('/device:', 'XLA Ops'),
                        ('/host:', 'tf_XLA')):
    found = {line for line, name in threads.items() if name.startswith(begins)
             and place in processes.get(line[0], '')}
    if found:
      return found
  return set()


def main(folder: str, target: str) -> None:
  """Writes the operations of the newest trace under a folder."""
  traces = sorted(pathlib.Path(folder).rglob('perfetto_trace.json.gz'))
  if not traces:
    sys.exit(f'error: {folder} has no perfetto_trace.json.gz: give the folder '
             'profile of a run that was traced with --profile.')
  with gzip.open(traces[-1], 'rt', encoding='utf-8') as file:
    found = operations(json.load(file)['traceEvents'])
  pathlib.Path(target).write_text(json.dumps({
      'operations': len(found),
      'seconds': sum(operation['seconds'] for operation in found),
      'longest': found[:MOST]}, indent=1) + '\n', encoding='utf-8')


if __name__ == '__main__':
  main(*sys.argv[1:])
