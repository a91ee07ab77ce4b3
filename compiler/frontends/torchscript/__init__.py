"""TorchScript: scripted and traced modules and functions become a Graph.

`source` opens a program, `importer` walks its graph and computes at once what does not depend on the input.
`inputs` and `state` are what a call gives and what it leaves behind, `primitives` the nodes of the language
(constants, attributes, tuples, types, objects), `bounds` how much a program may make the importer do.

Three rooms do the rest, and each imports only those after it: `operators` computes, `flow` is what becomes of
values behind branches and loops that only a call decides, `values` says what the walk knows of each value. A
primitive of the language is added here; for anything else, the rooms say what belongs in them.
"""

from .importer import import_script
from .source import load_script, open_script

__all__ = ["import_script", "load_script", "open_script"]
