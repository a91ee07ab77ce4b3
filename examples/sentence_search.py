"""Find the sentence nearest in meaning to a question: `python examples/sentence_search.py [QUESTION]`.

Every sentence is encoded at its own length, without padding; the encoder is all-MiniLM-L6-v2 with its real
weights.
"""

from __future__ import annotations

import sys

import numpy as np
from encoder import SentenceEncoder, dynamic_shapes, example_inputs, tokenizer

import shapevm

SENTENCES = (
    "The train to the airport leaves every ten minutes from platform four.",
    "Breakfast is served until half past ten.",
    "You can reset your password on the account page.",
    "Dogs must be kept on a lead.",
    "The museum is closed on Mondays, and on the first of January.",
)


def main() -> None:
    question = " ".join(sys.argv[1:]) or "How do I get to my flight?"
    words = tokenizer()
    exe = shapevm.compile(SentenceEncoder(), kwargs=example_inputs(), dynamic_shapes=dynamic_shapes())

    def embed(text: str) -> np.ndarray:
        found = words(text, return_tensors="np")
        inputs = {name: found[name] for name in ("input_ids", "attention_mask")}
        (vector,) = exe.run(inputs).values()
        return vector[0]

    vectors = np.stack([embed(text) for text in SENTENCES])
    scores = vectors @ embed(question)
    print(question)
    for i in np.argsort(-scores):
        print(f"{scores[i]:6.2f}  {SENTENCES[i]}")


if __name__ == "__main__":
    main()
