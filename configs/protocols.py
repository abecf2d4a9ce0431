"""The settings of each protocol for each task: PROTOCOLS[protocol][task].

An entry has only the settings that differ from the defaults in
`lra/config/fields.py`, grouped as in the config. To add a protocol, add a dict
with an entry for every mini task (but no probe) and for the full tasks that it
defines. The default protocol of a task is the first one that has the task.

* `simpletron`: SimpleTRON, Yorsh et al. 2021, arXiv 2111.15588, appendix A; it
  has no tasks of images.
* `lra`: the released code of Long Range Arena, Tay et al. 2020,
  arXiv 2011.04006; for images, the settings of its Transformer.
* `nystrom`: the released code of Nystromformer, Xiong et al. 2021,
  arXiv 2102.03902 (github.com/mlpen/Nystromformer, LRA/code); small enough for
  CPUs.
* `s4`: the released settings of S4 and S4D, Gu et al. 2022, arXiv 2111.00396
  and 2206.11893 (github.com/state-spaces/s4, commit e757cef).
* `s5`: the released settings of S5, Smith et al. 2023, arXiv 2208.04933
  (github.com/lindermanlab/S5, commit 3c18fdb).
* `mega`: the released settings of Mega, Ma et al. 2023, arXiv 2209.10655
  (github.com/facebookresearch/mega, commit aeaa4b4).
* `metala`: the settings in the paper of MetaLA, Chou et al. 2024,
  arXiv 2411.10741, Table A4; its code was not found.
* `bert`: fine-tuning of BERT, Devlin et al. 2018, arXiv 1810.04805, appendix
  A.3, and the released code (github.com/google-research/bert).
* `probes`: ours, for tasks of `data_prep.probes`: minutes on two cores.
* `state`: ours, for state tracking and lengths beyond those of training:
  minutes on two cores. The encoder adds no positions, so that every mechanism
  can read longer sequences. Recurrences run forward only.
* `mad`: the released code of MAD, Poli et al. 2024, arXiv 2403.17844
  (github.com/athms/mad-lab, commit 0f49a45); `lra.mad` has its settings.
* `zoology`: the released settings of multi-query associative recall, Arora et
  al. 2023, arXiv 2312.04927 (github.com/HazyResearch/zoology, commit d88d6f5,
  original_mqar_configs.py).

Under every protocol the mini tasks, including those of images, have our sizes
and steps (`_MINI`) and the protocol's recipe. `retrieval_rfc` is our task too;
it has the settings of `retrieval`. `amazon` has those of Text under
`simpletron`, `mnist` and `cifar100` have those of Image under `lra`. Only the
steps of an epoch, and between validations, differ.

In the lists below, "there" means the released code, "here" this repository.

Known differences of `lra`:

* Masks: there the mask is `inputs > 0`, so that black pixels of Image and
  Pathfinder count as padding (`config.mask_black`). Here they are tokens.
* Retrieval: there the two encoders get no CLS, and the head reads the vector of
  the first byte (`config.encoder.pooling = 'first'`). Here there is a CLS.
* Weight decay: there all parameters decay, here only those of two axes or more
  that are no biases.
* Dropout of attention weights: there most models have it, here the Transformer
  and its variants.
* Biases: there attention has none. Here the output projection always has one.
  In `synthesizer`, `aa_conv`, `efficient` and `super` the queries, keys or
  values have biases too.
* Initial values: learned positions are N(0, 0.02) there, zeros here.
* Image: validation is on the last tenth of train there, on a tenth of each
  class here. There only whole batches are scored.
* AAN: there the input is the characters of a bytes literal, including quotes
  and escapes. Here it is the bytes that the literal stands for.

Known differences of `nystrom`:

* Text: there datasets/text.py cuts documents at 1,000 bytes, while
  lra_config.py and the paper's table say 4,000, which is taken here.
* Numbers: float16 there if possible, float32 here.
* Schedule: there OneCycleLR begins the warm-up at 1/25 of the peak, here it
  begins at 0. By default OneCycleLR also moves AdamW's b1 from 0.95 to 0.85 at
  the peak and back. Here it is always 0.9 (`config.train.b1`).
* Initial values: positions are N(0, 0.02) there, zeros here. Linear layers have
  torch's defaults there, Xavier and biases of zero here.
* Masks: there the mask is `input_ids != 0`, so that black pixels of Image and
  Pathfinder count as padding (`config.mask_black`). Here they are tokens.
* Pooling: there sums of tokens are divided by the number of all positions,
  including padding and the filling to a power of two; here by the number of
  tokens. `config.encoder.mean_over = 'positions'` comes close to it.
* Evaluation: there only whole batches are scored, 1,984 of ListOps' 2,000
  examples. Text is validated on its test split there, on a part of train here.
* Layers: GELU is exact there, an approximation by tanh here. The eps of
  LayerNorm is 1e-5 there, 1e-6 here.
* Linformer: there one projection for each head, N(0, 0.02), serves all layers,
  keys and values; here all heads of a layer share one.
* Performer: there the library is asked for 256 ReLU features but not for their
  kernel, so features are exponential, as here. Queries and keys are divided by
  Dh^(1/4) twice there, once here.
* Reformer: there logits are not divided by sqrt(Dh), and tokens of neighbouring
  chunks see each other whatever their buckets.
* Nystromformer: landmarks average padding too there, only tokens here. There
  the largest sum of the batch scales the first guess of the inverse
  (`config.model.pinv_init = 'original'`). Here each head and sequence has its
  own largest sum.
* Linear Transformer, which is not in the paper's table: there sums are divided
  by the root of the length; here by the sums of weights, as in the model's own
  paper.

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

Known differences of `bert`:

* SimpleTRON: section 5.3 of its paper trains a BERT with its mixer on AG News.
  We could not read the settings of that section; these are BERT's.
* Choices: the paper leaves the batch size (16 or 32), the learning rate (2e-5,
  3e-5 or 5e-5) and the epochs (2, 3 or 4) to a search. Here they are 32, 2e-5
  and 3. The length is the 128 tokens of the released code.
* Dropout: there an MLP has none after GELU, here it has.
* Adam: there without the correction of the first steps.
* Validation: 6,000 examples of train, each third of an epoch.

Known differences of `mad` and `zoology`: see docs/protocols.md.
"""

from lra import mad


def _join(*settings: dict) -> dict:
  """Merges nested dicts; if a field has two values, the later one is kept."""
  joined = {}
  for part in settings:
    for key, value in part.items():
      if isinstance(value, dict):
        value = _join(joined.get(key, {}), value)
      joined[key] = value
  return joined


# The mini tasks have the same size under every protocol; two CPU cores train
# them in minutes. Models that small underfit, so there is no dropout. A few
# sequences of 512 tokens at a time fit in a CPU's caches,
# which is twice as fast.
_MINI = dict(
    listops_mini=dict(
        dtype='float32',
        train=dict(steps=4000, warmup_steps=200, learning_rate=0.05,
                   eval_every=500, cpu_microbatch_size=32),
        encoder=dict(num_layers=2, width=64, mlp_width=128, dropout=0.0),
        model=dict(num_heads=4)),
    text_mini=dict(
        dtype='float32',
        train=dict(steps=800, warmup_steps=100, learning_rate=0.01,
                   eval_every=100, cpu_microbatch_size=4,
                   cpu_eval_batch_size=8),
        encoder=dict(num_layers=1, width=64, mlp_width=128, dropout=0.0,
                     pooling='mean'),
        model=dict(num_heads=2)),
    retrieval_rfc_mini=dict(
        dtype='float32',
        train=dict(steps=1000, warmup_steps=100, learning_rate=0.01,
                   eval_every=200, cpu_microbatch_size=2,
                   cpu_eval_batch_size=4),
        encoder=dict(num_layers=1, width=64, mlp_width=128, dropout=0.0,
                     pooling='mean', head='nli'),
        model=dict(num_heads=2)))

_MINI['image_mini'] = dict(
    dtype='float32',
    train=dict(steps=2000, warmup_steps=200, learning_rate=0.004,
               eval_every=500, cpu_microbatch_size=8, cpu_eval_batch_size=16),
    optim=dict(schedule='cosine'),
    encoder=dict(num_layers=2, width=32, mlp_width=64, dropout=0.0,
                 pooling='mean'),
    model=dict(num_heads=2))

# Black pixels are padding here. The first row of pixels is black in all but one
# of 1,000 images, so the first positions hold no token. Mechanisms that treat
# the first positions specially lose this: attention_sink and duo have no sinks,
# bigbird, etc and longformer no global tokens, star few tokens in its anchor.
_MINI['pathfinder_mini'] = dict(
    dtype='float32', mask_black=True,
    train=dict(steps=4000, warmup_steps=200, learning_rate=0.03,
               eval_every=500, cpu_microbatch_size=8, cpu_eval_batch_size=16),
    encoder=dict(num_layers=2, width=32, mlp_width=64, dropout=0.0,
                 pooling='mean', positions='sinusoidal'),
    model=dict(num_heads=2))

_SIMPLETRON_RETRIEVAL = dict(
    train=dict(steps=15_000, warmup_steps=8000, learning_rate=0.05,
               eval_every=50),
    encoder=dict(num_layers=4, width=128, mlp_width=512),
    model=dict(num_heads=4))

_SIMPLETRON = dict(
    listops=dict(
        train=dict(steps=15_000, warmup_steps=1000, learning_rate=0.005,
                   eval_every=200),
        encoder=dict(num_layers=6, width=512, mlp_width=2048),
        model=dict(num_heads=8)),
    text=dict(
        train=dict(steps=20_000, warmup_steps=8000, learning_rate=0.05,
                   eval_every=200),
        encoder=dict(num_layers=4, width=256, mlp_width=1024),
        model=dict(num_heads=4)),
    retrieval=_SIMPLETRON_RETRIEVAL,
    retrieval_rfc=_SIMPLETRON_RETRIEVAL,
    **_MINI)
_SIMPLETRON['amazon'] = _join(
    _SIMPLETRON['text'], dict(train=dict(eval_every=1000)))

_LRA_RECIPE = dict(
    train=dict(b2=0.98, eps=1e-9, select='last'),
    encoder=dict(positions='sinusoidal', cls_has_position=True,
                 embedding_std=1.0))

_LRA_RETRIEVAL = _join(_LRA_RECIPE, dict(
    # The warm-up lasts longer than the training.
    train=dict(steps=5000, warmup_steps=8000, learning_rate=0.05,
               eval_every=200),
    encoder=dict(num_layers=4, width=128, mlp_width=512),
    model=dict(num_heads=4)))

_LRA = dict(
    listops=_join(_LRA_RECIPE, dict(
        train=dict(steps=5000, warmup_steps=1000, learning_rate=0.05,
                   eval_every=200),
        encoder=dict(num_layers=4, width=512, mlp_width=1024),
        model=dict(num_heads=8))),
    text=_join(_LRA_RECIPE, dict(
        seq_len=1000,
        train=dict(steps=20_000, warmup_steps=8000, learning_rate=0.05,
                   eval_every=200, include_val=True),
        encoder=dict(num_layers=4, width=256, mlp_width=1024),
        model=dict(num_heads=4))),
    retrieval=_LRA_RETRIEVAL,
    retrieval_rfc=_LRA_RETRIEVAL,
    **{task: _join(mini, _LRA_RECIPE) for task, mini in _MINI.items()})

# Tasks of images have a cosine schedule from the first epoch to the last.
_LRA_IMAGES = _join(_LRA_RECIPE, dict(
    train=dict(learning_rate=1e-3, weight_decay=0.0, cpu_microbatch_size=32,
               cpu_eval_batch_size=64),
    optim=dict(schedule='cosine'),
    encoder=dict(positions='learned', mlp_width=32, width=32),
    model=dict(num_heads=4)))


def _epochs(count: int, examples: int, batch_size: int) -> dict:
  """Returns `train` for `count` epochs: the first warms up.

  There is a validation after each epoch.
  """
  steps = examples // batch_size
  return dict(train=dict(
      batch_size=batch_size, steps=count * steps, warmup_steps=steps,
      eval_every=steps))


_LRA.update(
    image=_join(_LRA_IMAGES, _epochs(200, 45_000, 256), dict(
        train=dict(learning_rate=5e-4),
        encoder=dict(num_layers=1, mlp_width=64, dropout=0.3),
        model=dict(num_heads=1))),
    pathfinder=_join(_LRA_IMAGES, _epochs(200, 160_000, 512), dict(
        encoder=dict(num_layers=4, dropout=0.2, pooling='mean',
                     positions='sinusoidal'),
        model=dict(qkv_width=16))),
    pathfinder64=_join(_LRA_IMAGES, _epochs(200, 160_000, 256), dict(
        train=dict(cpu_microbatch_size=8, cpu_eval_batch_size=16),
        encoder=dict(num_layers=2))),
    pathx=_join(_LRA_IMAGES, _epochs(200, 160_000, 64), dict(
        train=dict(cpu_microbatch_size=2, cpu_eval_batch_size=4),
        optim=dict(clip_norm=1.0),
        encoder=dict(num_layers=1, pooling='mean'),
        model=dict(num_heads=2, qkv_width=16))),
    pathx256=_join(_LRA_IMAGES, _epochs(100, 160_000, 32), dict(
        train=dict(cpu_microbatch_size=1, cpu_eval_batch_size=1),
        encoder=dict(num_layers=2))))
_LRA['cifar100'] = _LRA['image']
_LRA['mnist'] = _join(_LRA['image'], _epochs(200, 55_000, 256))

_NYSTROM_RECIPE = dict(
    train=dict(learning_rate=1e-4, weight_decay=0.0, eps=1e-6),
    # torch's OneCycleLR ends at the peak divided by 25 * 10**4.
    optim=dict(schedule='linear', final_fraction=4e-6),
    encoder=dict(pooling='mean', head_layers=1, embedding_std=0.02))

_NYSTROM_SIZE = dict(
    dtype='float32',
    encoder=dict(num_layers=2, width=64, mlp_width=128),
    model=dict(num_heads=2))

_NYSTROM_RETRIEVAL = _join(_NYSTROM_SIZE, _NYSTROM_RECIPE, dict(
    train=dict(steps=30_000, warmup_steps=800, eval_every=300,
               cpu_microbatch_size=2, cpu_eval_batch_size=4),
    encoder=dict(head='nli')))

# These four lengths leave less padding than any other four: 60% of the
# positions of ListOps and 44% of Text are computed. A core's caches hold two
# examples. So on two cores a step of simpletron on ListOps takes 0.39 s, but
# 0.51 s with four examples at a time. Its validation takes 3.6 s, but 8.2 s
# with eight at a time.
_NYSTROM = dict(
    listops=_join(_NYSTROM_SIZE, _NYSTROM_RECIPE, dict(
        train=dict(steps=5000, warmup_steps=1000, eval_every=50,
                   cpu_microbatch_size=2, cpu_eval_batch_size=2,
                   lengths=(768, 1024, 1280, 1536)))),
    text=_join(_NYSTROM_SIZE, _NYSTROM_RECIPE, dict(
        train=dict(steps=20_000, warmup_steps=8000, eval_every=500,
                   cpu_microbatch_size=4, cpu_eval_batch_size=2,
                   lengths=(768, 1280, 1792, 2560)))),
    retrieval=_NYSTROM_RETRIEVAL,
    retrieval_rfc=_NYSTROM_RETRIEVAL,
    image=_join(_NYSTROM_SIZE, _NYSTROM_RECIPE, dict(
        train=dict(steps=35_000, warmup_steps=175, eval_every=175,
                   batch_size=256, cpu_microbatch_size=8,
                   cpu_eval_batch_size=16))),
    pathfinder=_join(_NYSTROM_SIZE, _NYSTROM_RECIPE, dict(
        train=dict(steps=62_400, warmup_steps=312, eval_every=312,
                   batch_size=256, cpu_microbatch_size=8,
                   cpu_eval_batch_size=16))),
    **{task: _join(mini, _NYSTROM_RECIPE) for task, mini in _MINI.items()})


def _probe(steps: int, conv_width: int = 0) -> dict:
  """Returns a probe's settings; no dropout, since examples hardly repeat."""
  return dict(
      dtype='float32', objective='token_classification',
      train=dict(steps=steps, warmup_steps=100, learning_rate=3e-3,
                 weight_decay=0.0, batch_size=64, cpu_microbatch_size=64,
                 cpu_eval_batch_size=100, eval_every=100),
      optim=dict(schedule='cosine'),
      encoder=dict(num_layers=2, width=32, mlp_width=64, dropout=0.0,
                   pooling='mean', conv_width=conv_width),
      model=dict(num_heads=1))


# Grazzi et al. 2024, arXiv 2411.12537, train Mamba and DeltaNet with
# convolutions of width 4 on these.
_LANGUAGES = ('formal_parity', 'modular_arithmetic',
              'modular_arithmetic_brackets')
_TRACKING = ('s3_words', 's5_words', 's5_swaps', 's5_cycles', 'a5_words',
             'even_pairs', 'cycle_navigation', 'missing_duplicate',
             'bucket_sort', 'dyck')

_PROBES = dict(
    mqar_forgetting=_probe(2000, conv_width=4),
    # Two convolutions let a key's second part see the first one.
    mqar_compositional=_probe(3000, conv_width=4),
    phonebook=_probe(3000, conv_width=4),
    copying=_probe(2000),
    regbench_mini=_probe(3000, conv_width=4),
    # Without a convolution a mixer must first learn to look one token back. The
    # transformer did not learn this in as many steps, even with only 8 pairs.
    mqar=_probe(2000, conv_width=4),
    selective_copying=_probe(2000),
    parity=_probe(1500),
    permutations_3=_probe(1500),
    permutations_5=_probe(1500),
    **{task: _probe(2000, conv_width=4) for task in _LANGUAGES},
    **{task: _probe(2000) for task in _TRACKING})


def _state(steps: int, conv_width: int = 0) -> dict:
  """Returns a probe's settings without positions, which end at some length.

  The last parameters are scored: validation, on the lengths of training, soon
  finds no difference.
  """
  return _join(_probe(steps, conv_width), dict(
      train=dict(select='last'), model=dict(num_heads=4),
      encoder=dict(positions='none', width=64, mlp_width=128)))


_STATE = dict(
    parity=_state(3000),
    permutations_3=_state(3000),
    permutations_5=_state(3000),
    **{task: _state(3000, conv_width=4) for task in _LANGUAGES},
    **{task: _state(3000) for task in _TRACKING})


def _mad(setting: dict) -> dict:
  """Returns MAD's settings: mixer, SwiGLU, mixer, SwiGLU, without positions.

  The inner width of SwiGLU is 2/3 of 4 * 128, rounded up to a multiple of 16.
  A run's learning rate is the middle one of `mad.LEARNING_RATES`.
  """
  epoch = -(-setting['examples'] // mad.BATCH)
  rate = mad.LEARNING_RATES[1]
  return dict(
      objective='token_classification',
      train=dict(batch_size=mad.BATCH, steps=mad.EPOCHS * epoch, warmup_steps=0,
                 learning_rate=rate, weight_decay=mad.WEIGHT_DECAYS[0],
                 eval_every=10 * epoch, select='last', cpu_microbatch_size=32,
                 cpu_eval_batch_size=64),
      optim=dict(schedule='cosine', final_fraction=1e-6 / rate),
      encoder=dict(num_layers=2, width=128, mlp_width=352, block='glu',
                   norm='rms', positions='none', dropout=0.0, pooling='mean',
                   embedding_std=0.02),
      model=dict(num_heads=16))


_MAD = {name: _mad(setting) for task in mad.BASELINES
        for name, setting in mad.settings(task).items()}

# An epoch there has 707 batches: none has examples of two parts.
_ZOOLOGY = dict(mqar_zoology=dict(
    objective='token_classification',
    train=dict(batch_size=256, steps=32 * 707, warmup_steps=0,
               learning_rate=10**-2.5, weight_decay=0.1, eval_every=707,
               select='last', cpu_microbatch_size=8, cpu_eval_batch_size=8),
    optim=dict(schedule='cosine'),
    encoder=dict(num_layers=2, width=64, mlp_width=64, block='none',
                 conv_width=3, positions='none', dropout=0.0, pooling='mean',
                 embedding_std=0.02),
    model=dict(num_heads=2)))

# BERT base. 114,000 examples of train make 3,562 batches in an epoch.
_BERT = dict(ag_news=dict(
    seq_len=128,
    train=dict(batch_size=32, steps=3 * 3562, warmup_steps=1068,
               learning_rate=2e-5, weight_decay=0.01, eps=1e-6,
               eval_every=1187, cpu_microbatch_size=4),
    optim=dict(schedule='linear', clip_norm=1.0),
    encoder=dict(num_layers=12, width=768, mlp_width=3072, dropout=0.1,
                 norm_place='post', norm_eps=1e-12, norm_embedding=True,
                 gelu='exact', pooling='first', pooler=True, token_types=2,
                 vocab_size=30_522, max_positions=512, embedding_std=0.02),
    model=dict(num_heads=12)))

# For state-space models, a block is a norm, the mixer with its gate, and the
# residual sum.
_SSM_RECIPE = dict(
    optim=dict(schedule='cosine'),
    encoder=dict(positions='none', pooling='mean', norm='batch', block='none',
                 head='nli', head_layers=1, tie_dropout=True, dropout=0.0))
_PIXELS = dict(encoder=dict(inputs='values'))


def _sized(width: int, layers: int, mlp_width: int = 0, heads: int = 4) -> dict:
  """Returns sizes of a model; without an MLP, `mlp_width` is the classifier's.
  """
  return dict(encoder=dict(num_layers=layers, width=width,
                           mlp_width=mlp_width or width),
              model=dict(num_heads=heads))


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

_S4_RECIPE = _join(_SSM_RECIPE, dict(
    train=dict(ssm_learning_rate=1e-3, ssm_weight_decay=0.0)))
_POST = dict(encoder=dict(norm_place='post'))
_S4_TEXT = _join(_S4_RECIPE, _sized(256, 6), dict(
    train=dict(ssm_parameters=_NOT_STEPS)))
_S4_RETRIEVAL = _join(_S4_RECIPE, _sized(256, 6),
                      _trains(64, 50_000, 5000, 2298, 0.01, 0.05))

_S4 = dict(
    listops=_join(_S4_TEXT, _POST,
                  _trains(32, 120_000, 12_000, 3000, 0.01, 0.05)),
    text=_join(_S4_TEXT, _trains(16, 50_000, 5000, 1562, 0.01, 0.05)),
    retrieval=_S4_RETRIEVAL,
    retrieval_rfc=_S4_RETRIEVAL,
    image=_join(_S4_RECIPE, _PIXELS, _POST, _sized(512, 6),
                _trains(50, 180_000, 18_000, 900, 0.01, 0.05),
                dict(encoder=dict(dropout=0.1))),
    pathfinder=_join(_S4_RECIPE, _PIXELS, _sized(256, 6),
                     _trains(64, 500_000, 50_000, 2500, 0.004, 0.05)),
    pathx=_join(_S4_RECIPE, _PIXELS, _sized(256, 6),
                _trains(16, 500_000, 50_000, 10_000, 0.001, 0.05)),
    **{task: _join(mini, _S4_RECIPE, dict(
        train=dict(learning_rate=0.01, weight_decay=0.05)))
       for task, mini in _MINI.items()})


def _s5(rate: float, factor: float, *, groups: tuple = (), **encoder) -> dict:
  """Returns the recipe of `s5`, with the learning rate `factor` * `rate`.

  `rate` is the learning rate of the state-space parameters.
  """
  return _join(_SSM_RECIPE, dict(
      train=dict(learning_rate=round(rate * factor, 6), ssm_learning_rate=rate,
                 ssm_weight_decay=0.0, ssm_parameters=groups),
      encoder=dict(norm_momentum=0.95) | encoder))


def _s5_trains(batch_size: int, epochs: int, epoch: int, warmup: int,
               weight_decay: float) -> dict:
  return dict(train=dict(
      batch_size=batch_size, steps=epochs * epoch, warmup_steps=warmup,
      eval_every=epoch, weight_decay=weight_decay, cpu_microbatch_size=1,
      cpu_eval_batch_size=4))


_S5_RETRIEVAL = _join(_s5(0.001, 2, groups=_NOT_STEPS), _sized(128, 6),
                      _s5_trains(32, 20, 4596, 4596, 0.05))

_S5 = dict(
    listops=_join(_s5(0.001, 3, groups=_NOT_B), _sized(128, 8),
                  _s5_trains(50, 40, 1920, 1920, 0.04)),
    text=_join(_s5(0.001, 4, groups=_NOT_STEPS, dropout=0.1), _sized(256, 6),
               _s5_trains(50, 35, 500, 0, 0.07)),
    retrieval=_S5_RETRIEVAL,
    retrieval_rfc=_S5_RETRIEVAL,
    image=_join(_s5(0.001, 4.5, groups=_NOT_B, dropout=0.1), _PIXELS,
                _sized(512, 6), _s5_trains(50, 250, 900, 900, 0.07)),
    pathfinder=_join(_s5(0.0009, 5, dropout=0.05, norm_momentum=0.9), _PIXELS,
                     _sized(192, 6), _s5_trains(64, 200, 2500, 2500, 0.03)),
    pathx=_join(_s5(0.0006, 3, norm_momentum=0.9), _PIXELS, _sized(128, 6),
                _s5_trains(32, 75, 5000, 5000, 0.06)),
    **{task: _join(mini, _s5(0.001, 3), dict(train=dict(weight_decay=0.05)))
       for task, mini in _MINI.items()})

_MEGA_RECIPE = dict(
    train=dict(b2=0.98),
    optim=dict(schedule='linear', clip_norm=1.0),
    encoder=dict(positions='none', pooling='mean', head_layers=1))
_MEGA_TEXT = _join(_MEGA_RECIPE, dict(encoder=dict(norm_place='post')))
_MEGA_PIXELS = _join(_MEGA_RECIPE, _PIXELS, dict(
    encoder=dict(norm='batch', dropout=0.0)))
_SCALE = dict(encoder=dict(norm='scale'))
_MEGA_RETRIEVAL = _join(
    _MEGA_TEXT, _SCALE, _sized(128, 6, 256),
    _trains(64, 91_960, 10_000, 2298, 0.003, 0.04))

_MEGA = dict(
    listops=_join(_MEGA_TEXT, _sized(80, 6, 160),
                  _trains(64, 90_000, 3000, 1500, 0.001, 0.01)),
    text=_join(_MEGA_TEXT, _SCALE, _sized(128, 4, 256),
               _trains(50, 25_000, 10_000, 500, 0.004, 0.01)),
    retrieval=_MEGA_RETRIEVAL,
    retrieval_rfc=_MEGA_RETRIEVAL,
    image=_join(_MEGA_PIXELS, _sized(160, 8, 320),
                _trains(50, 180_000, 9000, 900, 0.01, 0.02)),
    pathfinder=_join(_MEGA_PIXELS, _sized(128, 6, 256),
                     _trains(128, 250_000, 50_000, 1250, 0.01, 0.01)),
    pathx=_join(_MEGA_PIXELS, _sized(64, 4, 128),
                _trains(128, 125_000, 25_000, 1250, 0.01, 0.01)),
    **{task: _join(mini, _MEGA_RECIPE, dict(
        train=dict(learning_rate=0.004, weight_decay=0.01)))
       for task, mini in _MINI.items()})

_METALA_RECIPE = dict(
    optim=dict(schedule='cosine'),
    encoder=dict(positions='none', pooling='mean', block='glu', dropout=0.0,
                 head_layers=1))
_METALA_RETRIEVAL = _join(
    _METALA_RECIPE, _sized(256, 2, 512),
    _trains(128, 50_000, 312, 1149, 8e-4, 1e-4),
    dict(encoder=dict(dropout=0.1)))

_METALA = dict(
    listops=_join(_METALA_RECIPE, _sized(32, 6, 64),
                  _trains(128, 50_000, 5000, 750, 5e-4, 0.01)),
    text=_join(_METALA_RECIPE, _sized(128, 4, 256),
               _trains(64, 50_000, 10_000, 390, 0.004, 0.0),
               dict(encoder=dict(dropout=0.1))),
    retrieval=_METALA_RETRIEVAL,
    retrieval_rfc=_METALA_RETRIEVAL,
    image=_join(_METALA_RECIPE, _PIXELS, _sized(512, 6, 512),
                _trains(128, 50_000, 30_000, 351, 0.003, 0.0)),
    pathfinder=_join(_METALA_RECIPE, _PIXELS, _sized(128, 6, 128),
                     _trains(256, 500_000, 50_000, 625, 0.002, 0.0)),
    pathx=_join(_METALA_RECIPE, _PIXELS, _sized(32, 6, 32),
                _trains(256, 500_000, 15_000, 625, 7.5e-4, 0.0)),
    **{task: _join(mini, _METALA_RECIPE, dict(
        train=dict(learning_rate=0.002, weight_decay=0.01)))
       for task, mini in _MINI.items()})

PROTOCOLS = {'simpletron': _SIMPLETRON, 'lra': _LRA, 'nystrom': _NYSTROM,
             's4': _S4, 's5': _S5, 'mega': _MEGA, 'metala': _METALA,
             'probes': _PROBES, 'state': _STATE, 'mad': _MAD,
             'zoology': _ZOOLOGY, 'bert': _BERT}

# Arguments of several mixers that a protocol sets: see `base.argument`.
# num_global: number of first tokens that see, and are seen by, all tokens in a
# sparse pattern. hash_rounds: rounds of hashing of reformer.
_ARGUMENTS = dict(
    qkv_bias=True, attention_dropout=0.0, num_global=0, hash_rounds=4)
ARGUMENTS = {
    'simpletron': _ARGUMENTS,
    'lra': dict(_ARGUMENTS, qkv_bias=False, attention_dropout=0.1,
                num_global=1),
    'nystrom': dict(_ARGUMENTS, attention_dropout=0.1, hash_rounds=2),
    's4': _ARGUMENTS, 's5': _ARGUMENTS, 'mega': _ARGUMENTS,
    'metala': _ARGUMENTS, 'probes': _ARGUMENTS,
    'state': dict(_ARGUMENTS, direction='causal'),
    'mad': _ARGUMENTS, 'zoology': _ARGUMENTS,
    'bert': dict(_ARGUMENTS, attention_dropout=0.1),
}
_BOTH_WAYS = {
    ('metala', task): dict(direction='bidirectional') for task in (
        'retrieval', 'retrieval_rfc', 'image', 'pathfinder', 'pathx')}
# Arguments that a protocol sets differently on one task.
TASK_ARGUMENTS = {
    **{('lra', task): dict(attention_dropout=0.2)
       for task in ('image', 'cifar100', 'mnist')},
    ('metala', 'listops'): dict(direction='causal'),
    ('metala', 'text'): dict(direction='causal'), **_BOTH_WAYS}

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
