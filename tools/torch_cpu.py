"""Times training steps on a CPU beside the same models in PyTorch.

  OMP_WAIT_POLICY=PASSIVE JAX_PLATFORMS=cpu python -m tools torch_cpu

It needs PyTorch, and a machine that does nothing else; without
`OMP_WAIT_POLICY` PyTorch's threads disturb ours. It replaces the rows of this
JAX version in `lra/results/torch_cpu.csv`. Both sides train a classifier of
bytes in float32 with AdamW and without dropout. In PyTorch, attention is
`scaled_dot_product_attention`, and the three linear models are compared with
non-causal linear attention by matmuls.
"""

import csv
from collections.abc import Sequence

import jax
import numpy as np
import torch

from lra.core import machine, paths
from lra.core.errors import UserError
from lra.share.quantised import interleaved, quartiles
from tools import config_of
from tools.step import drawn_steps

# Batch, length, width, heads, width of the MLP -> examples of a microbatch; the
# second size is that of the laptop arena, which trains on whole batches.
SIZES = {(4, 2000, 256, 4, 1024): 1, (32, 256, 32, 2, 64): 32}
BLOCKS = 2
MODELS = ('transformer', 'linear_transformer', 'simpletron', 'lightning')
ROUNDS = 9
COLUMNS = ('jax', 'torch', 'size', 'model', 'seconds', 'torch_seconds', 'ratio',
           'low', 'high', 'device')


class _Block(torch.nn.Module):
  """A pre-norm block; attention is softmax or, with `linear`, linear."""

  def __init__(self, width, heads, inner, linear):
    super().__init__()
    self.heads, self.linear = heads, linear
    self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in '12')
    self.qkv = torch.nn.Linear(width, 3 * width)
    self.out = torch.nn.Linear(width, width)
    self.mlp = torch.nn.Sequential(
        torch.nn.Linear(width, inner), torch.nn.GELU(approximate='tanh'),
        torch.nn.Linear(inner, width))

  def forward(self, x):
    batch, length, width = x.shape
    q, k, v = (y.view(batch, length, self.heads, -1).transpose(1, 2)
               for y in self.qkv(self.norms[0](x)).chunk(3, -1))
    if self.linear:
      q, k = (torch.nn.functional.elu(y) + 1 for y in (q, k))
      o = q @ (k.mT @ v) / (q @ k.sum(-2, keepdim=True).mT)
    else:
      o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    x = x + self.out(o.transpose(1, 2).reshape(batch, length, width))
    return x + self.mlp(self.norms[1](x))


def of_torch(size: tuple[int, ...], linear: bool):
  """Returns a function that makes one training step in PyTorch."""
  batch, length, width, heads, inner = size
  model = torch.nn.Sequential(
      torch.nn.Embedding(257, width),
      *(_Block(width, heads, inner, linear) for _ in range(BLOCKS)),
      torch.nn.LayerNorm(width))
  head = torch.nn.Linear(width, 2)
  adamw = torch.optim.AdamW([*model.parameters(), *head.parameters()],
                            fused=True)
  tokens = torch.randint(1, 256, (batch, length))
  labels = torch.zeros(batch, dtype=torch.long)

  def step():
    adamw.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(
        head(model(tokens).mean(1)), labels).backward()
    adamw.step()

  return step


def of_jax(size: tuple[int, ...], model: str, microbatch: int):
  """Returns a function that makes one training step of this project."""
  batch, length, width, heads, inner = size
  config = config_of(model, 'text')
  config.seq_len, config.dtype = length, 'float32'
  config.train.update(batch_size=batch, microbatch_size=microbatch)
  config.encoder.update(num_layers=BLOCKS, width=width, mlp_width=inner,
                        dropout=0.0, pooling='mean')
  config.model.update(num_heads=heads, qkv_width=width)
  return drawn_steps(config)[0]


def measure(rounds: int = ROUNDS) -> list[list[str]]:
  """Returns a row of `COLUMNS` for each size and model, both in turns."""
  rows = []
  for size, microbatch in SIZES.items():
    calls = [of_torch(size, False), of_torch(size, True),
             *(of_jax(size, model, microbatch) for model in MODELS)]
    softmax, linear, *ours = np.array(interleaved(calls, 0, rounds))
    for model, own in zip(MODELS, ours, strict=True):
      theirs = softmax if model == 'transformer' else linear
      low, ratio, high = quartiles(own / theirs)
      rows.append([
          jax.__version__, torch.__version__, '{} x {}, width {}'.format(*size),
          model, *(f'{x:.3g}' for x in (
              np.median(own), np.median(theirs), ratio, low, high)),
          machine.device_name()])
  return rows


def main(argv: Sequence[str]) -> None:
  if argv:
    raise UserError('torch_cpu takes no arguments.')
  torch.set_num_threads(machine.cpu_count())
  path = paths.results() / 'torch_cpu.csv'
  kept = []
  if path.exists():
    with path.open() as file:
      kept = [row for row in list(csv.reader(file))[1:]
              if row[0] != jax.__version__]
  with path.open('w') as file:
    csv.writer(file, lineterminator='\n').writerows(
        [COLUMNS, *sorted(kept + measure())])
  print(path.read_text())
