"""The server of `shapevm serve`: the Open Inference Protocol for any program; embeddings and ranking for
texts.

A request is read by the function of its row in the table of routes (`protocols`), which checks it and returns
`Work`: items for a batcher, and a function from their results to the answer. The application admits requests,
passes their items to a batcher, and stops them if the client leaves, the deadline passes or the server ends.
"""
