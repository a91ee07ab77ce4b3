"""Calibration: samples that determine the activation ranges of a quantised program."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.rounding import Activation
from ..vm.errors import ArgumentError, FileError

if TYPE_CHECKING:
    from ..program.executable import Executable

N_RESULTS = 3  # of an activation: `quantise_activations.observe`


def read_sample(path: str) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name. Raises FileError if it cannot be read or is not such a
    file."""
    try:
        with np.load(Path(path), allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except (ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ArgumentError(f"calibrate: {path} is no .npz file with arrays by name: {error}") from None


def observe_samples(
    exe: Executable, samples: Sequence[Any], n_found: int, notify: Callable[[int, int], None]
) -> list[Activation]:
    """Return the samples' observations of each of `n_found` activations of a program that returns these after
    its own results. Raises ArgumentError for a sample that does not match its arguments, or has no
    elements."""
    total: list[Activation] = []
    for number, sample in enumerate(samples):
        notify(number, len(samples))
        results = exe.run_flat(exe.machine.call, _flat(exe, number, sample))
        end = len(exe.outputs)
        arrays = [np.asarray(value, np.float64) for value in results[end - N_RESULTS * n_found : end]]
        if not all(np.isfinite(array).all() for array in arrays):
            raise ArgumentError(f"calibrate: sample {number} has activations that are not finite, or none")
        found = [Activation(*arrays[i : i + N_RESULTS]) for i in range(0, len(arrays), N_RESULTS)]
        share = 1 / (number + 1)
        total = [a.joined(b, share) for a, b in zip(total, found, strict=True)] if total else found
    return total


def _flat(exe: Executable, number: int, sample: Any) -> Sequence[Any]:
    try:
        return exe.flat((), sample) if isinstance(sample, Mapping) else exe.flat(tuple(sample), {})
    except ArgumentError as error:
        raise ArgumentError(f"calibrate: sample {number}: {error}") from None
