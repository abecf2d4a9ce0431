"""Floors of a task: scores that need no neural network."""

from lra import tasks
from lra.prepared import Prepared


def of_data(task: tasks.Task, data: Prepared) -> dict[str, float]:
  return {}
