"""Which way a program goes where only a call decides it.

`regions` are blocks that are imported apart, `merging` plans what differs between two of them, and `joining`
makes one value of each such two. `branches` and `loops` use them for `if` and `while`. `optionals` and
`variants` import an operator once for each case of an argument that may be None or that has two forms.

How another kind of value is handed on by branches and loops is a plan in `merging`; another way to go is a
file that calls `branches.branch`.
"""
