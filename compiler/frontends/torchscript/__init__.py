"""TorchScript: scripted and traced modules and functions become a Graph.

`source` opens a program, `importer` walks its graph and computes at once what does not depend on the input;
`values` says what the walk knows of each value, `primitives`, `scalars`, `containers` and `tensors` what
operators do with them, `merging` and `control` what becomes of them behind branches and loops that only a
call decides.
"""

from .importer import import_script
from .source import load_script, open_script

__all__ = ["import_script", "load_script", "open_script"]
