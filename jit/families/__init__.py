"""Kernel families, one folder each: what a kernel computes, its definition, and how it becomes LLVM IR."""
