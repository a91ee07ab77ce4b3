"""Importers: one per source format, the only modules that may import torch."""
