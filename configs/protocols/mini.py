"""Settings of the mini tasks, and helpers for those of protocols."""


def join(*settings: dict) -> dict:
  """Merges nested dicts; if a field has two values, the later one is kept."""
  joined = {}
  for part in settings:
    for key, value in part.items():
      if isinstance(value, dict):
        value = join(joined.get(key, {}), value)
      joined[key] = value
  return joined


def sized(layers: int, width: int, mlp_width: int, heads: int = 4,
          **encoder) -> dict:
  """Returns sizes of a model; without an MLP, `mlp_width` is the classifier's.
  """
  return dict(encoder=dict(num_layers=layers, width=width, mlp_width=mlp_width,
                           **encoder), model=dict(num_heads=heads))


def complete(recipe: dict, mini: dict, **tasks: dict) -> dict:
  """Returns a protocol: its tasks, and our tasks with its recipe.

  Args:
    recipe: settings of all tasks.
    mini: further settings of the mini tasks.
    **tasks: further settings of each task of the paper.
  """
  settings = {task: join(recipe, own) for task, own in tasks.items()}
  return settings | {'retrieval_rfc': settings['retrieval'], **{
      task: join(own, recipe, mini) for task, own in MINI.items()}}


# The mini tasks have the same size under every protocol; two CPU cores train
# them in minutes. Models that small underfit, so there is no dropout. A few
# sequences of 512 tokens at a time fit in a CPU's caches, which is twice as
# fast.
_TEXT = dict(dropout=0.0, pooling='mean')
MINI = dict(
    listops_mini=dict(
        sized(2, 64, 128, dropout=0.0), dtype='float32',
        train=dict(steps=4000, warmup_steps=200, learning_rate=0.05,
                   eval_every=500, cpu_microbatch_size=32)),
    text_mini=dict(
        sized(1, 64, 128, 2, **_TEXT), dtype='float32',
        train=dict(steps=800, warmup_steps=100, learning_rate=0.01,
                   eval_every=100, cpu_microbatch_size=4,
                   cpu_eval_batch_size=8)),
    retrieval_rfc_mini=dict(
        sized(1, 64, 128, 2, head='nli', **_TEXT), dtype='float32',
        train=dict(steps=1000, warmup_steps=100, learning_rate=0.01,
                   eval_every=200, cpu_microbatch_size=2,
                   cpu_eval_batch_size=4)),
    image_mini=dict(
        sized(2, 32, 64, 2, **_TEXT), dtype='float32',
        train=dict(steps=2000, warmup_steps=200, learning_rate=0.004,
                   eval_every=500, cpu_microbatch_size=8,
                   cpu_eval_batch_size=16),
        optim=dict(schedule='cosine')),
    # Black pixels are padding here. The first row of pixels is black in all but
    # one of 1,000 images, so the first positions hold no token. Mechanisms that
    # treat the first positions specially lose this: attention_sink and duo have
    # no sinks, bigbird, etc and longformer no global tokens, star few tokens in
    # its anchor.
    pathfinder_mini=dict(
        sized(2, 32, 64, 2, positions='sinusoidal', **_TEXT), dtype='float32',
        mask_black=True,
        train=dict(steps=4000, warmup_steps=200, learning_rate=0.03,
                   eval_every=500, cpu_microbatch_size=8,
                   cpu_eval_batch_size=16)))
