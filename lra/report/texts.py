"""Texts of the pages beside their tables; code is between backticks."""

TITLE = 'Long Range Arena leaderboard'
MARKS = (
    'Test accuracy in %, mean over seeds, ± half of its 95% interval. '
    'Baseline: the best method without a neural network. `=`: not '
    'significantly better than the baseline; `<`: significantly worse. '
    '**Bold**: not significantly worse than the best row of the task. †: more '
    'than 110% of the Transformer\'s parameters. ‡: some seeds did not '
    'finish. §: on other data than the baseline, or than most rows. The model '
    'that is best on the first task comes first.')
COMPARING = (
    'Scores are means over seeds on the whole test split, with a 95% interval: '
    'Student\'s t over seeds, or Wilson\'s over test examples if there is one '
    'seed.',
    'If at least half of the rows of a table have several seeds, two rows are '
    'compared by a moderated t-test over seeds (limma, Smyth 2004, with a '
    'conservative prior).',
    'If there are too few seeds, they are compared by McNemar\'s exact test on '
    'the test examples that they answer differently.',
    'Holm\'s correction over all pairs of a table holds the probability of any '
    'false difference at 5%.',
    'A rank is the range of places that these tests leave open; the page of a '
    'task gives the count of Tukey\'s HSD beside ours.')
# Column or topic -> its explanation.
READING = {
    'Rank': (
        'Below the rows that are significantly better, above those that are '
        'significantly worse. "No different from places", in the details, '
        'names the rows that do not differ.'),
    '95% interval': (
        'Where the mean of other seeds on these test examples would lie. A '
        'star marks the interval of test examples alone: there is one seed, or '
        'all seeds have the same accuracy. It says nothing about other seeds.'),
    'Above baseline': (
        'Accuracy minus the best baseline, in points. "n.s.": not significant, '
        'by the same tests with Holm\'s correction over the rows of the table. '
        'This test can disagree with the interval: it is paired (more '
        'sensitive) but corrected for testing all rows (more conservative).'),
    'Without answers': (
        'Some records do not say which examples were right ("answers" is "not '
        'kept"). They are compared by Fisher\'s exact test on counts, which '
        'finds less. If rows have several seeds, every pair of seeds must '
        'differ in the same direction.'),
    'Seeds': (
        '"1 of 5": the other four diverged, ran out of memory or were stopped. '
        'In the details, "a / b / c" has a value for each seed, in order. '
        'Times and memory are means if all seeds ran on one device.'),
    'Parameters': (
        'Bold if more than 110% of the Transformer\'s of the same task and '
        'protocol, the limit of Long Range Arena.'),
    'State size': (
        'How many numbers one layer keeps from token to token at the length '
        'of the task: the state of a recurrence, the matrices of linear '
        'attention, the keys and values of softmax attention, in all heads '
        'and directions. On the first page, "a to b" spans the tasks. The '
        'glossary has the rules of counting.'),
    'Steps to 95%': (
        'The first validated step with 95% accuracy on validation, of the '
        'slowest seed.'),
    'Settings changed from the protocol': (
        'Such runs have a table of their own. Seeds, data folders and hardware '
        'settings may change freely.'),
    'Several configurations': (
        'The first page shows the row with the most seeds, then the most '
        'steps, then the best validation accuracy. The test score never '
        'chooses.'),
    'Mean of 5, mean of 6': (
        'Long Range Arena\'s average over ListOps, Text, Retrieval, Image and '
        'Pathfinder, without and with Path-X, under one protocol. RFC '
        'citations do not stand in for Retrieval.'),
    'Published results': (
        'Papers do not report answers to single examples. Both scores count as '
        'independent samples of test examples (Newcombe 1998), theirs as one '
        'run. If the test examples are the same, as those of Text, the '
        'interval is wider than necessary. `configs/protocols.py` names what '
        'a protocol does otherwise than its paper.'),
    'Associative recall and selective copying': (
        'The answers of one sequence depend on each other, so intervals and '
        'tests count sequences.'),
    'Commit': (
        '"Modified": the run used uncommitted code. "Unpublished": others '
        'could not check the commit out when the run was made. To repeat a '
        'run exactly, check out its commit first. "Mixed versions": the seeds '
        'ran different versions of the model\'s file.'),
}
GROUPS = {
    'full': ('Long Range Arena', ''),
    'mini': ('Mini tasks', (
        'Small versions of the tasks for a laptop; these are not Long Range '
        'Arena scores.')),
    'probe': ('Probes', (
        'Generated sequences that ask for one ability each '
        '(`data_prep/probes.py`); not part of Long Range Arena. Accuracy is '
        'over the single tokens that are asked for a class. The papers train '
        'causal models; here all models but the causal ones, such as '
        '`lightning`, see both directions. A recurrence that tracks parity or '
        'permutations is not linear, or has negative or complex eigenvalues '
        '(Grazzi et al. 2024, arXiv 2411.12537). Other models are expected '
        'near the baseline. A row that is significantly better may still be '
        'far from solving the task.')),
}
MECHANISMS = (
    'All mechanisms on the mini tasks and probes, by family. A line in '
    'brackets has runs whose settings differ from the protocol, with their own '
    'values. "a to b" spans the tasks.')
# Task -> a note on how to read its scores.
NOTES = {
    'listops': (
        '"Decided at depth d" is of expressions whose value is certain once '
        'what stands inside at most d operators is read: of the 2,000 drawn '
        'for test 382 at depth 1, by the digits next to the outermost '
        'operator, 456 at 2, 301 at 3, 231 at 4, 630 deeper. The baseline '
        'that knows nothing but the outermost operator answers 95.8% of the '
        'first kind, 31.8% of the second, 21.9% and less of the others, and '
        'rows near it about as many: whatever else they read, nothing here '
        'shows that it makes more of their answers right.'),
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
        'and fetch by the count. A row between the baseline and 100% has '
        'learnt a part of it in the steps of the protocol; whether more steps '
        'would teach it the rest has not been tried.'),
}
PUBLISHED = (
    'Percentages as their sources print them, in no order of merit. Pooling, '
    'heads, vocabularies and budgets differ between protocols, so they compare '
    'within one protocol only (within `mixed` not even there) and are never '
    'ranked with our rows. FAIL: not learnt; it counts 50 in the means, which '
    'are ours. Secondary: read in another paper\'s table. Recalled: not read '
    'again in the paper.')


def note(board) -> str:
  """Returns the note on the scores of a `boards.TaskBoard`, '' for none.

  The notes are about the data of the committed baselines.
  """
  return NOTES.get(board.task.name, '') if board.usual else ''
