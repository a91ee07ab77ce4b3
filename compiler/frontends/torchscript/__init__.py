"""TorchScript: scripted and traced modules and functions become a Graph.

`source` opens a program, `importer` walks its graph and evaluates everything that does not depend on the
input; `walk` is its interface for the other files. `inputs` and `state` are a call's arguments and its state,
`primitives` the nodes of the language (constants, attributes, tuples, types, objects), `bounds` the limits
of a program's import.

Three rooms do the rest, and each imports only those after it: `operators` computes, `flow` joins values after
run-time branches and loops, `values` represents values during the walk. A primitive of the language is added
here; for anything else, see the rooms.
"""

from .importer import import_script
from .source import load_script, open_script

__all__ = ["import_script", "load_script", "open_script"]
