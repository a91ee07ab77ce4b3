"""Kernel families, one folder each: the spec, its definition, and the generator of LLVM IR."""
