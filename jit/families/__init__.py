"""Kernel families, one folder each: how a kind of loop nest becomes LLVM IR."""
