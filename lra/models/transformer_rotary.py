"""Rotary Transformer: softmax attention with rotated queries and keys.

Logits depend on the distance of two tokens. The paper removes the positions of
the embedding: set `config.encoder.positions` to 'none'.

`planes='alternate'` is the variant in the code of Miralles-Gonzalez et al.
2025, arXiv 2501.14850: the pairs of all heads together have falling angles, so
the first head turns fastest, and every second pair is not turned.

Equation: softmax(R(Q) R(K)^T / sqrt(Dh)) V per head, R rotates channel pair i
  of position p by p 10000^(-2i/Dh); then an output projection. `alternate`:
  pair i of head h by p 10000^(-2m/D) if m = h Dh / 2 + i is odd, else by 0
Source: Su et al. 2021, arXiv 2104.09864, eq. 16
"""

from lra.models import About, transformer
from lra.nn import rotary
from lra.nn.rotary import RotaryMixer
from lra.schema import fields

ABOUT = About('dense', 'O(L^2 D) time; O(L^2) memory dense, else O(L)', time=2,
              kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(RotaryMixer, transformer.Mixer):
  rotary: bool = True
  planes: str = fields.argument(
      'head', 'Which pairs of channels are turned, and how fast. `head` turns '
      'those of each head alike; `alternate` turns every second pair.',
      choices=('head', 'alternate'))

  def turn(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh):
    alternate = self.rotary and self.planes == 'alternate'
    if not alternate or q_BxLxHxDh.shape[-1] % 2:  # `super` refuses odd widths
      return super().turn(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh)
    _, L, H, Dh = q_BxLxHxDh.shape
    angle_LxE = rotary.angles(L, H * Dh)
    angle_LxE[:, ::2] = 0
    angle_LxHxP = angle_LxE.reshape(L, H, Dh // 2)
    return (rotary.rotate_by(q_BxLxHxDh, angle_LxHxP),
            rotary.rotate_by(k_BxLxHxDh, angle_LxHxP), v_BxLxHxDh)
