"""The field that a wrong name is likeliest to mean, for errors.

Names of other programs are those of Long Range Arena's released code, of the
harnesses of S4, Mega and Nystromformer, and of Hugging Face's transformers,
PyTorch and Lightning.
"""

from collections.abc import Collection

from lra.core.errors import meant
from lra.schema.fields import FIELDS

_SYNONYMS = {
    'seed': 'random_seed rng_seed',
    'seq_len': 'max_len max_length seq_length sequence_length max_seq_len '
               'max_position_embeddings l_max',
    'dtype': 'precision mixed_precision amp fp16 bf16 half_precision',
    'train.steps': 'num_steps max_steps num_train_steps total_steps max_update '
                   'iterations num_iterations epochs max_epochs num_epochs '
                   'num_train_epochs',
    'train.batch_size': 'bs batch batchsize train_batch_size '
                        'per_device_train_batch_size',
    'train.microbatch_size': 'grad_accum gradient_accumulation_steps '
                             'accumulate_grad_batches update_freq',
    'train.learning_rate': 'lr lr_max max_lr base_lr peak_lr',
    'train.weight_decay': 'wd l2 decay',
    'train.warmup_steps': 'warmup num_warmup_steps warmup_updates',
    'train.eval_every': 'eval_frequency eval_freq eval_steps val_every '
                        'val_check_interval',
    'train.log_every': 'logging_steps log_interval log_every_n_steps',
    'train.b1': 'beta1 beta_1 adam_beta1',
    'train.b2': 'beta2 beta_2 adam_beta2',
    'train.eps': 'epsilon adam_epsilon adam_eps',
    'optim.name': 'optim optimizer optimiser opt',
    'optim.schedule': 'scheduler lr_scheduler lr_scheduler_type lr_schedule '
                      'factors',
    'optim.clip_norm': 'clip grad_clip gradient_clip_val max_grad_norm '
                       'grad_norm_clip',
    'optim.ema': 'ema_decay',
    'encoder.num_layers': 'num_blocks n_blocks blocks n_layers n_layer layers '
                          'depth num_hidden_layers encoder_layers',
    'encoder.width': 'hidden d_model dim model_dim hidden_size hidden_dim '
                     'n_embd emb_dim embed_dim embedding_dim transformer_dim '
                     'encoder_embed_dim features',
    'encoder.mlp_width': 'mlp_dim d_ff ff_dim ffn_dim d_inner n_inner '
                         'intermediate_size dim_feedforward '
                         'transformer_hidden_dim encoder_ffn_embed_dim',
    'encoder.dropout': 'dropout_rate hidden_dropout_prob p_drop drop_rate',
    'encoder.tie_dropout': 'dropout_tie',
    'encoder.norm_place': 'prenorm pre_norm norm_first normalize_before',
    'encoder.pooling': 'pool classifier_pool pooling_mode',
    'encoder.positions': 'pos_emb position_embeddings pos_encoding pe',
    'encoder.remat': 'checkpointing gradient_checkpointing '
                     'activation_checkpointing',
    'model.name': 'attention attention_type attn_type mixer mechanism',
    'model.num_heads': 'heads n_heads n_head nhead num_head '
                       'num_attention_heads encoder_attention_heads',
    'model.qkv_width': 'qkv_dim',
    'model.attention_dropout': 'attn_dropout attention_dropout_rate '
                               'attention_probs_dropout_prob',
}
# Name elsewhere -> field here.
FIELD_OF = {name: field for field, names in _SYNONYMS.items()
            for name in names.split()}


def likeliest(name: str, names: Collection[str]) -> str:
  """Returns the field that a wrong name is likeliest to mean, or ''.

  A name of other programs comes first if no field has it, then the fields of
  the same group, then all others.

  Args:
    name: the wrong name, such as `encoder.depth` or `lr`.
    names: the dotted names of all fields.
  """
  last = name.rpartition('.')[2].lower()
  taken = any(n.rpartition('.')[2] == last for n in names)
  if FIELD_OF.get(last) in names and not taken:
    return FIELD_OF[last]
  return _meant(name, beside(name, names)) or _meant(name, names)


def beside(name: str, names: Collection[str]) -> list[str]:
  """Returns the fields of the group of `name`."""
  return [n for n in names if n.rpartition('.')[0] == name.rpartition('.')[0]]


def _meant(name, names):
  """Returns the field of equal name, else with these initials (lr for
  learning_rate), else of a similar name, else with a name that contains it.

  Of fields with one name, the first one in FIELDS counts.
  """
  last, order = name.rpartition('.')[2], [*FIELDS, *names]
  found = {n.rpartition('.')[2]: n
           for n in sorted(names, key=order.index, reverse=True)}
  initials = [n for n in found if '_' in n and last == ''.join(
      word[:1] for word in n.split('_'))]
  parts = sorted((n for n in found if len(last) > 3 and last in n),
                 key=lambda n: (not n.startswith(last), len(n)))
  ranked = [last] * (last in found) + initials + [
      *filter(None, [meant(last, found, 0.75)]), *parts]
  return found[ranked[0]] if ranked else ''
