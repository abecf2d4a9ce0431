"""Settings of the papers on recurrences: s4, s5, mega and metala.

These codes have no heads: mixers with heads have 4 here, which is our choice.
"""

from lra.configs.protocols.mini import complete, join, sized

# For state-space models, a block is a norm, the mixer with its gate, and the
# residual sum.
_SSM_RECIPE = dict(
    optim=dict(schedule='cosine'),
    encoder=dict(positions='none', pooling='mean', norm='batch', block='none',
                 head='nli', head_layers=1, tie_dropout=True, dropout=0.0))
_PIXELS = dict(encoder=dict(inputs='values'))


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
_S4_TEXT = join(sized(6, 256, 256), dict(
    train=dict(ssm_parameters=_NOT_STEPS)))

S4 = complete(
    _S4_RECIPE, dict(train=dict(learning_rate=0.01, weight_decay=0.05)),
    listops=join(_S4_TEXT, _POST,
                 _trains(32, 120_000, 12_000, 3000, 0.01, 0.05)),
    text=join(_S4_TEXT, _trains(16, 50_000, 5000, 1562, 0.01, 0.05)),
    retrieval=join(sized(6, 256, 256),
                   _trains(64, 50_000, 5000, 2298, 0.01, 0.05)),
    image=join(_PIXELS, _POST, sized(6, 512, 512, dropout=0.1),
               _trains(50, 180_000, 18_000, 900, 0.01, 0.05)),
    pathfinder=join(_PIXELS, sized(6, 256, 256),
                    _trains(64, 500_000, 50_000, 2500, 0.004, 0.05)),
    pathx=join(_PIXELS, sized(6, 256, 256),
               _trains(16, 500_000, 50_000, 10_000, 0.001, 0.05)))


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


S5 = complete(
    {}, join(_s5(0.001, 3), dict(train=dict(weight_decay=0.05))),
    listops=join(_s5(0.001, 3, groups=_NOT_B), sized(8, 128, 128),
                 _s5_trains(50, 40, 1920, 1920, 0.04)),
    text=join(_s5(0.001, 4, groups=_NOT_STEPS, dropout=0.1),
              sized(6, 256, 256), _s5_trains(50, 35, 500, 0, 0.07)),
    retrieval=join(_s5(0.001, 2, groups=_NOT_STEPS), sized(6, 128, 128),
                   _s5_trains(32, 20, 4596, 4596, 0.05)),
    image=join(_s5(0.001, 4.5, groups=_NOT_B, dropout=0.1), _PIXELS,
               sized(6, 512, 512), _s5_trains(50, 250, 900, 900, 0.07)),
    pathfinder=join(_s5(0.0009, 5, dropout=0.05, norm_momentum=0.9), _PIXELS,
                    sized(6, 192, 192), _s5_trains(64, 200, 2500, 2500, 0.03)),
    pathx=join(_s5(0.0006, 3, norm_momentum=0.9), _PIXELS, sized(6, 128, 128),
               _s5_trains(32, 75, 5000, 5000, 0.06)))

_MEGA_TEXT = dict(encoder=dict(norm_place='post'))
_SCALE = dict(encoder=dict(norm_place='post', norm='scale'))
_MEGA_PIXELS = join(_PIXELS, dict(encoder=dict(norm='batch', dropout=0.0)))

MEGA = complete(
    dict(train=dict(b2=0.98),
         optim=dict(schedule='linear', clip_norm=1.0),
         encoder=dict(positions='none', pooling='mean', head_layers=1)),
    dict(train=dict(learning_rate=0.004, weight_decay=0.01)),
    listops=join(_MEGA_TEXT, sized(6, 80, 160),
                 _trains(64, 90_000, 3000, 1500, 0.001, 0.01)),
    text=join(_SCALE, sized(4, 128, 256),
              _trains(50, 25_000, 10_000, 500, 0.004, 0.01)),
    retrieval=join(_SCALE, sized(6, 128, 256),
                   _trains(64, 91_960, 10_000, 2298, 0.003, 0.04)),
    image=join(_MEGA_PIXELS, sized(8, 160, 320),
               _trains(50, 180_000, 9000, 900, 0.01, 0.02)),
    pathfinder=join(_MEGA_PIXELS, sized(6, 128, 256),
                    _trains(128, 250_000, 50_000, 1250, 0.01, 0.01)),
    pathx=join(_MEGA_PIXELS, sized(4, 64, 128),
               _trains(128, 125_000, 25_000, 1250, 0.01, 0.01)))

METALA = complete(
    dict(optim=dict(schedule='cosine'),
         encoder=dict(positions='none', pooling='mean', block='glu',
                      dropout=0.0, head_layers=1)),
    dict(train=dict(learning_rate=0.002, weight_decay=0.01)),
    listops=join(sized(6, 32, 64),
                 _trains(128, 50_000, 5000, 750, 5e-4, 0.01)),
    text=join(sized(4, 128, 256, dropout=0.1),
              _trains(64, 50_000, 10_000, 390, 0.004, 0.0)),
    retrieval=join(sized(2, 256, 512, dropout=0.1),
                   _trains(128, 50_000, 312, 1149, 8e-4, 1e-4)),
    image=join(_PIXELS, sized(6, 512, 512),
               _trains(128, 50_000, 30_000, 351, 0.003, 0.0)),
    pathfinder=join(_PIXELS, sized(6, 128, 128),
                    _trains(256, 500_000, 50_000, 625, 0.002, 0.0)),
    pathx=join(_PIXELS, sized(6, 32, 32),
               _trains(256, 500_000, 15_000, 625, 7.5e-4, 0.0)))

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
