"""Texts of the pages beside their tables; code is between backticks."""

TITLE = 'Long Range Arena leaderboard'
MARKS = (
    'The tables show test accuracy in %, averaged over seeds, ± half of its '
    '95% confidence interval. The baseline is the best method without a neural '
    'network. `=`: not significantly better than the baseline. `<`: '
    'significantly worse than the baseline. **Bold**: not significantly worse '
    'than the best row of the task. †: more than 110% of the Transformer\'s '
    'parameters. ‡: some seeds did not finish. §: the data differ from those '
    'of the baseline or of most rows. Models are sorted by their accuracy on '
    'the first task.')
COMPARING = (
    'Each score is the mean over seeds of the accuracy on the whole test '
    'split. Its 95% interval is Student\'s t interval over seeds or, if there '
    'is only one seed, Wilson\'s interval over test examples.',
    'If at least half of the rows of a table have several seeds, a t-test over '
    'seeds compares two rows. It is the moderated t-test of limma (Smyth '
    '2004), with a conservative prior.',
    'If there are too few seeds, McNemar\'s exact test compares two rows on '
    'the test examples that only one of them gets right.',
    'Holm\'s correction over all pairs of rows keeps the probability of any '
    'false difference in a table at 5%.',
    'A rank is a range: it contains all places that these tests leave '
    'possible. For comparison, the page of each task also gives the number of '
    'pairs that differ by Tukey\'s HSD test.')
# Column or topic -> its explanation.
READING = {
    'Rank': (
        'All places that the row may have. Rows that are significantly better '
        'are above it, and rows that are significantly worse are below it. In '
        'the details, "no different from places" lists the places of the rows '
        'that do not differ significantly from it.'),
    '95% interval': (
        'The interval of the mean over seeds, on these test examples. A star '
        'marks an interval over test examples instead: there is only one seed, '
        'or all seeds have the same accuracy. Such an interval says nothing '
        'about other seeds.'),
    'Above baseline': (
        'Accuracy minus that of the best baseline, in percentage points. '
        '"n.s." means not significant, by the same tests with Holm\'s '
        'correction over the rows of the table. This test can disagree with '
        'the interval: it is paired (more sensitive) but corrected for testing '
        'all rows (more conservative).'),
    'Answers': (
        'Whether the records store which test examples were right. Rows whose '
        'answers are "not kept" are compared by Fisher\'s exact test on the '
        'number of right answers, which detects fewer differences. With either '
        'test, rows with several seeds differ only if every pair of seeds '
        'does, in the same direction.'),
    'Seeds': (
        '"1 of 5" means that one of five seeds finished; the others diverged, '
        'ran out of memory or were stopped. In the details, "a / b / c" gives '
        'a value for each seed, in order. Times and memory are means over '
        'seeds if all seeds ran on one device.'),
    'Parameters': (
        'Bold if the model has more than 110% of the parameters of the '
        'Transformer on the same task and protocol. This is the limit of Long '
        'Range Arena.'),
    'State size': (
        'The number of values that one layer keeps from token to token, at the '
        'sequence length of the task. They are the state of a recurrence, the '
        'matrices of linear attention, or the keys and values of softmax '
        'attention. All heads and directions count. On the first page, "a to '
        'b" is the range over tasks. The glossary has the rules of counting.'),
    'Steps to 95%': (
        'The training step of the first validation with an accuracy of at '
        'least 95%, for the slowest seed.'),
    'Agreement with rules': (
        '"As first operator %" is the share of test examples for which the '
        'model gives the same answer as the baseline "first operator".'),
    'Decided at depth': (
        'A ListOps example is decided at depth d if the tokens inside at most '
        'd operators settle its answer, whatever stands deeper.'),
    'Settings changed from the protocol': (
        'Runs that change settings of their protocol are in a separate table. '
        'Seeds, data folders and hardware settings do not count as changes.'),
    'Search': (
        '"Best of 3 by validation": three settings were trained with one seed, '
        'and the validation split chose one. The others were not tested. All '
        'models of a suite choose from the same grid, which the details show '
        '("searched"). Such rows are in a separate table, because a search '
        'gives a model more chances than the settings of the protocol.'),
    'Several configurations': (
        'If a model has several rows on a task, the first page shows only one: '
        'the row with the most seeds. Ties are decided by the number of steps, '
        'then by validation accuracy. The test score never decides.'),
    'Mean of 5, mean of 6': (
        'The average of Long Range Arena, for one model under one protocol. '
        'The mean of 5 covers ListOps, Text, Retrieval, Image and Pathfinder. '
        'The mean of 6 also covers Path-X. RFC citations do not replace '
        'Retrieval.'),
    'Published results': (
        'Papers do not report which test examples were right. So their scores '
        'and ours are compared as independent samples of test examples '
        '(Newcombe 1998). A published score counts as one run. If the test '
        'examples are the same, as those of Text, the interval is wider than '
        'necessary. `configs/protocols/` lists how each protocol differs '
        'from its paper.'),
    'Associative recall and selective copying': (
        'The answers within one sequence depend on each other. So intervals '
        'and tests count sequences instead of answers.'),
    'Commit': (
        '"Modified": the run used uncommitted code. "Unpublished": others '
        'could not check the commit out when the run was made. "Mixed '
        'versions": the seeds ran different versions of the model\'s file. To '
        'repeat a run exactly, check out its commit first.'),
}
GROUPS = {
    'full': ('Long Range Arena', ''),
    'mini': ('Mini tasks', (
        'Mini tasks are small versions of the tasks, for a laptop. Their '
        'scores are not Long Range Arena scores.')),
    'probe': ('Probes', (
        'A probe is a set of generated sequences that tests one ability '
        '(`data_prep/probes/`). Probes are not part of Long Range Arena. The '
        'model predicts a class at some of the tokens, and accuracy is over '
        'these tokens. The papers train causal models. Here only some models '
        'are causal, such as `lightning`; the others see both directions. To '
        'track parity or permutations, a recurrence must be nonlinear or have '
        'negative or complex eigenvalues (Grazzi et al. 2024, arXiv '
        '2411.12537). Expect scores near the baseline from other models. A '
        'significantly better row may still be far from solving the task.')),
}
MECHANISMS = (
    'This table has all mechanisms on the mini tasks and probes, by family. '
    'Brackets name the settings of a run that differ from the protocol. '
    'Bold in such a line compares it with other changed runs only. '
    '"a to b": the least and the largest value over the tasks.')
LONGER = (
    'These rows were also tested on sequences longer than those of training: '
    '1,000 of each length. The table shows scaled accuracy, ± half of its 95% '
    'confidence interval: 0 for guessing a class, 1 for no error. Rows are '
    'sorted by their mean over the longer tests. "40-256": lengths drawn '
    'uniformly from this range. A row is missing if its model cannot read '
    'longer sequences, for example because it has learned positions.')
BESIDE = (
    'Published scaled accuracies beside ours. The published models are larger '
    'and were trained for far more steps (100,000 with 1,024 sequences each, '
    'by Grazzi et al.), at lengths of 3 to 40.')
# Task -> a note on how to read its scores.
NOTES = {
    'listops': (
        '"Decided at depth d" means that the tokens inside at most d operators '
        'make the value of the expression certain. At depth 1, these are the '
        'digits next to the outermost operator. Of the 2,000 test examples, '
        '382 at depth 1 are decided, 456 at 2, 301 at 3, 231 at 4, and 630 '
        'deeper. The baseline reads only the outermost operator. '
        'It answers 95.8% of the first group correctly, 31.8% of the second, '
        '21.9% and less of the others. Rows near the baseline have about the '
        'same accuracies. So nothing here shows that these models gain from '
        'reading more than the outermost operator.'),
    'pathfinder_mini': (
        'Black pixels are padding in this task, and the first row of pixels is '
        'black in all but one of 1,000 images. So the first positions hold no '
        'token. `attention_sink`, `bigbird`, `duo`, `etc` and `longformer` '
        'treat the first tokens specially, which this task does not test. The '
        'special first block of `star` has few tokens here.'),
    'mqar': (
        'A convolution before each mixer combines each token with the three '
        'before it. We have not measured why `lightning` recalls more than '
        '`linear_transformer`. They differ in four ways. `lightning` is '
        'causal, and its features (SiLU) may be negative. It does not divide '
        'by a sum of weights, and it normalises the outputs of the heads (RMS '
        'norm). Its decay is only 0.4% per token with one head, and it has no '
        'gate. `simpletron` has neither features nor a norm.'),
    'selective_copying': (
        'A sequence has symbols among noise, and as many answer positions at '
        'the end. The n-th answer is the n-th symbol, so a model must count '
        'symbols and find one by its number. A row between the baseline and '
        '100% has learnt a part of this. We have not tried whether it learns '
        'the rest in more steps.'),
}
PUBLISHED = (
    'These are accuracies in %, as printed in their sources. Rows are not '
    'sorted by score. Compare only rows of one protocol, since pooling, heads, '
    'vocabularies and training budgets differ between protocols. Under '
    '`mixed`, even these differ between rows. Published results are never '
    'ranked with our rows. FAIL: the model did not learn the task; this counts '
    'as 50 in the means. We computed the means. Secondary: the number is from '
    'a table in another paper. Recalled: the number is from memory and was not '
    'checked again in the paper.')


def note(board) -> str:
  """Returns the note on the scores of a `boards.TaskBoard`, '' for none.

  The notes are about the data of the committed baselines.
  """
  return NOTES.get(board.task.name, '') if board.usual else ''
