"""Exports the forward function of a model as StableHLO.

Any runtime of StableHLO can call it without this project's code. It has the
kernels for a CPU, which are plain XLA and can be lowered for every platform.
"""

import contextlib

import jax
import jax.numpy as jnp
from jax import export

from lra import kernels
from lra.run import weights
from lra.run.program import Program

NAME = 'model.stablehlo'
PLATFORMS = ('cpu', 'cuda', 'tpu')


def forward(program: Program, like) -> tuple[bytes, bool]:
  """Exports the function (arrays, tokens) -> logits, for all `PLATFORMS`.

  The arrays are {name: array}, as safetensors reads `weights.NAME`; the tokens
  are ids, 0 at padding, in the shape and dtype of the model's inputs. The
  logits are float32 [B, C] or [B, L, C]; those of an example with an id that
  the model does not have are NaN. `like` has `params` and `constants`, or their
  shapes.

  Returns the serialized `jax.export.Exported`, and whether it takes any batch
  size: for some models it takes only one example.
  """
  names, structure = weights.names(like), jax.tree.structure(like)
  num_ids = program.objective.task.vocab_size

  def logits(arrays, tokens):
    tree = jax.tree.unflatten(structure, [arrays[name] for name in names])
    variables = {'params': tree['params'], **tree['constants']}

    # Models need a batch of known size, and `vmap` a size of any kind.
    def of_one(tokens):
      known = jnp.all((tokens >= 0) & (tokens < num_ids))
      found = program.model.apply(variables, tokens[None], train=False)[0]
      return jnp.where(known, found, jnp.nan)
    return jax.vmap(of_one)(tokens).astype(jnp.float32)

  arrays = {name: jax.ShapeDtypeStruct(x.shape, x.dtype)
            for name, x in zip(names, jax.tree.leaves(like), strict=True)}

  def exported(batch):
    tokens = program.objective.inputs({
        name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype)
        in program.objective.shapes(batch).items()})
    with kernels.target('cpu'), _without_places():
      made = export.export(jax.jit(logits), platforms=PLATFORMS)(arrays, tokens)
    return bytes(made.serialize())

  try:
    return exported(*export.symbolic_shape('batch')), True
  except Exception:  # each primitive refuses unknown sizes in its own way
    return exported(1), False


@contextlib.contextmanager
def _without_places():
  """Keeps the paths of source files, which name users, out of programs."""
  name = 'jax_traceback_in_locations_limit'
  before = getattr(jax.config, name)
  jax.config.update(name, 0)
  try:
    yield
  finally:
    jax.config.update(name, before)
