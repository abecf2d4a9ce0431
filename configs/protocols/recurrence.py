"""Settings of the papers on recurrences: s4, s5, mega and metala.

In the lists below, "there" means the released code, "here" this repository.

Known differences of `s4` and `s5`:

* Classifier: one linear layer there; here one hidden layer comes before it.
* Text: the vocabulary of `s4` is characters there, bytes here. `s5` trains on
  all of train there and validates on test. Here a part of train is the
  validation split, and training takes as many steps.
* Retrieval: `s4` stops after 20 epochs there, 45,960 steps of a cosine of
  50,000; here training takes all 50,000 steps.
* Path-X, `s5`: there B has weight decay and the learning rate of the
  state-space parameters; here B has no weight decay.
* Norms: `s5` trains them with the learning rate of the state-space parameters
  there, with that of the other parameters here. Batch norms include padding in
  both released codes, but not here.
* Pixels: numbers from -1 to 1. There `s4` normalises Image by its mean and
  deviation.
* Heads: mixers with heads have 4 here, which is our choice.

Known differences of `mega`:

* Classifier: as for `s4`, except for pairs, which have the head of that code.
* MLP: SiLU there, GELU here.
* Warm-up: from 1e-7 there, from 0 here. On Path-X it grows with the square of
  the step there.
* Pixels: Image is normalised by (x - 0.48) / 0.24 there, to -1 ... 1 here.
* Batch norms: as for `s4`.
* Heads: mixers with heads have 4 here, which is our choice.

The paper of `metala` leaves some settings open. We chose: LayerNorm before each
layer, no positions, mean pooling, the classifier, and the interval of
validation. On ListOps and Text, mixers with a direction are causal. Image is
grey here; the paper does not say whether its pixels have colours.
"""

from lra.configs.protocols.mini import MINI, join

# For state-space models, a block is a norm, the mixer with its gate, and the
# residual sum.
_SSM_RECIPE = dict(
    optim=dict(schedule='cosine'),
    encoder=dict(positions='none', pooling='mean', norm='batch', block='none',
                 head='nli', head_layers=1, tie_dropout=True, dropout=0.0))
_PIXELS = dict(encoder=dict(inputs='values'))


def _sized(width: int, layers: int, mlp_width: int = 0) -> dict:
  """Returns sizes of a model; without an MLP, `mlp_width` is the classifier's.
  """
  return dict(encoder=dict(num_layers=layers, width=width,
                           mlp_width=mlp_width or width),
              model=dict(num_heads=4))


def _trains(batch_size: int, steps: int, warmup_steps: int, eval_every: int,
            learning_rate: float, weight_decay: float, **others) -> dict:
  """Returns `train`; on a CPU one example at a time, as Path-X is long."""
  return dict(train=dict(
      batch_size=batch_size, steps=steps, warmup_steps=warmup_steps,
      eval_every=eval_every, learning_rate=learning_rate,
      weight_decay=weight_decay, cpu_microbatch_size=1,
      cpu_eval_batch_size=4, **others))


# Names of state-space parameters of all mixers. The first list leaves out B,
# the second the step sizes.
_NOT_B = ('log_decay', 'frequency', 'lambda_real', 'lambda_imaginary',
          'log_step', 'log_nu', 'log_theta', 'log_gamma')
_NOT_STEPS = (*(name for name in _NOT_B if name != 'log_step'), 'b')

_S4_RECIPE = join(_SSM_RECIPE, dict(
    train=dict(ssm_learning_rate=1e-3, ssm_weight_decay=0.0)))
_POST = dict(encoder=dict(norm_place='post'))
_S4_TEXT = join(_S4_RECIPE, _sized(256, 6), dict(
    train=dict(ssm_parameters=_NOT_STEPS)))
_S4_RETRIEVAL = join(_S4_RECIPE, _sized(256, 6),
                      _trains(64, 50_000, 5000, 2298, 0.01, 0.05))

S4 = dict(
    listops=join(_S4_TEXT, _POST,
                  _trains(32, 120_000, 12_000, 3000, 0.01, 0.05)),
    text=join(_S4_TEXT, _trains(16, 50_000, 5000, 1562, 0.01, 0.05)),
    retrieval=_S4_RETRIEVAL,
    retrieval_rfc=_S4_RETRIEVAL,
    image=join(_S4_RECIPE, _PIXELS, _POST, _sized(512, 6),
                _trains(50, 180_000, 18_000, 900, 0.01, 0.05),
                dict(encoder=dict(dropout=0.1))),
    pathfinder=join(_S4_RECIPE, _PIXELS, _sized(256, 6),
                     _trains(64, 500_000, 50_000, 2500, 0.004, 0.05)),
    pathx=join(_S4_RECIPE, _PIXELS, _sized(256, 6),
                _trains(16, 500_000, 50_000, 10_000, 0.001, 0.05)),
    **{task: join(mini, _S4_RECIPE, dict(
        train=dict(learning_rate=0.01, weight_decay=0.05)))
       for task, mini in MINI.items()})


def _s5(rate: float, factor: float, *, groups: tuple = (), **encoder) -> dict:
  """Returns the recipe of `s5`, with the learning rate `factor` * `rate`.

  `rate` is the learning rate of the state-space parameters.
  """
  return join(_SSM_RECIPE, dict(
      train=dict(learning_rate=round(rate * factor, 6), ssm_learning_rate=rate,
                 ssm_weight_decay=0.0, ssm_parameters=groups),
      encoder=dict(norm_momentum=0.95) | encoder))


def _s5_trains(batch_size: int, epochs: int, epoch: int, warmup: int,
               weight_decay: float) -> dict:
  return dict(train=dict(
      batch_size=batch_size, steps=epochs * epoch, warmup_steps=warmup,
      eval_every=epoch, weight_decay=weight_decay, cpu_microbatch_size=1,
      cpu_eval_batch_size=4))


_S5_RETRIEVAL = join(_s5(0.001, 2, groups=_NOT_STEPS), _sized(128, 6),
                      _s5_trains(32, 20, 4596, 4596, 0.05))

S5 = dict(
    listops=join(_s5(0.001, 3, groups=_NOT_B), _sized(128, 8),
                  _s5_trains(50, 40, 1920, 1920, 0.04)),
    text=join(_s5(0.001, 4, groups=_NOT_STEPS, dropout=0.1), _sized(256, 6),
               _s5_trains(50, 35, 500, 0, 0.07)),
    retrieval=_S5_RETRIEVAL,
    retrieval_rfc=_S5_RETRIEVAL,
    image=join(_s5(0.001, 4.5, groups=_NOT_B, dropout=0.1), _PIXELS,
                _sized(512, 6), _s5_trains(50, 250, 900, 900, 0.07)),
    pathfinder=join(_s5(0.0009, 5, dropout=0.05, norm_momentum=0.9), _PIXELS,
                     _sized(192, 6), _s5_trains(64, 200, 2500, 2500, 0.03)),
    pathx=join(_s5(0.0006, 3, norm_momentum=0.9), _PIXELS, _sized(128, 6),
                _s5_trains(32, 75, 5000, 5000, 0.06)),
    **{task: join(mini, _s5(0.001, 3), dict(train=dict(weight_decay=0.05)))
       for task, mini in MINI.items()})

_MEGA_RECIPE = dict(
    train=dict(b2=0.98),
    optim=dict(schedule='linear', clip_norm=1.0),
    encoder=dict(positions='none', pooling='mean', head_layers=1))
_MEGA_TEXT = join(_MEGA_RECIPE, dict(encoder=dict(norm_place='post')))
_MEGA_PIXELS = join(_MEGA_RECIPE, _PIXELS, dict(
    encoder=dict(norm='batch', dropout=0.0)))
_SCALE = dict(encoder=dict(norm='scale'))
_MEGA_RETRIEVAL = join(
    _MEGA_TEXT, _SCALE, _sized(128, 6, 256),
    _trains(64, 91_960, 10_000, 2298, 0.003, 0.04))

MEGA = dict(
    listops=join(_MEGA_TEXT, _sized(80, 6, 160),
                  _trains(64, 90_000, 3000, 1500, 0.001, 0.01)),
    text=join(_MEGA_TEXT, _SCALE, _sized(128, 4, 256),
               _trains(50, 25_000, 10_000, 500, 0.004, 0.01)),
    retrieval=_MEGA_RETRIEVAL,
    retrieval_rfc=_MEGA_RETRIEVAL,
    image=join(_MEGA_PIXELS, _sized(160, 8, 320),
                _trains(50, 180_000, 9000, 900, 0.01, 0.02)),
    pathfinder=join(_MEGA_PIXELS, _sized(128, 6, 256),
                     _trains(128, 250_000, 50_000, 1250, 0.01, 0.01)),
    pathx=join(_MEGA_PIXELS, _sized(64, 4, 128),
                _trains(128, 125_000, 25_000, 1250, 0.01, 0.01)),
    **{task: join(mini, _MEGA_RECIPE, dict(
        train=dict(learning_rate=0.004, weight_decay=0.01)))
       for task, mini in MINI.items()})

_METALA_RECIPE = dict(
    optim=dict(schedule='cosine'),
    encoder=dict(positions='none', pooling='mean', block='glu', dropout=0.0,
                 head_layers=1))
_METALA_RETRIEVAL = join(
    _METALA_RECIPE, _sized(256, 2, 512),
    _trains(128, 50_000, 312, 1149, 8e-4, 1e-4),
    dict(encoder=dict(dropout=0.1)))

METALA = dict(
    listops=join(_METALA_RECIPE, _sized(32, 6, 64),
                  _trains(128, 50_000, 5000, 750, 5e-4, 0.01)),
    text=join(_METALA_RECIPE, _sized(128, 4, 256),
               _trains(64, 50_000, 10_000, 390, 0.004, 0.0),
               dict(encoder=dict(dropout=0.1))),
    retrieval=_METALA_RETRIEVAL,
    retrieval_rfc=_METALA_RETRIEVAL,
    image=join(_METALA_RECIPE, _PIXELS, _sized(512, 6, 512),
                _trains(128, 50_000, 30_000, 351, 0.003, 0.0)),
    pathfinder=join(_METALA_RECIPE, _PIXELS, _sized(128, 6, 128),
                     _trains(256, 500_000, 50_000, 625, 0.002, 0.0)),
    pathx=join(_METALA_RECIPE, _PIXELS, _sized(32, 6, 32),
                _trains(256, 500_000, 15_000, 625, 7.5e-4, 0.0)),
    **{task: join(mini, _METALA_RECIPE, dict(
        train=dict(learning_rate=0.002, weight_decay=0.01)))
       for task, mini in MINI.items()})

# (protocol, its own mixer) -> task -> arguments of this mixer.
_S4D_PIXELS = dict(state_dim=64, tied=False)
_S5_PAIRS = dict(state_dim=256, blocks=16, activation='half_glu1',
                 c_init='truncated')
_LAPLACE = dict(z_width=64, v_width=256, attention='laplace', truncation=1024)
_MEGA_PAIRS = dict(z_width=64, v_width=256, truncation=1024)
MODEL_ARGUMENTS = {
    ('s4', 's4d'): {
        **{task: dict(state_dim=4) for task in (
            'listops', 'text', 'retrieval', 'retrieval_rfc')},
        'image': dict(state_dim=64), 'pathfinder': _S4D_PIXELS,
        'pathx': dict(_S4D_PIXELS, dt_min=1e-4)},
    ('s5', 's5'): {
        'listops': dict(state_dim=16, blocks=8, activation='half_glu2'),
        'text': dict(state_dim=192, blocks=12, activation='half_glu2'),
        'retrieval': _S5_PAIRS, 'retrieval_rfc': _S5_PAIRS,
        'image': dict(state_dim=384, blocks=3, clip_eigenvalues=True),
        'pathfinder': dict(state_dim=256, blocks=8, c_init='truncated'),
        'pathx': dict(state_dim=256, blocks=16, c_init='complex',
                      dt_min=1e-4)},
    ('mega', 'mega'): {
        'listops': dict(z_width=64, v_width=160, truncation=1024),
        'text': _MEGA_PAIRS, 'retrieval': _MEGA_PAIRS,
        'retrieval_rfc': _MEGA_PAIRS,
        'image': dict(_LAPLACE, z_width=96, v_width=320),
        'pathfinder': _LAPLACE,
        'pathx': dict(_LAPLACE, z_width=32, v_width=128, truncation=4096)},
}
