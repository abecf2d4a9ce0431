"""A `HeadMixer` against the same weights around attention in PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small

torch = pytest.importorskip('torch', reason='the peers are PyTorch packages')


def _merge(o_bhld, dense):
  return torch.einsum('bhle,hed->bld', o_bhld, dense['kernel']) + dense['bias']


def _heads(x, dense):
  out = torch.einsum('bld,dhe->bhle', x, dense['kernel'])
  return out + dense['bias'][:, None]


def check(mixer, attend, variables, x, mask, tolerance=1e-5):
  """Outputs at tokens and all gradients, in float32 on both sides.

  Args:
    mixer: the mixer.
    attend: function of torch's q, k, v, each [B, H, L, Dh], and mask [B, L]:
      the heads' outputs, [B, H, L, Dh].
    variables: of the mixer; its projections are copied.
    x, mask: inputs [B, L, D] and [B, L].
    tolerance: relative, in the norm of outputs and of gradients.
  """
  rest = {k: v for k, v in variables.items() if k != 'params'}
  weights = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
  weights *= mask[..., None]

  def loss(params, x):
    y = mixer.apply({'params': params, **rest}, x, mask, train=False)
    return jnp.sum(y * weights), y

  (_, y), grads = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(
      variables['params'], x)
  params, inputs = jax.tree.map(
      lambda a: torch.tensor(np.asarray(a), requires_grad=True),
      (variables['params'], x))
  q, k, v = (_heads(inputs, params[name]) for name in ('query', 'key', 'value'))
  want = _merge(attend(q, k, v, torch.tensor(mask)), params['out'])
  (want * torch.tensor(weights)).sum().backward()
  small.assert_close(
      np.asarray(y)[mask], want.detach().numpy()[mask], tolerance)
  small.assert_close(grads, jax.tree.map(
      lambda a: a.grad.numpy(), (params, inputs)), tolerance)
