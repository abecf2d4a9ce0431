"""Mixers beside other people's implementations, on the same weights."""
