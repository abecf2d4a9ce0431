"""Looks for races in compiled GPU kernels, on a machine without a GPU.

This package runs the compiled code, with scratch memory that the compiler
added. `parse` reads PTX, `run` runs one block of a kernel, `compiled` returns
the PTX of a program for an H200, and `races` finds accesses to shared memory
that no barrier orders.

  python -m kernels.tools.ptx --ops linear --widths 64,128
"""
