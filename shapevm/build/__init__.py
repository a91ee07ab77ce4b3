"""From a model to a program: options, inputs, the stages of compilation, checks at small sizes."""
