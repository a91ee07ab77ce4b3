"""The parts of shapevm that PyInstaller does not find by itself.

If torch is installed, the program decides whether to include it: one that only loads artifacts is frozen with
`--exclude-module torch`.
"""

from PyInstaller.utils.hooks import can_import_module, collect_data_files, collect_submodules, copy_metadata

import shapevm

# Public names are imported when they are first used; the C module imports that of cffi.
hiddenimports = ["_cffi_backend", "shapevm.errors"]
hiddenimports += [f"shapevm{module}" for module in shapevm._LAZY.values()]
datas = copy_metadata("shapevm") + collect_data_files("shapevm", subdir="bin")
if can_import_module("llvmlite"):  # keys of kernels depend on its version and on all of the code generator
    hiddenimports += collect_submodules("shapevm.jit")
    datas += copy_metadata("llvmlite")
