"""mLSTM (arXiv 2405.04517): xLSTM's matrix memory with exponential gates."""

from lra.configs import base

get_config = base.of('mlstm')
