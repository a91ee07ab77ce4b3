"""What is known of a program's values while it is imported, and how they become values of the graph.

`values` has a class for each kind of value that a program can change or that only a call tells, `scalars`
Python's operators on numbers and strings, `tensors` the memory that tensors share. `elements` are what lists
of unknown length hold, `nested` lists in such lists, `columns` those among a call's arguments and results.

A new kind of value is a class in `values`; a file of its own holds what the graph has in its place. What
takes a branch or computes with tensors belongs in `flow` or `operators`.
"""
