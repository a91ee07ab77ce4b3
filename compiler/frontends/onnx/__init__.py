"""ONNX: a model file becomes a Graph, without PyTorch.

`reader` reads and checks a file, `importer` walks its nodes, `operators` has a row for each operator, `folds`
computes what depends on sizes and constants alone.
"""
