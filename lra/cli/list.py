"""Lists models, with parameters and state sizes, and tasks with protocols.

  lra list
  lra list | grep 2006.16236
"""


def add_arguments(parser):
  del parser


def main(args) -> int:
  del args
  print(listing())
  return 0


def listing() -> str:
  """Returns a line for each model, by family, and one for each task.

  Parameters and state sizes are those under the default protocol of a task.
  """
  from lra.board import catalogue
  from lra.cli import parameters
  from lra.configs import base
  from lra.core import tasks
  from lra.core.errors import UserError
  from lra.core.formats import escaped
  counts, problems = parameters.table()
  first = parameters.TASKS[0]
  found = [*tasks.TASKS.values()]
  for name in tasks.own_names():
    try:
      found.append(tasks.get(name))
    except UserError as e:
      problems.append(str(e))
  protocols = {task.name: [
      name for name in base.PROTOCOLS
      if base.protocols.of(name, task.name) is not None] for task in found}
  width = max(len(task.name) for task in found)
  lines = [
      f'{t.name:{width}} {t.seq_len:6} tokens{" x 2" if t.dual else "":5}'
      f'{t.num_classes:4} classes  {t.title:33}  {", ".join(protocols[t.name])}'
      for t in found]
  return escaped('\n'.join([
      f'models; their parameters on {first} (protocol {protocols[first][0]}), '
      f'how many times the {catalogue.REFERENCE}\'s these are, and the numbers '
      'that a layer keeps from token to token',
      catalogue.listing(
          {name: {first: count[first]} for name, count in counts.items()},
          states=parameters.state_sizes()) + '\n'.join([
          *problems, 'tasks, and their protocols; the first is the default',
          *lines])]))
