"""Confusion counts -> scores."""

from collections.abc import Callable

import numpy as np

from lra.data import batches
from lra.data.prepared import Split


def scores(confusion: np.ndarray, loss_sum: float) -> dict:
  """What a result says of a split.

  Args:
    confusion: int [C, C], rows the true class, columns the predicted one.
    loss_sum: cross entropy in nats, summed over the examples.

  Returns:
    accuracy, loss (mean), macro precision, recall and F1 (a class nobody
    predicted has precision 0; one without examples has recall 0), and the
    confusion matrix as lists.
  """
  confusion = np.asarray(confusion, np.int64)
  total = max(int(confusion.sum()), 1)
  hits = np.diag(confusion).astype(np.float64)
  precision = hits / np.maximum(confusion.sum(axis=0), 1)
  recall = hits / np.maximum(confusion.sum(axis=1), 1)
  f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
  return {'accuracy': float(hits.sum() / total),
          'loss': float(loss_sum / total),
          'precision': float(precision.mean()),
          'recall': float(recall.mean()), 'f1': float(f1.mean()),
          'confusion': confusion.tolist()}


def evaluate(eval_step: Callable, program, scored, split: Split,
             tick: Callable[[], None] = lambda: None) -> dict:
  """Scores of a split, every example counted once.

  Args:
    eval_step: `program.compile_eval()`.
    program: of the same config.
    scored: `params` and `variables` of the model.
    split: the examples.
    tick: called after each batch was sent off.
  """
  C = program.task.num_classes
  confusion, losses = np.zeros((C, C), np.int64), []
  pending = []
  for batch in batches.eval_batches(
      split, batch_size=program.config.train.eval_batch_size,
      seq_len=program.seq_len):
    pending.append(eval_step(scored['params'], scored['variables'], batch))
    if len(pending) > 2:
      confusion, losses = _take(pending.pop(0), confusion, losses)
    tick()
  for item in pending:
    confusion, losses = _take(item, confusion, losses)
  return scores(confusion, float(np.sum(losses)))


def _take(item, confusion, losses):
  counts, loss = item
  return confusion + np.asarray(counts), [*losses, np.float64(loss)]
