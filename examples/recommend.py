"""Recommend films to people who have seen different numbers of them: `python examples/recommend.py`.

The films that a person has seen are a bag of film numbers. All bags are concatenated, and offsets mark their
beginnings. Nothing is padded. The weights are random, in place of trained ones.
"""

from __future__ import annotations

import torch

import shapevm

FILMS, WIDTH = 1000, 24


class Recommender(torch.nn.Module):
    """Bags of films to scores of all films, f32[people, FILMS]."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.nn.EmbeddingBag(FILMS, WIDTH, mode="mean")
        self.mix = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, FILMS)
        )

    def forward(self, films: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """films: i64[views], of all people; offsets: i64[people], the beginning of each bag."""
        return self.mix(self.seen(films, offsets))


def bags(seen: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the model's inputs for the films that each person has seen."""
    counts = torch.tensor([0, *(len(films) for films in seen[:-1])])
    return torch.tensor([film for films in seen for film in films]), counts.cumsum(0)


def main() -> None:
    torch.manual_seed(0)
    model = Recommender().eval()
    views, people = torch.export.Dim("views", min=1, max=100_000), torch.export.Dim("people", min=1, max=1000)
    example = bags([[3, 5], [8], [1, 2, 4]])
    exe = shapevm.compile(model, example, dynamic_shapes=({0: views}, {0: people}))
    for seen in ([[7]], [[1, 2, 3], [], [500, 999, 42, 41]], [list(range(0, 1000, 7)), [11]]):
        scores = exe(*bags(seen))
        torch.testing.assert_close(scores, model(*bags(seen)))
        for films, best in zip(seen, scores.topk(3).indices.tolist(), strict=True):
            print(f"seen {len(films):3}: recommended {best}")


if __name__ == "__main__":
    main()
