"""Control flow that is decided at run time.

`merging` plans the differences between two blocks that are imported apart, and `joining` merges each pair of
differing values. `branches` and `loops` use them for `if` and `while`.
`optionals` and `variants` import an operator once for each case of an argument that may be None or that has
two forms.

To pass another kind of value through branches and loops, add a plan in `merging`; for another kind of branch,
add a file that calls `branches.branch`.
"""
