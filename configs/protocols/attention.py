"""Settings of the papers on attention: simpletron, lra, nystrom, bert, keras.
"""

import functools

from lra.configs.protocols.mini import complete, join, sized


def _trains(steps: int, warmup_steps: int, learning_rate: float,
            eval_every: int, **others) -> dict:
  return dict(train=dict(steps=steps, warmup_steps=warmup_steps,
                         learning_rate=learning_rate, eval_every=eval_every,
                         **others))


SIMPLETRON = complete(
    {}, {},
    listops=join(sized(6, 512, 2048, 8), _trains(15_000, 1000, 0.005, 200)),
    text=join(sized(4, 256, 1024), _trains(20_000, 8000, 0.05, 200)),
    retrieval=join(sized(4, 128, 512), _trains(15_000, 8000, 0.05, 50)))
SIMPLETRON['amazon'] = join(
    SIMPLETRON['text'], dict(train=dict(eval_every=1000)))

# Tasks of images have a cosine schedule from the first epoch to the last.
_IMAGES = dict(
    train=dict(learning_rate=1e-3, weight_decay=0.0, cpu_microbatch_size=32,
               cpu_eval_batch_size=64),
    optim=dict(schedule='cosine'),
    encoder=dict(positions='learned', mlp_width=32, width=32),
    model=dict(num_heads=4))


def _epochs(count: int, examples: int, batch_size: int, **others) -> dict:
  """Returns `train` for `count` epochs: the first warms up.

  There is a validation after each epoch.
  """
  steps = examples // batch_size
  return dict(train=dict(
      batch_size=batch_size, steps=count * steps, warmup_steps=steps,
      eval_every=steps, **others))


LRA = complete(
    dict(train=dict(b2=0.98, eps=1e-9, select='last'),
         encoder=dict(positions='sinusoidal', cls_has_position=True,
                      embedding_std=1.0)), {},
    listops=join(sized(4, 512, 1024, 8), _trains(5000, 1000, 0.05, 200)),
    text=join(sized(4, 256, 1024), dict(seq_len=1000), _trains(
        20_000, 8000, 0.05, 200, include_val=True)),
    # The warm-up lasts longer than the training.
    retrieval=join(sized(4, 128, 512), _trains(5000, 8000, 0.05, 200)),
    image=join(
        _IMAGES, _epochs(200, 45_000, 256, learning_rate=5e-4),
        dict(encoder=dict(num_layers=1, mlp_width=64, dropout=0.3),
             model=dict(num_heads=1))),
    pathfinder=join(
        _IMAGES, _epochs(200, 160_000, 512),
        dict(encoder=dict(num_layers=4, dropout=0.2, pooling='mean',
                          positions='sinusoidal'),
             model=dict(qkv_width=16))),
    pathfinder64=join(
        _IMAGES, _epochs(200, 160_000, 256, cpu_microbatch_size=8,
                         cpu_eval_batch_size=16),
        dict(encoder=dict(num_layers=2))),
    pathx=join(
        _IMAGES, _epochs(200, 160_000, 64, cpu_microbatch_size=2,
                         cpu_eval_batch_size=4),
        dict(optim=dict(clip_norm=1.0),
             encoder=dict(num_layers=1, pooling='mean'),
             model=dict(num_heads=2, qkv_width=16))),
    pathx256=join(
        _IMAGES, _epochs(100, 160_000, 32, cpu_microbatch_size=1,
                         cpu_eval_batch_size=1),
        dict(encoder=dict(num_layers=2))))
LRA['cifar100'] = LRA['image']
LRA['mnist'] = join(LRA['image'], _epochs(200, 55_000, 256))

_NYSTROM_SIZE = dict(sized(2, 64, 128, 2), dtype='float32')


def _nystrom(steps: int, warmup_steps: int, eval_every: int, micro: int,
             evaluated: int, **others) -> dict:
  """Returns `train`, with a microbatch and an evaluation batch for a CPU."""
  return join(_NYSTROM_SIZE, _trains(
      steps, warmup_steps, 1e-4, eval_every, cpu_microbatch_size=micro,
      cpu_eval_batch_size=evaluated, **others))


# The four lengths of ListOps and of Text leave less padding than any other
# four: 60% of the positions of ListOps and 44% of Text are computed. A core's
# caches hold two examples. So on two cores a step of simpletron on ListOps
# takes 0.39 s, but 0.51 s with four examples at a time. Its validation takes
# 3.6 s, but 8.2 s with eight at a time.
NYSTROM = complete(
    dict(train=dict(learning_rate=1e-4, weight_decay=0.0, eps=1e-6),
         # torch's OneCycleLR ends at the peak divided by 25 * 10**4.
         optim=dict(schedule='linear', final_fraction=4e-6),
         encoder=dict(pooling='mean', head_layers=1, embedding_std=0.02)), {},
    listops=_nystrom(5000, 1000, 50, 2, 2, lengths=(768, 1024, 1280, 1536)),
    text=_nystrom(20_000, 8000, 500, 4, 2, lengths=(768, 1280, 1792, 2560)),
    retrieval=join(_nystrom(30_000, 800, 300, 2, 4),
                   dict(encoder=dict(head='nli'))),
    image=_nystrom(35_000, 175, 175, 8, 16, batch_size=256),
    pathfinder=_nystrom(62_400, 312, 312, 8, 16, batch_size=256))

# BERT base. 114,000 examples of train make 3,562 batches in an epoch.
BERT = dict(ag_news=join(
    sized(12, 768, 3072, 12, dropout=0.1, norm_place='post', norm_eps=1e-12,
          norm_embedding=True, gelu='exact', pooling='first', pooler=True,
          token_types=2, vocab_size=30_522, max_positions=512,
          embedding_std=0.02),
    _trains(3 * 3562, 1068, 2e-5, 1187, batch_size=32, weight_decay=0.01,
            eps=1e-6, cpu_microbatch_size=4),
    dict(seq_len=128, optim=dict(schedule='linear', clip_norm=1.0))))


# The examples of keras.io for texts and images, with the sizes of arXiv
# 2403.01643.
def _keras(epochs: int, examples: int, micro: int, size: dict,
           optimizer: str = 'adam', weight_decay: float = 0.0) -> dict:
  return join(
      size, dict(dtype='float32', optim=dict(
          name=optimizer, schedule='constant'), encoder=dict(pooling='mean')),
      _epochs(epochs, examples, 64, learning_rate=1e-3, eps=1e-7,
              weight_decay=weight_decay, cpu_microbatch_size=micro,
              cpu_eval_batch_size=micro), dict(train=dict(warmup_steps=0)))


_WORDS = sized(1, 32, 32, norm_place='post', embedding_std=0.029)
_VIT = functools.partial(
    _keras, micro=16, optimizer='adamw', weight_decay=1e-4)
_SMALL_VIT = sized(2, 64, 128, inputs='patches')
KERAS = dict(
    imdb_words=_keras(10, 22_500, 64, _WORDS),
    imdb_words_200=_keras(3, 22_500, 8, _WORDS),
    rfc_words=_keras(
        2, 140_892, 16, join(_WORDS, dict(encoder=dict(head='nli')))),
    image=_VIT(10, 45_000, size=_SMALL_VIT),
    mnist=_VIT(10, 55_000, size=_SMALL_VIT),
    cifar100=_VIT(50, 45_000, size=sized(8, 144, 288, inputs='patches')))
