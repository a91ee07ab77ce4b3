"""Continue a text, one token at a time: `python examples/language_model.py`.

The model is a small GPT-2 of transformers with random weights. It writes nonsense, but the same nonsense as
PyTorch. The program accepts any number of tokens, so the text grows without a compilation for each length.
"""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import shapevm

NEW_TOKENS = 12


class NextToken(torch.nn.Module):
    """Tokens i64[1, length] to the next one, i64[1]."""

    def __init__(self) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=500,
            n_positions=256,
            n_embd=64,
            n_layer=3,
            n_head=4,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
        self.model = GPT2LMHeadModel(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens).logits[:, -1].argmax(-1)


def continued(next_token: object, tokens: list[int]) -> list[int]:
    """Return the tokens, followed by NEW_TOKENS generated ones."""
    for _ in range(NEW_TOKENS):
        tokens = [*tokens, int(next_token(torch.tensor([tokens])))]  # type: ignore[operator]
    return tokens


def main() -> None:
    torch.manual_seed(0)
    model = NextToken().eval()
    length = torch.export.Dim("length", min=1, max=255)
    exe = shapevm.compile(model, (torch.tensor([[1, 2, 3]]),), dynamic_shapes=({1: length},))
    for prompt in ([17], [5, 6, 7, 8]):
        with torch.no_grad():
            wanted = continued(model, prompt)
        found = continued(exe, prompt)
        print(prompt, "->", found[len(prompt) :])
        assert found == wanted


if __name__ == "__main__":
    main()
