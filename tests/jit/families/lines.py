"""What code objects say of lines, checked on kernels: a group of tiles reads and writes its lines alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.abi import CodeObject, resolve
from shapevm.vm.program import Lines

UNTOUCHED = np.float32(-12345)


class Groups:
    """The groups of tiles of a code object that give the same lines."""

    def __init__(self, code: CodeObject, dims: Sequence[int]) -> None:
        self.code, self.dims = code, dims
        self.at = code.work.lines[0].tile
        counts = [-(-self.size(size) // divisor) for size, divisor in code.work.tiles]
        self.n_images, self.of_image = prod(counts[: self.at]), counts[self.at]
        self.panels = prod(counts[self.at + 1 :])

    def size(self, size: object) -> int:
        found = resolve(size, self.dims)  # type: ignore[arg-type]
        assert isinstance(found, int)
        return found

    def part(self, row: Lines, group: int, array: np.ndarray) -> np.ndarray:
        """Return the lines of a buffer that a group takes, as a view."""
        height, divisor = self.size(row.height), self.code.work.tiles[self.at][1]
        total = self.size(self.code.work.tiles[self.at][0])
        first = group % self.of_image * divisor
        last = min(first + divisor, total) - 1
        begin = min(max(first * row.stride - row.low, 0), height)
        end = min(max(last * row.stride - row.low + row.reach, 0), height)
        return array.reshape(self.n_images, height, -1)[group // self.of_image, begin:end]


def check_lines(code: CodeObject, dims: Sequence[int], arrays: Sequence[np.ndarray]) -> int:
    """Check each group of tiles, with NaN wherever it has no business; return how many there were."""
    outputs = {i for i, buffer in enumerate(code.buffers) if buffer.is_output}
    assert outputs <= {row.buffer for row in code.work.lines}
    kernel, groups = Kernel(code), Groups(code, dims)
    wanted = [array.copy() for array in arrays]
    kernel.run(wanted, dims)
    count = groups.n_images * groups.of_image
    for group in range(count):
        given = [array.copy() for array in arrays]
        for row in code.work.lines:
            given[row.buffer] = np.full_like(arrays[row.buffer], np.nan)
            if row.buffer in outputs:
                given[row.buffer][...] = UNTOUCHED
            else:
                groups.part(row, group, given[row.buffer])[...] = groups.part(row, group, arrays[row.buffer])
        kernel.run(given, dims, [(group * groups.panels, (group + 1) * groups.panels)])
        for row in (row for row in code.work.lines if row.buffer in outputs):
            own = groups.part(row, group, given[row.buffer])
            assert own.tobytes() == groups.part(row, group, wanted[row.buffer]).tobytes()
            own[...] = UNTOUCHED
            assert (given[row.buffer] == UNTOUCHED).all()
    return count
