"""The command line `shapevm`."""
