"""Progress bars that do not flood a log."""

import functools

import tqdm

progress = functools.partial(tqdm.tqdm, mininterval=0.5)
