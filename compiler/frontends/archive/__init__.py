"""Files of `torch.jit.save`, read without torch and without running anything of theirs.

`container` reads the zip, `records` the values of its pickles, `tensors` the arrays, `nesting` and `code` the
source text. All four treat the file as hostile: anything that PyTorch would not write raises ArchiveError.
"""

from ...ir.errors import ArchiveError
from .code import Class, Code
from .reader import Archive, read_archive
from .records import Device, Record
from .tensors import StoredTensor

__all__ = ["Archive", "ArchiveError", "Class", "Code", "Device", "Record", "StoredTensor", "read_archive"]
