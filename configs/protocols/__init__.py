"""The settings of each protocol for each task: PROTOCOLS[protocol][task].

An entry has only the settings that differ from the defaults in
`lra/schema/fields.py`, grouped as in the config. To add a protocol, add a dict
with an entry for every full task that it defines. A protocol of the main tasks
has all mini tasks too, but no probe. The default protocol of a task is the
first one that has the task. docs/protocols.md lists the known differences
between a protocol and its paper.

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
* `probes`: ours, for tasks of `lra.data_prep.probes`: minutes on two cores.
* `state`: ours, for state tracking and lengths beyond those of training:
  minutes on two cores. The encoder adds no positions, so that every mechanism
  can read longer sequences. Recurrences run forward only.
* `mad`: the released code of MAD, Poli et al. 2024, arXiv 2403.17844
  (github.com/athms/mad-lab, commit 0f49a45); `lra.core.mad` has its settings.
* `zoology`: the released settings of multi-query associative recall, Arora et
  al. 2023, arXiv 2312.04927 (github.com/HazyResearch/zoology, commit d88d6f5,
  original_mqar_configs.py).

Under every protocol the mini tasks, including those of images, have our sizes
and steps (`mini`) and the protocol's recipe. `retrieval_rfc` is our task too;
it has the settings of `retrieval`. `mnist` and `cifar100` have the settings of
Image under `lra`; an epoch of MNIST has other steps. `amazon` has the settings
of Text under `simpletron`, so its 20,000 steps see a fifth of the reviews.
"""

from lra.configs.protocols import attention, probes, recurrence

PROTOCOLS = {
    'simpletron': attention.SIMPLETRON, 'lra': attention.LRA,
    'nystrom': attention.NYSTROM, 's4': recurrence.S4, 's5': recurrence.S5,
    'mega': recurrence.MEGA, 'metala': recurrence.METALA,
    'probes': probes.PROBES, 'state': probes.STATE, 'mad': probes.MAD,
    'zoology': probes.ZOOLOGY, 'bert': attention.BERT}

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
    ('metala', 'listops'): dict(direction='causal'),
    ('metala', 'text'): dict(direction='causal'),
    **{('metala', task): dict(direction='bidirectional') for task in (
        'retrieval', 'retrieval_rfc', 'image', 'pathfinder', 'pathx')}}
