"""Lowering: groups of operators become kernel nodes, each of which holds a kernel spec."""
