"""Values of a program during import, and their conversion to values of the graph.

`values` has a class for each kind of value that a program can change or that is known only at run time,
`scalars` Python's operators on numbers and strings, `tensors` the memory that tensors share. `elements` are
the elements of lists of run-time length, `nested` lists in such lists, `columns` those among a call's
arguments and results. `regions` are blocks that are imported apart; their changes of values are undone at
their end.

A new kind of value is a class in `values`; a separate file holds its representation in the graph. Branches
and tensor computations belong in `flow` or `operators`.
"""
