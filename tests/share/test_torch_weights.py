"""Weights of PyTorch layers, which are [outputs, inputs], in our mixers.

tests/peers compares with the other packages' code, if they are installed.
"""

import jax
import numpy as np
import pytest
from safetensors import numpy as safetensors

from lra.core.errors import UserError
from lra.models import nystromformer, transformer
from lra.share import torch_weights
from tests.helpers import documents, mixer_oracle

X, MASK = mixer_oracle.ragged(9, 9, width=6)


def _layer(**shapes):
  """Returns the state of a layer with random values."""
  rng = np.random.default_rng(0)
  return {name.replace('__', '.'): rng.normal(size=shape).astype(np.float32)
          for name, shape in shapes.items()}


def _attention():
  mixer = transformer.Mixer(num_heads=2, qkv_width=8)
  state = _layer(in_proj_weight=(24, 6), in_proj_bias=(24,),
                 out_proj__weight=(6, 8), out_proj__bias=(6,))
  return mixer, state, mixer_oracle.init(mixer, X, MASK)['params']


def test_attention_is_that_of_the_equation():
  """The equation is computed with PyTorch's weights, in float64."""
  mixer, state, like = _attention()
  found = torch_weights.params('transformer', 'torch', state, like)
  got = mixer.apply({'params': found}, X, MASK, train=False)
  w, b, v, c = (y.astype(np.float64) for y in state.values())
  q, k, v_ = np.split(X @ w.T + b, 3, -1)
  heads = []
  for one in (slice(0, 4), slice(4, 8)):
    logits = q[..., one] @ k[..., one].swapaxes(1, 2) / 2
    weights = np.exp(logits) * MASK[:, None]
    heads.append(weights / weights.sum(-1, keepdims=True) @ v_[..., one])
  want = np.concatenate(heads, -1) @ v.T + c
  np.testing.assert_allclose(got[MASK], want[MASK], rtol=1e-4, atol=1e-5)


def test_a_depthwise_convolution_keeps_its_taps():
  mixer = nystromformer.Mixer(
      num_heads=2, qkv_width=8, num_landmarks=2, conv_width=3, qkv_bias=False)
  like = mixer_oracle.init(mixer, X, MASK)['params']
  state = _layer(to_qkv__weight=(24, 6), res_conv__weight=(2, 1, 3, 1),
                 to_out__0__weight=(6, 8), to_out__0__bias=(6,))
  found = torch_weights.params(
      'nystromformer', 'nystrom-attention', state, like)
  assert jax.tree.structure(found) == jax.tree.structure(dict(like))
  for head in (0, 1):
    np.testing.assert_array_equal(
        found['conv'][:, head, 0], state['res_conv.weight'][head, 0, :, 0])


def test_the_example_of_the_documents_runs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  safetensors.save_file(_layer(
      to_qkv__weight=(384, 64), res_conv__weight=(2, 1, 33, 1),
      to_out__0__weight=(64, 128), to_out__0__bias=(64,)), 'layer.safetensors')
  found = {}
  exec(documents.example('torch_weights'), found)
  assert found['y'].shape == (1, 512, 64)


@pytest.mark.parametrize('change, words', [
    ({'in_proj_bias': None}, 'have no in_proj_bias, which is query.bias'),
    ({'other': np.ones(3)}, 'only one of them has other'),
    ({'in_proj_weight': np.ones((24, 7))}, r'in_proj_weight is \[24, 7\]'),
    ({'in_proj_bias': np.ones(())}, r'in_proj_bias is \[\]')])
def test_another_layer_is_named(change, words):
  _, state, like = _attention()
  state = {n: x for n, x in (state | change).items() if x is not None}
  with pytest.raises(UserError, match=words):
    torch_weights.params('transformer', 'torch', state, like)


def test_an_unknown_table_is_named():
  with pytest.raises(UserError, match='choose one of transformer of torch, '):
    torch_weights.params('fnet', 'torch', {}, {})


@pytest.mark.parametrize('change', [
    lambda x: np.zeros(0), lambda x: np.zeros((0, 8)), lambda x: x * np.nan,
    lambda x: x * 1j, lambda x: 'text', lambda x: None,
    *(lambda x, of=of: of(pytest.importorskip('torch'), x) for of in (
        lambda torch, x: torch.tensor(x).bfloat16(),
        lambda torch, x: torch.tensor(x).to(torch.float8_e4m3fn),
        lambda torch, x: torch.tensor(x).to_sparse(),
        lambda torch, x: torch.tensor(x, device='meta'),
        lambda torch, x: torch.tensor(x, requires_grad=True)))])
def test_what_is_no_dense_finite_tensor_is_named(change):
  _, state, like = _attention()
  state['out_proj.weight'] = change(state['out_proj.weight'])
  with pytest.raises(UserError, match='out_proj.weight') as e:
    torch_weights.params('transformer', 'torch', state, like)
  assert '\n' not in str(e.value)


def test_a_mixer_without_the_layers_parameter_is_named():
  _, state, _ = _attention()
  mixer = transformer.Mixer(num_heads=2, qkv_width=8, qkv_bias=False)
  like = mixer_oracle.init(mixer, X, MASK)['params']
  with pytest.raises(UserError, match='only one of them has in_proj_bias'):
    torch_weights.params('transformer', 'torch', state, like)
