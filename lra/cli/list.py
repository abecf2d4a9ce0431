"""Lists models, with parameters and state sizes, and tasks with protocols.

  lra list state space
  lra list '*delta*'
"""

import fnmatch

from lra.core.errors import UserError, meant
from lra.core.formats import escaped


def add_arguments(parser):
  parser.add_argument(
      'what', nargs='*', metavar='WHAT', help='only these: a family of models, '
      'a task, a model, or a pattern of names such as "*delta*"')


def main(args) -> int:
  print(listing(' '.join(args.what)))
  return 0


def listing(what: str = '') -> str:
  """Returns a line for each model, by family, and one for each task.

  Parameters and state sizes are those under the default protocol of a task.
  With `what`, only its models and tasks are listed: a family, or a pattern of
  names. UserError if nothing has that name.
  """
  from lra.board import catalogue
  from lra.cli import parameters
  from lra.configs import base
  from lra.core import tasks
  found, broken = [*tasks.TASKS.values()], []
  for name in tasks.own_names():
    try:
      found.append(tasks.get(name))
    except UserError as e:
      broken.append(str(e))
  wanted = None
  if what:
    wanted, found = _matching(what, catalogue.read(), found)

  def protocols(task):
    return [name for name in base.PROTOCOLS
            if base.protocols.of(name, task) is not None]
  width = max((len(task.name) for task in found), default=0)
  lines = [
      f'{t.name:{width}} {t.seq_len:6} tokens{" x 2" if t.dual else "":5}'
      f'{t.num_classes:4} classes  {t.title:33}  {", ".join(protocols(t.name))}'
      for t in found]
  if found:
    lines.insert(0, 'tasks, and their protocols; the first is the default')
  if what and not wanted:
    return escaped('\n'.join([*broken, *lines]))
  counts, problems = parameters.table()
  first = parameters.TASKS[0]
  return escaped('\n'.join([
      f'models; their parameters on {first} (protocol {protocols(first)[0]}), '
      f'how many times the {catalogue.REFERENCE}\'s these are, and the numbers '
      'that a layer keeps from token to token',
      catalogue.listing(
          {name: {first: count[first]} for name, count in counts.items()},
          states=parameters.state_sizes(), wanted=wanted) + '\n'.join([
          *problems, *broken, *lines])]).rstrip())


def _matching(what, entries, tasks):
  """Returns the names of models, and the tasks, of a family or a pattern."""
  models = {e.name for e in entries
            if what == e.family or fnmatch.fnmatchcase(e.name, what)}
  some = [task for task in tasks if fnmatch.fnmatchcase(task.name, what)]
  if not (models or some):
    known = {e.name for e in entries} | {e.family for e in entries} | {
        task.name for task in tasks}
    near = meant(what, sorted(known))
    raise UserError(f'{what!r} is no family, model or task: ' + (
        f'did you mean {near}?' if near else
        '`list` without it shows all of them.'))
  return models, some
