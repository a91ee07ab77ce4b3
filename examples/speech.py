"""Find where somebody speaks: `python examples/speech.py`.

The model is Silero VAD as its authors ship it: a TorchScript file with branches, and with state that it keeps
between chunks (package silero-vad: `pip install --no-deps silero-vad`). The sound is synthetic:
silence, a voice-like hum with formants, silence.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

import shapevm

RATE, CHUNK = 16_000, 512


def model_path() -> Path:
    """Return the model's file."""
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the model is not installed: pip install --no-deps silero-vad")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.jit"


def sound() -> torch.Tensor:
    """Return three seconds: silence, a hum whose loudness changes like a voice, silence."""
    t = torch.arange(RATE) / RATE
    pitch = 2 * torch.pi * (120 * t + 3 * torch.sin(2 * torch.pi * 3 * t))
    hum = sum(torch.sin(n * pitch) * (1 / n + 0.6 * (n in (5, 6, 10, 11))) for n in range(1, 30))
    syllables = torch.sin(2 * torch.pi * 4 * t).clamp(min=0) ** 0.5
    noise = 0.001 * torch.randn(3 * RATE)
    noise[RATE : 2 * RATE] += 0.1 * hum * syllables
    return noise


def main() -> None:
    torch.manual_seed(0)
    chunks = sound()[: 3 * RATE // CHUNK * CHUNK].reshape(-1, 1, CHUNK)
    eager = torch.jit.load(model_path())
    exe = shapevm.compile(str(model_path()), args=(chunks[0], RATE))
    found = torch.cat([exe(chunk, RATE) for chunk in chunks]).flatten()
    eager.reset_states()
    with torch.no_grad():
        wanted = torch.cat([eager(chunk, RATE) for chunk in chunks]).flatten()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)
    for second, part in enumerate(found.split(RATE // CHUNK)):
        bar = "".join(" .:-=+*#"[min(int(p * 8), 7)] for p in part.tolist())
        print(f"second {second}: |{bar}|")


if __name__ == "__main__":
    main()
