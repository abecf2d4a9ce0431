"""Costs of a config: the loop against the bare step, and memory.

`python -m lra.benchmark --config=configs/simpletron.py:listops_mini` trains
for a while, once as `run_lra.py` does between log points and once calling the
compiled step on one batch that is already there, alternating, and prints
seconds per step of both and their ratio.
"""

import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
from absl import app, flags
from ml_collections import config_flags

from lra import data, prepared, program, result
from lra import main as main_lib
