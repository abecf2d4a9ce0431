"""Classification of sequences and pairs: cross entropy and accuracy."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax

from lra.core import bits
from lra.core.errors import UserError
from lra.core.tasks import MOST_CLASSES
from lra.data import augment, batches
from lra.data_prep import parts
from lra.nn import heads
from lra.objectives import base


class Objective(base.Objective):
  """Predicts one class per example from its pooled positions.

  Batches hold tokens int16 [B, L] (pairs: [B, 2, L]), labels int32 [B] and
  weights float32 [B].

  With `config.train.masked_loss` some tokens of a training batch are hidden or
  replaced, and `targets` are the tokens before. The loss of an example is then
  its own plus that number times the mean cross entropy of its targets.
  """
  sums = ('loss', 'correct')
  of_tokens = ('tokens', 'targets')

  def check(self, encoder):
    if self.task.probe:
      raise UserError(
          f'config.objective=classification: {self.task.name} needs a class '
          'for single tokens; choose token_classification.')

  def model(self, encoder, dtype):
    settings = self.config.encoder
    layers = 0 if settings.pooler else (
        settings.head_layers or (2 if self.task.dual else 1))
    head = heads.ClassifierHead(
        num_classes=self.num_classes,
        hidden=tuple(settings.mlp_width // 2**i for i in range(layers)),
        pooling=settings.pooling, mean_over=settings.mean_over,
        pair=settings.head, dtype=dtype, pooler=settings.pooler,
        dropout=settings.dropout)
    if not self.config.train.masked_loss:
      return heads.Classifier(encoder=encoder, head=head)
    return heads.Classifier(
        encoder=encoder.clone(hides=True), head=head,
        decoder=nn.Dense(self.task.vocab_size - 1, dtype=jnp.float32))

  def batch(self, split, indices, *, seed, step):
    batch = self._examples(split, indices, seed, step)
    if self.config.train.masked_loss:
      batch['targets'] = batch['tokens']
      if step >= 0:
        batch['tokens'] = augment.corrupted(
            batch['targets'], self.task.vocab_size, indices, seed, step)
    return batch

  def _examples(self, split, indices, seed, step):
    """Returns `batches.gather`; augments training inputs if config says so."""
    augments = self.config.train.augment and step >= 0
    places = augment.places(indices, 1 + self.task.dual, seed, step) if (
        augments and self.task.windows) else None
    black = not self.config.mask_black  # id of a black pixel
    batch = batches.gather(split, indices, self.seq_len, mask_black=not black,
                           places=places)
    if augments and self.task.image:
      batch['tokens'] = augment.images(
          batch['tokens'], augment.CHANGES[self.task.dataset],
          augment.draw(indices, seed, step), int(black))
    if augments and self.task.dataset == 'listops':
      batch['tokens'] = augment.shuffled(batch['tokens'], indices, seed, step)
    return batch

  def shapes(self, *lead):
    tokens = (*lead, *((2,) if self.task.dual else ()), self.seq_len)
    names = self.of_tokens if self.config.train.masked_loss else ('tokens',)
    return {**dict.fromkeys(names, (tokens, np.dtype(np.int16))),
            'labels': (lead, np.dtype(np.int32)),
            'weights': (lead, np.dtype(np.float32))}

  def loss(self, outputs, batch):
    share, more = self.config.train.masked_loss, 0.0
    if share:
      outputs, scores = outputs
      more = share * jnp.sum(
          batch['weights'] * target_loss(scores, batch['targets']))
    loss, correct = weighted_loss(outputs, batch['labels'], batch['weights'])
    return {'loss': loss + more, 'correct': correct,
            'weight': jnp.sum(batch['weights'])}

  def metrics(self, sums):
    return {'loss': sums['loss'] / sums['weight'],
            'accuracy': sums['correct'] / sums['weight']}

  def count(self, outputs, batch):
    loss, _ = weighted_loss(outputs, batch['labels'], batch['weights'])
    C = self.num_classes
    return ((confusion if C <= MOST_CLASSES else tally)(outputs, batch, C),
            loss, jnp.argmax(outputs, axis=-1))

  def scores(self, counts):
    total, losses = 0, []
    for matrix, loss, _ in counts:
      total += np.asarray(matrix, np.int64)
      losses.append(np.float64(loss))
    made = scores if self.num_classes <= MOST_CLASSES else tally_scores
    return made(total, float(np.sum(losses)))

  def label_entropy(self, train):
    return None if self.config.train.masked_loss else entropy(train.labels)

  def analysis(self, counts, order, train, test):
    predicted = np.empty(len(order), np.int64)
    predicted[order] = np.concatenate(
        [batch for _, _, batch in counts])[:len(order)]
    return {'correct': bits.pack(predicted == test.labels),
            **parts.of_answers(self.task.dataset, predicted, train, test)}

  def better(self, scores, best):
    return scores['accuracy'] > best['accuracy']


def entropy(labels_N: np.ndarray) -> float:
  """Returns the entropy of the frequencies of labels, in nats."""
  _, counts_C = np.unique(labels_N, return_counts=True)
  share_C = counts_C / max(counts_C.sum(), 1)
  return float(-np.sum(share_C * np.log(share_C)))


def weighted_loss(logits_BxC, labels_B, weights_B):
  """Returns sums of cross entropy (nats) and correct answers, float32 []."""
  loss_B = optax.softmax_cross_entropy_with_integer_labels(
      logits_BxC, labels_B)
  correct_B = jnp.argmax(logits_BxC, axis=-1) == labels_B
  return jnp.sum(loss_B * weights_B), jnp.sum(
      correct_B.astype(weights_B.dtype) * weights_B)


def target_loss(scores_BxLxC, targets_BxL):
  """Returns the mean cross entropy of each example's tokens, float32 [B].

  Targets are ids from 1 on, 0 is padding; pairs have one more axis.
  """
  keep_BxL = targets_BxL > 0
  loss_BxL = optax.softmax_cross_entropy_with_integer_labels(
      scores_BxLxC, jnp.maximum(targets_BxL.astype(jnp.int32) - 1, 0))
  axes = tuple(range(1, targets_BxL.ndim))
  return jnp.sum(loss_BxL, axes, where=keep_BxL) / jnp.maximum(
      jnp.sum(keep_BxL, axes), 1).astype(jnp.float32)


def confusion(logits_BxC, batch, num_classes: int):
  """Returns counts of (true, predicted) classes, int32 [C, C].

  Examples of weight 0 do not count.
  """
  counts = jnp.zeros((num_classes, num_classes), jnp.int32)
  return counts.at[batch['labels'], jnp.argmax(logits_BxC, axis=-1)].add(
      (batch['weights'] > 0).astype(jnp.int32))


def tally(logits_BxC, batch, num_classes: int):
  """Returns the sums and the diagonal of `confusion`, int32 [3, C].

  They are the examples of each class, those predicted to be of it, and both.
  """
  labels_B, predicted_B = batch['labels'], jnp.argmax(logits_BxC, axis=-1)
  counts_B = (batch['weights'] > 0).astype(jnp.int32)
  right_B = counts_B * (predicted_B == labels_B).astype(jnp.int32)
  return jnp.stack([
      jnp.zeros((num_classes,), jnp.int32).at[of_B].add(counts_B)
      for of_B, counts_B in (
          (labels_B, counts_B), (predicted_B, counts_B),
          (predicted_B, right_B))])


def scores(confusion_CxC: np.ndarray, loss_sum: float) -> dict:
  """Returns accuracy, mean loss, macro precision, recall, F1 and `confusion`.

  Rows of the counts are true classes, columns predicted ones. `loss_sum` is in
  nats. A class that is never predicted has precision 0; a class without
  examples has recall 0.
  """
  matrix = np.asarray(confusion_CxC, np.int64)
  found = tally_scores(
      np.stack([matrix.sum(axis=1), matrix.sum(axis=0), np.diag(matrix)]),
      loss_sum)
  del found['counted']
  return {**found, 'confusion': matrix.tolist()}


def tally_scores(tally_3xC: np.ndarray, loss_sum: float) -> dict:
  """Returns `scores` of the counts of `tally`, with `counted` examples."""
  true, predicted, hits = np.asarray(tally_3xC, np.float64)
  total = max(int(true.sum()), 1)
  precision = hits / np.maximum(predicted, 1)
  recall = hits / np.maximum(true, 1)
  f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
  return {'accuracy': float(hits.sum() / total),
          'loss': float(loss_sum / total),
          'precision': float(precision.mean()),
          'recall': float(recall.mean()), 'f1': float(f1.mean()),
          'counted': int(true.sum())}
