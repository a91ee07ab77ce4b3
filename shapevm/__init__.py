"""shapevm: compile a PyTorch program once, run it at any shape.

The packages `shapevm.compiler`, `shapevm.jit` and `shapevm.vm` live in the
top-level folders of the same names; the build maps them into this package.
"""

__version__ = "0.1.0"
