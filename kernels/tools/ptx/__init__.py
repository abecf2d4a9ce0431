"""Looks for races in compiled GPU kernels, on a machine without a GPU.

The GPU interpreter runs the source of a kernel. This package runs the compiled
code, including scratch memory that the compiler added. `parse` reads PTX,
`run` runs one block of a kernel, and `compiled` returns the PTX of a program
for an H200. `races` finds accesses to shared memory that no barrier orders.

  python -m kernels.tools.ptx --ops linear --widths 64,128
"""
