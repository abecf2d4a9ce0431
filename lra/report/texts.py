"""What the page says beside its tables; code is between backticks."""

TITLE = 'Long Range Arena leaderboard'
WHAT = (
    'Test accuracies of attention mechanisms, and of what is used in their '
    'place, on the tasks of Long Range Arena, each beside its task\'s highest '
    'floor: what a method without a neural network scores. A row that is '
    'below the floor, or not significantly above it (n.s.), has not been shown '
    'to learn more of the task than such a method finds.')
BEST = (
    'The row with the highest test score of each full task and protocol, of '
    'those with at most 110% of the Transformer\'s parameters. That score '
    'chose it: others with rank 1 are not told from it. "Models" counts those '
    'that were run. Scores of different protocols are not comparable.')
OVERVIEW = (
    'Mean test accuracy; of a model run in several configurations, the one '
    'with the most seeds, then the most steps, then the highest accuracy on '
    'validation. Only runs with the settings of their protocol. †: more than '
    '110% of the Transformer\'s parameters. ‡: of the seeds that finished; '
    'others diverged, ran out of memory or were stopped. §: on other data than '
    'the floors, or than most rows.')
COMPARED = (
    'Which examples a published result had right is not known, and where data '
    'are generated they were others. So the interval of the deviation allows '
    'for the choice of examples on both sides (theirs counts as one run on as '
    'many as here; Newcombe 1998), and for that of our seeds where there are '
    'several; where the test examples are the same, as those of Text, it is '
    'wider than it need be. Where the protocol is not quite theirs, '
    '`configs/protocols.py` says so.')
EXPLANATIONS = (
    'Accuracies are percentages of the whole test split, read once at the end '
    'of a run: means over the seeds that finished ("1 of 5": the other four '
    'diverged, ran out of memory or were stopped), with their 95% interval '
    '(Student\'s t): where the mean of other seeds on these test examples '
    'would lie; other examples are not in it. Of a single seed, marked by a '
    'star, the interval is that of its test examples alone (Wilson) and says '
    'nothing of other seeds; so is that of seeds which all have the same '
    'accuracy. In the tables of associative recall and selective copying each '
    'answer counts as an example of its own, in ranks too, though those of one '
    'sequence depend on each other: rows of one seed are told apart there with '
    'less certainty than is said.',
    '"Rank" is between which places of its table a row belongs: below the rows '
    'that are significantly better, above those that are significantly worse, '
    'at 5% for all pairs together (Holm); the details name the places of the '
    'rows that it is not told from. A sentence below each table says by what. '
    'By seeds: Student\'s t, with a variance for each row that is drawn '
    'towards those of all rows (Smyth 2004), as far as they are certain to be '
    'alike; rows of one seed have that of all. By examples: McNemar\'s exact '
    'test of the examples that two networks answer differently, or Fisher\'s, '
    'which finds less, where a record does not say which were right '
    '("answers" is "not kept"); of rows of several seeds every pair of seeds '
    'must differ, and in the same direction.',
    '"Above floor" is the accuracy minus the highest floor, in points; "n.s." '
    'where it is not significant, by the same tests at 5% for all rows of the '
    'table together. That is another question than whether the interval of '
    'the row holds the floor: asked of the very examples that the floor was '
    'scored on, it finds smaller differences; asked of all rows at once, it '
    'takes larger ones. The two may differ. "As first operator": how often the '
    'answer is that of the floor of this name. Parameters in bold are more '
    'than 110% of the Transformer\'s of the same task and protocol, which is '
    'the arena\'s limit. "Steps to 95%": the first validated step with so high '
    'an accuracy on validation, of the slowest seed.',
    'In the details, "a / b / c" is of the seeds of a row in their order, one '
    'for each, "–" of one without; a single value is that of all of them. '
    'Times and memory are means where all seeds ran on one device, otherwise '
    'of each seed as well.',
    '"Mean of 5", of full tasks, is Long Range Arena\'s average over ListOps, '
    'Text, Retrieval, Image and Pathfinder, "mean of 6" that with Path-X too: '
    'of models with a score on each of them, under one protocol. RFC citations '
    'do not stand in for Retrieval.',
    'A run whose settings are not its protocol\'s is in a table of its own, '
    'which names them; seeds, data folders and what only fits a run to a '
    'machine are free. "Modified" beside a commit: what ran is not what is in '
    'it. "Unpublished": others could not check it out when the run was made. '
    'The file of a model may have changed since a record was made: to '
    'repeat a run exactly, check out its commit first.')
GROUPS = {
    'full': ('Full tasks', ''),
    'mini': ('Mini tasks', (
        'Small versions of the tasks for a laptop; not Long Range Arena '
        'scores.')),
    'probe': ('Probes', (
        'Not of Long Range Arena: generated sequences that ask for one ability '
        'each; `data_prep/probes.py` says how. Accuracies are of single tokens '
        'that are asked for a class. Answers within a sequence depend on each '
        'other, so "test examples", intervals and tests count sequences. The '
        'papers that they are from train causal models; here all rows but '
        'those of causal mechanisms, as `lightning`, see both directions. A '
        'recurrence that tracks parity or permutations is not linear or has '
        'negative or complex eigenvalues (Grazzi et al. 2024, arXiv '
        '2411.12537). No mechanism here has one: expect scores near the floor. '
        'A row that is above it by more than chance may still be far from the '
        'task.')),
}
# Task -> what its scores need to be read.
NOTES = {
    'listops': (
        '"Decided at depth d" is of expressions whose value is certain once '
        'what stands inside at most d operators is read: of the 2,000 drawn '
        'for test 382 at depth 1, by the digits next to the outermost '
        'operator, 456 at 2, 301 at 3, 231 at 4, 630 deeper. The floor that '
        'knows nothing but the outermost operator answers 95.8% of the first '
        'kind, 31.8% of the second, 21.9% and less of the others, and rows '
        'near it about as many: whatever else they read, nothing here shows '
        'that it makes more of their answers right.'),
    'pathfinder_mini': (
        'Black pixels are padding in this task, and the first row of pixels is '
        'black in all but one of 1,000 images: the first positions hold no '
        'token. What `attention_sink`, `bigbird`, `duo`, `etc` and '
        '`longformer` do with them is not tried here, and little of what '
        '`star` does with its first block.'),
    'mqar': (
        'A convolution of the protocol joins each token to the three before. '
        'What makes linear attention recall is not measured. `lightning` '
        'differs from `linear_transformer` in four things at once: it is '
        'causal; its features (SiLU) may be negative; it does not divide by a '
        'sum of weights; and it normalises what it reads (RMS). Its decay, '
        '0.4% a token with one head, is hardly one, and it has no gate. '
        '`simpletron` has neither features nor a norm.'),
    'selective_copying': (
        'A place asks for the symbol of its number: a model must count symbols '
        'and fetch by the count. A row between the floor and 100% has learnt a '
        'part of it in the steps of the protocol; whether more steps would '
        'teach it the rest has not been tried.'),
}
PUBLISHED = (
    'Percentages as their sources print them, in no order of merit. Pooling, '
    'heads, vocabularies and budgets differ between protocols, so these are '
    'compared within one protocol only (within `mixed` not even there) and '
    'never ranked with the rows above. FAIL: not learnt. The means are made '
    'here, of the five tasks without Path-X and of all six, where one that was '
    'not learnt counts 50. Secondary: read in another paper\'s table. '
    'Recalled: not read again in the paper.')


def note(board) -> str:
  """What the scores of a `rows.TaskBoard` need to be read, '' for nothing.

  The notes speak of the data of the committed floors.
  """
  return NOTES.get(board.task.name, '') if board.usual else ''
