"""Computes valid scores of a classifier from its confusion matrix."""


def of(confusion: list[list[int]], **others) -> dict:
  """Returns the scores of a split in a record, with `others` as fields."""
  classes = range(len(confusion))
  hits = [confusion[i][i] for i in classes]
  true = [sum(line) for line in confusion]
  predicted = [sum(line[i] for line in confusion) for i in classes]

  def mean(shares):
    return sum(a / b if b else 0.0 for a, b in shares) / len(confusion)

  both = [a + b for a, b in zip(true, predicted, strict=True)]
  return {
      'accuracy': sum(hits) / sum(true), 'loss': 0.5,
      'precision': mean(zip(hits, predicted, strict=True)),
      'recall': mean(zip(hits, true, strict=True)),
      'f1': mean(zip([2 * x for x in hits], both, strict=True)),
      'confusion': confusion, **others}
