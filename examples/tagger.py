"""Train an LSTM that tags every letter of a word, and run it at any length: `python examples/tagger.py`.

The task: a letter's tag is 1 from the first vowel of the word on. Training runs eagerly; the trained module
is compiled once, for any number of words of any length.
"""

from __future__ import annotations

import torch

import shapevm

WORDS = ("strengths", "rhythm", "aeroplane", "crystal", "my")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Tagger(torch.nn.Module):
    """Letters i64[words, length] to scores f32[words, length, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(26, 16)
        self.lstm = torch.nn.LSTM(16, 32, batch_first=True)
        self.head = torch.nn.Linear(32, 2)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(letters))[0])


def tags(letters: torch.Tensor) -> torch.Tensor:
    """Return the right tags."""
    vowels = torch.isin(letters, torch.tensor([LETTERS.index(c) for c in "aeiou"]))
    return (vowels.cumsum(1) > 0).long()


def main() -> None:
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(150):
        letters = torch.randint(0, 26, (32, 3 + step % 9))
        loss = torch.nn.functional.cross_entropy(model(letters).flatten(0, 1), tags(letters).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words, length = (torch.export.Dim(name, min=1, max=64) for name in ("words", "length"))
    exe = shapevm.compile(model.eval(), (letters,), dynamic_shapes=({0: words, 1: length},))
    for word in WORDS:
        letters = torch.tensor([[LETTERS.index(c) for c in word]])
        print(f"{word:10}", "".join(map(str, exe(letters).argmax(-1)[0].tolist())))
        torch.testing.assert_close(exe(letters), model(letters))


if __name__ == "__main__":
    main()
