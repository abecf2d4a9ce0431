"""Looks for races in the compiled GPU kernels, on a machine without a GPU.

The GPU interpreter runs what the kernels say; this runs what the compiler made
of it, scratch memory that it added included. `parse` reads PTX, `run` runs one
block of a kernel, `races` finds accesses to shared memory that no barrier
orders, `compiled` makes the PTX of a program for an H200.

  python -m kernels.tools.ptx --ops linear --widths 64,128
"""
