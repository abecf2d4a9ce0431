"""Reads the weights of PyTorch layers that compute the same as a mixer here.

With the parameters that `params` returns, a mixer here computes the outputs of
the other package's layer; tests/peers compares both, in float32.

If a table names several of our parameters, the other package joins them along
the first axis. A mark `=` keeps the order of axes. Without it, the first axis
of PyTorch becomes the last of ours, as in a dense layer.
"""

import math
from collections.abc import Mapping
from typing import Any

from flax import traverse_util

from lra.core import foreign
from lra.core.errors import UserError

_SHORT = {'query': 'q', 'key': 'k', 'value': 'v'}
_RWKV7 = {f'{n}_lora.lora.{i}.{theirs}': f'pass.{n}_{part}.{ours}'
          for n in 'wagv' for i, part in ((0, 'down'), (2, 'up'))
          for theirs, ours in (('weight', 'kernel'), ('bias', 'bias'))}
# (model, package) -> {parameter of the package: our parameters}.
TABLES = {
    ('transformer', 'torch'): {  # nn.MultiheadAttention
        'in_proj_weight': 'query.kernel key.kernel value.kernel',
        'in_proj_bias': 'query.bias key.bias value.bias',
        'out_proj.weight': 'out.kernel', 'out_proj.bias': 'out.bias'},
    ('nystromformer', 'nystrom-attention'): {  # NystromAttention
        'to_qkv.weight': 'query.kernel key.kernel value.kernel',
        'res_conv.weight': 'conv',
        'to_out.0.weight': 'out.kernel', 'to_out.0.bias': 'out.bias'},
    ('linformer', 'linformer'): {  # LinformerSelfAttention
        **{f'to_{_SHORT[name]}.weight': f'{name}.kernel' for name in _SHORT},
        'proj_k': '=E', 'proj_v': '=F',
        'to_out.weight': 'out.kernel', 'to_out.bias': 'out.bias'},
    ('mamba2', 'transformers'): {  # Mamba2Mixer
        'dt_bias': 'step_bias', 'A_log': 'log_rate', 'D': 'skip',
        'in_proj.weight': 'gate.kernel inputs.kernel step.kernel',
        'conv1d.weight': 'convolution.kernel',
        'conv1d.bias': 'convolution.bias', 'norm.weight': 'norm.scale',
        'out_proj.weight': 'out.kernel'},
    ('gated_deltanet', 'transformers'): {  # OlmoHybridGatedDeltaNet
        **{f'{short}_proj.weight': f'{name}.kernel' for name, short in (
            *_SHORT.items(), ('decay', 'a'), ('beta', 'b'), ('gate', 'g'),
            ('out', 'o'))},
        'conv1d.weight': ' '.join(
            f'{name}_convolution.kernel' for name in _SHORT),
        'o_norm.weight': 'norm.scale', 'A_log': 'log_rate',
        'dt_bias': 'dt_bias'},
    ('rwkv7', 'rwkv7-hf'): {  # RWKV7TimeMix
        **{f'{n}_proj.weight': f'pass.{n}.kernel' for n in 'rkv'},
        **{f'x_{n}': f'pass.share_{n}' for n in 'rwkvag'}, **_RWKV7,
        'o_proj.weight': 'out.kernel', 'g_norm.weight': 'pass.norm.scale',
        'g_norm.bias': 'pass.norm.bias', 'k_k': 'pass.removal',
        'k_a': 'pass.replacement', 'r_k': '=pass.bonus'},
}


def params(model: str, package: str, state: Mapping[str, Any], like) -> dict:
  """Returns float32 parameters of a mixer, made of those of a PyTorch layer.

  Args:
    model: name of the mixer, such as 'nystromformer'.
    package: the package of the layer, such as 'nystrom-attention'.
    state: the layer's `state_dict()`, or what safetensors reads of it: {name:
      array or tensor on the CPU}.
    like: parameters of such a mixer, or their shapes, for example
      `lra.load(RUN).params['encoder']['block_0']['mixer']`.
  """
  if (model, package) not in TABLES:
    known = ', '.join(map(' of '.join, TABLES))
    raise UserError(f'There is no table for {model} of {package}: choose one '
                    f'of {known}.')
  what = f'The weights of {model} of {package}'
  wanted = {name: tuple(x.shape) for name, x in traverse_util.flatten_dict(
      like, sep='.').items()}
  found, known = {}, dict(state)
  for theirs, named in TABLES[model, package].items():
    names = named.removeprefix('=').split()
    ours = [name for name in names if name in wanted]
    if theirs in known and ours == names:
      with foreign.reading(f'{what}: {theirs}',
                           'give a dense tensor of finite float32'):
        array = foreign.finite(known.pop(theirs))
      found |= _split(array, {name: wanted[name] for name in names},
                      keeps=named.startswith('='), said=f'{what}: {theirs}')
    elif ours:
      raise UserError(f'{what} have no {theirs}, which is {" and ".join(ours)} '
                      'here: give the state of the whole layer, or a mixer '
                      'with the same settings.')
  extra = [*known, *(set(wanted) - set(found))]
  if extra:
    raise UserError(f'{what} do not fit this mixer, since only one of them has '
                    f'{extra[0]}: give the state of the layer alone, and a '
                    'mixer with the same settings.')
  return traverse_util.unflatten_dict(found, sep='.')


def _split(array, shapes, *, keeps, said):
  """Returns {name: array of its shape}, cut from one along the first axis."""
  total = sum(map(math.prod, shapes.values()))
  rows = array.reshape(len(array) if array.ndim else 1, -1) if (
      array.size) else array.reshape(1, 0)
  if array.size != total or any(
      math.prod(shape) % rows.shape[1] for shape in shapes.values()):
    needed = ' and '.join(f'{n} {list(s)}' for n, s in shapes.items())
    raise UserError(f'{said} is {list(array.shape)}, which does not make '
                    f'{needed}: give a mixer with the same settings.')
  found, start = {}, 0
  for name, shape in shapes.items():
    end = start + math.prod(shape) // rows.shape[1]
    part = rows[start:end]
    found[name] = (part if keeps else part.T).reshape(shape)
    start = end
  return found
