from lra.system import machine

machine.skip_tpu()  # the modules here are commands, and import JAX
