"""The settings of each protocol for each task: `of(protocol, task)`.

An entry has only the settings that differ from the defaults in
`lra/schema/fields.py`, grouped as in the config. To add a protocol, add a dict
with an entry for every full task that it defines. A protocol of the main tasks
has all mini tasks too, but no probe. The default protocol of a task is the
first one that has the task. docs/protocols.md has the source of each protocol,
and the known differences from it.
"""

from lra.configs.protocols import attention, laptop, probes, recurrence
from lra.configs.protocols.mini import join
from lra.core import tasks

PROTOCOLS = {
    'simpletron': attention.SIMPLETRON, 'lra': attention.LRA,
    'nystrom': attention.NYSTROM, 's4': recurrence.S4, 's5': recurrence.S5,
    'mega': recurrence.MEGA, 'metala': recurrence.METALA,
    'probes': probes.PROBES, 'state': probes.STATE, 'mad': probes.MAD,
    'zoology': probes.ZOOLOGY, 'bert': attention.BERT,
    'keras': attention.KERAS, 'laptop_1': laptop.LAPTOP}


def of(protocol: str, task: str) -> dict | None:
  """Returns the settings of a protocol for a task; None if it has no such task.

  An own task has those of the mini task of texts or images, and its own ones.
  """
  known = PROTOCOLS.get(protocol, {})
  own = task not in tasks.TASKS and tasks.find(task)
  like = own and own.own and known.get(
      'image_mini' if own.image else 'text_mini')
  return join(like, own.settings) if like else known.get(task)


# Arguments of several mixers that a protocol sets: see `base.argument`.
# num_global: number of first tokens that see, and are seen by, all tokens in a
# sparse pattern. hash_rounds: rounds of hashing of reformer.
_ARGUMENTS = dict(
    qkv_bias=True, attention_dropout=0.0, num_global=0, hash_rounds=4)
ARGUMENTS = dict.fromkeys(PROTOCOLS, _ARGUMENTS) | {
    'lra': dict(_ARGUMENTS, qkv_bias=False, attention_dropout=0.1,
                num_global=1),
    'nystrom': dict(_ARGUMENTS, attention_dropout=0.1, hash_rounds=2),
    'state': dict(_ARGUMENTS, direction='causal'),
    'bert': dict(_ARGUMENTS, attention_dropout=0.1)}
# Arguments that a protocol sets differently on one task.
TASK_ARGUMENTS = {
    **{('lra', task): dict(attention_dropout=0.2)
       for task in ('image', 'cifar100', 'mnist')},
    **{('laptop_1', task): dict(direction='causal') for task in laptop.CAUSAL},
    ('metala', 'listops'): dict(direction='causal'),
    ('metala', 'text'): dict(direction='causal'),
    **{('metala', task): dict(direction='bidirectional') for task in (
        'retrieval', 'retrieval_rfc', 'image', 'pathfinder', 'pathx')}}
