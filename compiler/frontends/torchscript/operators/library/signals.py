"""Windows of signals, and lines of numbers with run-time length or steps, as TorchScript code."""

from __future__ import annotations

_ANGLES = """
def angles(n: int, periodic: bool, round: float) -> Tensor:
    assert n >= 0, "a window's length is {}; it must be at least 0".format(n)
    parts = n if periodic else n - 1
    return torch.arange(n).to(torch.float64) * (round / float(max(parts, 1)))
"""
_TURN, _HALF = 6.283185307179586, 3.141592653589793
#: The elements of windows by their angles; a window of one element is 1.
_WINDOWS = {
    "hann_window": f"torch.cos(angles(n, periodic, {_TURN})) * -0.5 + 0.5",
    "hamming_window": f"torch.cos(angles(n, periodic, {_TURN})) * -beta + alpha",
    "bartlett_window": "1.0 - torch.abs(angles(n, periodic, 2.0) - 1.0)",
    "blackman_window": f"0.42 - torch.cos(angles(n, periodic, {_TURN})) * 0.5 "
    f"+ torch.cos(angles(n, periodic, {2 * _TURN})) * 0.08",
    "kaiser_window": "torch.special.i0("
    "torch.sqrt(torch.relu(1.0 - (angles(n, periodic, 2.0) - 1.0) ** 2)) * beta) "
    "/ torch.special.i0(torch.zeros([1], dtype=torch.float64) + beta)",
}
_ARGUMENTS = {"window_length": 0, "periodic": True, "alpha": 0.54, "beta": 0.46}
#: Operators that make a tensor -> their arguments, and defaults.
CREATED = {
    **dict.fromkeys(_WINDOWS, _ARGUMENTS),
    "kaiser_window": {**_ARGUMENTS, "beta": 12.0},
    "fft_fftfreq": {"n": 0, "d": 1.0},
    "fft_rfftfreq": {"n": 0, "d": 1.0},
}
SOURCES = {
    **{
        name: f"""{_ANGLES}
def {name}(n: int, periodic: bool, alpha: float, beta: float) -> Tensor:
    made = {formula}
    return made * float(n != 1) + float(n == 1)
"""
        for name, formula in _WINDOWS.items()
    },
    "istft": """
def istft(x: Tensor, n: int, hop: Optional[int], width: Optional[int], window: Optional[Tensor], center: bool,
          normalized: bool, onesided: Optional[bool], length: int, return_complex: bool) -> Tensor:
    whole = torch.istft(x, n, hop, width, window, False, normalized, onesided, None, return_complex)
    start = n // 2 if center else 0
    return torch.constant_pad_nd(whole[..., start:], [0, length]).narrow(-1, 0, length)
""",
    "fft_fftfreq": """
def fft_fftfreq(n: int, d: float) -> Tensor:
    assert n > 0, "fftfreq: n is {}; it must be more than 0".format(n)
    at = torch.arange(n)
    return torch.where(at * 2 < n, at, at - n).to(torch.float64) * (1.0 / (float(n) * d))
""",
    "fft_rfftfreq": """
def fft_rfftfreq(n: int, d: float) -> Tensor:
    assert n > 0, "rfftfreq: n is {}; it must be more than 0".format(n)
    return torch.arange(n // 2 + 1).to(torch.float64) * (1.0 / (float(n) * d))
""",
}
