"""Trains the runs of a file that are not finished, or shows their progress.

  lra runs mini --status
  lra runs configs/runs/search_state.toml --models=gla,deltanet --plan

FILE is a TOML file, or the name of one in configs/runs. The same command
resumes what was stopped. See docs/runs.md.
"""

import argparse
import dataclasses
import functools
import pathlib
import signal
import sys

from lra.cli import arguments, board, command
from lra.core import environment, paths, signals
from lra.core.errors import UserError

# Flags that the processes and the jobs of the runs get, too.
_PASSED_ON = ('record', 'replace', 'results_dir', 'page', 'compile_cache',
              'log', 'at_once', 'hide_test')


def add_arguments(parser):
  count = arguments.number(int, 1)
  parser.add_argument('file', metavar='FILE', help='the file of the runs')
  show = parser.add_argument_group('instead of training')
  show.add_argument('--status', action='store_true', help='show the progress '
                    'of the runs; on a terminal until all are finished')
  show.add_argument('--plan', action='store_true', help='estimate the minutes '
                    'of each run, from its own speed or from records of '
                    'similar runs; with --max_minutes, show which fit')
  show.add_argument('--device', choices=['h200'], help='with --plan: estimate '
                    'for this GPU, by bytes and launches of the compiled steps '
                    'if it has no record')
  some = parser.add_argument_group('which runs')
  some.add_argument('--missing', action='store_true', help='skip runs that '
                    'have a record in --results_dir')
  some.add_argument('--part', metavar='I/N', help='one part of the runs: 2/5 '
                    'is the second of five, for the second of five machines')
  some.add_argument('--models', metavar='A,B', type=_list, default=[],
                    action='extend', help='these models, in the place of those '
                    'of the file')
  how = parser.add_argument_group('training')
  how.add_argument('--max_minutes', metavar='M', help='stop after so many '
                   'minutes, with a checkpoint',
                   type=arguments.number(float, 0))
  how.add_argument('--at_once', metavar='N', type=count, help='number of runs '
                   'of a process at the same time; by default one, but for '
                   'mini tasks on a CPU four per core and at most 16')
  record = how.add_mutually_exclusive_group()
  record.add_argument('--record', action='store_true', default=None, help=(
      'put all runs on the leaderboard; by default those whose settings are '
      'those of the protocol'))
  record.add_argument('--norecord', dest='record', action='store_false',
                      default=None, help='put no run on the leaderboard')
  how.add_argument('--replace', action='store_true', help='replace earlier '
                   'records of the same runs')
  board.add_place(how)
  how.add_argument('--log', metavar='A,B', type=_list, default=[],
                   action='extend', help='further formats of the logs: csv, '
                   'tensorboard, wandb, mlflow')
  how.add_argument('--compile_cache', metavar='FOLDER', help='folder that '
                   'keeps compiled programs between runs; an empty name turns '
                   'this off', default=command.CACHE.default, type=(
                       lambda text: paths.local(text)))
  jobs = parser.add_argument_group('jobs')
  jobs.add_argument('--executor', choices=['slurm', 'local'], help='train in '
                    'jobs of Slurm, or of this machine')
  jobs.add_argument('--jobs', metavar='N', type=count, help='number of jobs at '
                    'the same time; by default all with Slurm, else two')
  jobs.add_argument('--gpus', metavar='N', default=0, help='GPUs per job',
                    type=arguments.number(int, 0))
  jobs.add_argument('--cpus', metavar='N', type=count, help='CPU cores per job')
  jobs.add_argument('--partition', metavar='NAME', help='partition of Slurm')
  jobs.add_argument('--hours', metavar='H', help='time limit of a job of '
                    'Slurm, 4 by default; then it is queued again and resumes',
                    type=arguments.number(float, 0.1, 10_000))
  jobs.add_argument('--show_script', action='store_true', help='print the '
                    'script for Slurm, and submit nothing')
  # For processes of this program.
  for name in ('--notest', '--hide_test', '--until_eof', '--record_later'):
    parser.add_argument(name, action='store_true', help=argparse.SUPPRESS)


def _list(text):
  made = [part for part in text.split(',') if part]
  if not made:
    raise argparse.ArgumentTypeError(f'{text!r} names nothing')
  return made


def _check(args):
  """Raises UserError if flags contradict each other."""
  for name in ('jobs', 'gpus', 'cpus'):
    if getattr(args, name) and not args.executor:
      raise UserError(f'--{name} needs --executor.')
  for name in ('partition', 'hours', 'show_script'):
    if getattr(args, name) and args.executor != 'slurm':
      raise UserError(f'--{name} is for Slurm jobs: it needs '
                      '--executor=slurm.')
  if args.executor and args.part:
    raise UserError('--executor makes the parts itself: leave out --part.')
  if args.device and not args.plan:
    raise UserError('--device needs --plan.')
  if args.plan and (args.status or args.executor):
    raise UserError('--plan changes nothing: leave out '
                    f'--{"status" if args.status else "executor"}.')


def main(args) -> int:
  _check(args)
  from lra.many import execute, plan, processes, status
  from lra.many import runs as runs_lib
  from lra.run import writers
  options = execute.Options(
      place=board.place(args.results_dir, args.page), record=args.record,
      replace=args.replace, deadline=execute.deadline(args.max_minutes),
      log=args.log, at_once=args.at_once)
  if args.file == processes.STDIN:
    environment.check_xla_flags()
    flags = processes.from_stdin()
    command.use_compile_cache(args.compile_cache)
    return execute.train(runs_lib.experiments(flags), dataclasses.replace(
        options, test=not args.notest, show_test=not args.hide_test,
        record_later=args.record_later))
  if args.until_eof:
    processes.end_with_stdin(signal.SIGTERM)
  writers.check(options.log)
  if args.part is not None:
    runs_lib.part([], args.part)  # checks its form
  whole = runs_lib.read(args.file, args.models)
  runs = whole if args.part is None else runs_lib.part(whole, args.part)
  if not runs:
    print(f'--part={args.part} has no run: the file has only '
          f'{len(runs_lib.pieces(whole))} parts.')
    return 0
  records = status.recorded(runs, args.results_dir / 'runs') if (
      args.status or args.plan or args.missing) else {}
  if args.missing:
    found = [run for run in runs
             if run.searched or run.repetition not in records]
    print(f'{len(runs) - len(found)} of {len(runs)} runs are left out: '
          f'{args.results_dir} has a record of each.', flush=True)
    if not found:
      return 0
    runs = found
  if args.plan:
    print(f'The plan of {args.file}:', flush=True)
    print(plan.table(
        plan.of_units(runs_lib.units(runs), plan.estimator(
            runs, args.results_dir, records, args.device)), args.max_minutes))
    return 0
  execute.warn_of_edits((run.folder, run.result()[0]) for run in runs)
  if args.status:
    status.show(functools.partial(status.standings, runs, records, whole),
                sys.stdout)
    return 0
  return _train(args, whole, runs, options)


def _train(args, whole, runs, options):
  """Trains runs in processes or jobs; returns the exit code.

  With Slurm it returns 0 once the jobs are queued.
  """
  from lra.board import publish
  from lra.many import choose, plan, processes, status, study
  from lra.many import runs as runs_lib
  units = runs_lib.units(runs)
  tasks = {run.folder.parts[-3] for run in runs if run.searched}
  if tasks and options.records('searched'):
    publish.check(options.place, tasks)
  args.hide_test = any(len(unit.settings) > 1 for unit in runs_lib.units(whole))
  if args.executor:
    stopped, broken = _submit(args, whole, runs, options)
    if stopped is None:
      return 0
  else:
    estimate = None if args.max_minutes is None else (
        plan.estimator(runs, args.results_dir))
    made = processes.Processes(
        options, _flags(args, *_PASSED_ON), args.compile_cache,
        lambda run: estimate and estimate(run).compiling)
    made.train(runs)
    stopped, broken = made.stopped, made.broken
  print(status.text(*status.standings(runs, whole=whole)), flush=True)
  if runs[0].arm and (options.record or options.replace):
    study.publish(options.place)
  for unit in units:
    if len(unit.settings) == 1 and len(unit.runs) > 1:
      results = [run.result()[0] for run in unit.runs]
      said = choose.tested([run for run in results if run is not None])
      if said:
        print(f'{runs_lib.title(unit.runs[0].setting)}: {said}')
  compared = runs_lib.units(whole)
  for line in choose.ranked(compared) + choose.standing(compared):
    print(line)
  if tasks and options.record is None and not options.replace:
    print('Searched settings are not on the leaderboard: --record adds the '
          'chosen runs, in tables of their own.')
  return processes.exit_code(runs, options, stopped, broken)


def _flags(args, *names):
  """Returns the given flags of these names, as they are written."""
  made = []
  for name in names:
    value = getattr(args, name)
    if value is True or (value is False and name == 'record'):
      made.append(f'--{"" if value else "no"}{name}')
    elif value is not None and value is not False and value != []:
      made.append(f'--{name}={",".join(value)}' if isinstance(value, list)
                  else f'--{name}={value}')
  return made


def _submit(args, whole, runs, options):
  """Makes jobs for the unfinished runs.

  The jobs are parts of the whole file, not only of what is left: records may
  appear while a job waits.

  Returns:
    Whether the jobs were stopped, None if they are queued and may not have
    begun; and the runs of jobs that ended by a bug or a signal.
  """
  from lra.many import jobs, processes, status
  from lra.many import runs as runs_lib
  pieces = len(runs_lib.pieces(whole))
  local = args.executor == 'local'
  if args.show_script:
    paths.need('submitit', '--show_script', 'slurm')
  elif not local:
    jobs.check()
  count = min(args.jobs or 2, pieces) if local else pieces
  left = {run for unit in runs_lib.units(runs)
          for run in processes.unfinished(unit, options)}
  parts = {text: made for i in range(1, count + 1)
           for text in [f'{i}/{count}']
           for made in [runs_lib.part(whole, text)]
           if not left.isdisjoint(made)}
  if not parts:
    return False, set()
  passed = _flags(args, *_PASSED_ON, 'max_minutes', 'models', 'missing')
  said = [('runs', args.file, f'--part={text}', *passed) for text in parts]
  folder = pathlib.Path('runs', 'jobs', pathlib.Path(args.file).stem)
  how = {'cpus': args.cpus, 'gpus': args.gpus}
  if not local:
    jobs.submit(folder, said, at_once=args.jobs or count, **how,
                partition=args.partition, hours=args.hours or 4,
                shown=args.show_script)
    return None, set()
  with signals.later('once the jobs have stopped'):
    codes = jobs.here(folder, said, status.Live(functools.partial(
        status.standings, runs, whole=whole), sys.stdout).draw, **how)
  broken = {run for code, made in zip(codes, parts.values(), strict=True)
            if processes.is_bug(code) for run in made}
  return bool(signals.reason()) or signals.STOPPED in codes, broken
