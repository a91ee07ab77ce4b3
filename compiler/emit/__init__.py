"""Emission: a lowered graph becomes a program of the register VM."""
