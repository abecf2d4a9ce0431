"""The field that a wrong name is likeliest to mean, for errors.

Names of other programs are those of Long Range Arena's released code, of the
harness of S4, and of Hugging Face's transformers, PyTorch and Lightning.
"""

from collections.abc import Collection

from lra.core.errors import meant
from lra.schema.fields import FIELDS

_SYNONYMS = {
    'seed': 'random_seed rng_seed',
    'seq_len': 'max_len max_length l_max max_position_embeddings',
    'dtype': 'precision mixed_precision amp fp16 bf16',
    'train.steps': 'num_steps max_steps num_train_steps epochs max_epochs '
                   'num_train_epochs',
    'train.batch_size': 'bs batch per_device_train_batch_size',
    'train.microbatch_size': 'gradient_accumulation_steps '
                             'accumulate_grad_batches',
    'train.learning_rate': 'lr max_lr base_lr',
    'train.weight_decay': 'wd',
    'train.warmup_steps': 'warmup num_warmup_steps',
    'train.eval_every': 'eval_frequency eval_freq eval_steps',
    'train.log_every': 'logging_steps log_interval log_every_n_steps',
    'train.b1': 'beta1', 'train.b2': 'beta2', 'train.eps': 'epsilon',
    'optim.name': 'optim optimizer optimiser',
    'optim.schedule': 'scheduler lr_scheduler_type factors',
    'optim.clip_norm': 'clip grad_clip gradient_clip_val max_grad_norm',
    'encoder.num_layers': 'num_blocks n_blocks blocks n_layers layers depth '
                          'num_hidden_layers',
    'encoder.width': 'hidden d_model dim hidden_size emb_dim embed_dim',
    'encoder.mlp_width': 'mlp_dim d_ff ffn_dim d_inner intermediate_size '
                         'dim_feedforward',
    'encoder.dropout': 'dropout_rate hidden_dropout_prob',
    'encoder.norm_place': 'prenorm norm_first normalize_before',
    'encoder.pooling': 'pool classifier_pool',
    'encoder.positions': 'pos_emb',
    'encoder.remat': 'gradient_checkpointing',
    'model.name': 'attention attn_type mixer',
    'model.num_heads': 'heads n_heads n_head nhead num_attention_heads',
    'model.qkv_width': 'qkv_dim',
    'model.attention_dropout': 'attn_dropout attention_dropout_rate',
}
# Name elsewhere -> field here.
FIELD_OF = {name: field for field, names in _SYNONYMS.items()
            for name in names.split()}


def likeliest(name: str, names: Collection[str]) -> str:
  """Returns the field that a wrong name (`encoder.depth`, `lr`) means, or ''.

  A name of other programs comes first if no field has it, then the fields of
  the same group, then all others of the dotted `names`.
  """
  last = name.rpartition('.')[2].lower()
  taken = any(n.rpartition('.')[2] == last for n in names)
  if FIELD_OF.get(last) in names and not taken:
    return FIELD_OF[last]
  return _meant(last, beside(name, names)) or _meant(last, names)


def beside(name: str, names: Collection[str]) -> list[str]:
  """Returns the fields of the group of `name`."""
  return [n for n in names if n.rpartition('.')[0] == name.rpartition('.')[0]]


def _meant(last, names):
  """Returns the field of equal or similar name; the first one in FIELDS."""
  found = {n.rpartition('.')[2]: n
           for n in sorted(names, key=[*FIELDS, *names].index, reverse=True)}
  return found.get(last) or found.get(meant(last, found, 0.75), '')
