"""Functions in TorchScript, each of which is imported in place of an operator or a method.

`functions` has methods of lists, parts of tensors and functions of ints, and `run`, which imports one;
`strings` has methods of strings. The other files are operators with run-time numbers which the composites of
`compiler.ops` and torch's decompositions take as constants only: `windows` of images, `numerics`, `signals`,
and in `arithmetic` all others and `source_of`, which decides when an operator is imported from here.

A function is an entry of `SOURCES` in the file of its subject, under the operator's name.
"""

from .functions import OF_INTS, OF_LISTS, run

__all__ = ["OF_INTS", "OF_LISTS", "run"]
