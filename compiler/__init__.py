"""Compiler: a PyTorch program in, a register-VM program with kernel specs out."""
