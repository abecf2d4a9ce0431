"""Encoder plus output head: one sequence or a pair in, class scores out."""

import flax.linen as nn
import jax.numpy as jnp

from lra.nn.encoder import Encoder

HEADS = ('concat', 'nli')


def join_pair(x_Bx2xD, head: str):
  """Features of a document pair.

  `concat`: [x1, x2], as in Long Range Arena's and SimpleTRON's code.
  `nli`: [x1, x2, x1 * x2, x1 - x2], as in Long Range Arena's paper,
  section 2.2.3, S4 and Nystromformer.
  """
  x1, x2 = x_Bx2xD[:, 0], x_Bx2xD[:, 1]
  parts = [x1, x2] if head == 'concat' else [x1, x2, x1 * x2, x1 - x2]
  return jnp.concatenate(parts, axis=-1)


class Classifier(nn.Module):
  """Logits of a task.

  Attributes:
    encoder: applied once, to both documents of a pair together.
    num_classes: C.
    hidden: widths of the head's hidden layers, each with a ReLU.
    head: how a pair is joined (`HEADS`).
    dtype: computing dtype; the last layer computes in float32.
  """
  encoder: Encoder
  num_classes: int
  hidden: tuple[int, ...]
  head: str
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, tokens, *, train: bool):
    """Returns float32 [B, C] from ids [B, L], or [B, 2, L] for pairs."""
    pair = tokens.ndim == 3
    flat = tokens.reshape(-1, tokens.shape[-1])
    x = self.encoder(flat, train=train)
    if pair:
      x = join_pair(x.reshape(-1, 2, x.shape[-1]), self.head)
    for i, width in enumerate(self.hidden):
      x = nn.relu(nn.Dense(width, dtype=self.dtype, name=f'hidden_{i}')(x))
    return nn.Dense(self.num_classes, dtype=jnp.float32, name='logits')(x)
