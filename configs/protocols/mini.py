"""Settings of the mini tasks, which have one size under every protocol."""


def join(*settings: dict) -> dict:
  """Merges nested dicts; if a field has two values, the later one is kept."""
  joined = {}
  for part in settings:
    for key, value in part.items():
      if isinstance(value, dict):
        value = join(joined.get(key, {}), value)
      joined[key] = value
  return joined


# The mini tasks have the same size under every protocol; two CPU cores train
# them in minutes. Models that small underfit, so there is no dropout. A few
# sequences of 512 tokens at a time fit in a CPU's caches,
# which is twice as fast.
MINI = dict(
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

MINI['image_mini'] = dict(
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
MINI['pathfinder_mini'] = dict(
    dtype='float32', mask_black=True,
    train=dict(steps=4000, warmup_steps=200, learning_rate=0.03,
               eval_every=500, cpu_microbatch_size=8, cpu_eval_batch_size=16),
    encoder=dict(num_layers=2, width=32, mlp_width=64, dropout=0.0,
                 pooling='mean', positions='sinusoidal'),
    model=dict(num_heads=2))
