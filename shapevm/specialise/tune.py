"""`shapevm tune`: the fastest schedule of each kernel at the sizes of a profile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calls.profiles import Profile, Sizes
from ..vm.program import KernelObject, Program
from ..vm.sizes import launches
from .bake import check_calls
from .cost_model import own_generic

if TYPE_CHECKING:
    from ..jit.execute import Kernel
    from ..jit.spec import KernelSpec
    from ..jit.store import KernelStore

MEASURE_SECONDS = 0.01  # of each run of a schedule
N_TURNS = 3
WORTH = 0.98  # a schedule is chosen if it takes at most this share of the default's time

Task = tuple[int, Sizes]
Notify = Callable[[int, int, str], None]


@dataclass
class Tuned:
    """The measurements: by kernel and dims the schedule and its share of the default's time; the tuned code;
    how many kernels at sizes there were to measure."""

    total: int
    found: dict[Task, tuple[str, float]] = field(default_factory=dict)
    objects: dict[Task, KernelObject] = field(default_factory=dict)

    def program(self, program: Program) -> Program:
        """Return the program with the code whose schedule is not the generator's choice."""
        kernels = list(program.kernels)
        for (index, dims), o in self.objects.items():
            rest = tuple(x for x in kernels[index].objects if (x.target, x.key) != (o.target, dims))
            kernels[index] = replace(kernels[index], objects=(*rest, o))
        return replace(program, kernels=tuple(kernels))

    def data(self) -> dict[str, Any]:
        """Return the outcome as data."""
        changed = [
            {"kernel": kernel, "dims": list(dims), "schedule": name, "share": share}
            for (kernel, dims), (name, share) in self.found.items()
            if (kernel, dims) in self.objects
        ]
        return {"kernels": self.total, "measured": len(self.found), "changed": changed}

    def text(self) -> str:
        """Return the outcome in a few lines."""
        lines = [
            f"{len(self.found)} of {self.total} kernels at sizes measured, {len(self.objects)} have another "
            "schedule now"
        ]
        for (kernel, dims), (name, share) in self.found.items():
            if (kernel, dims) in self.objects:
                lines.append(f"k{kernel} {list(dims)}: {name}, {share:.2f} of the time before")
        return "\n".join(lines)


def tasks_of(program: Program, profile: Profile, store: KernelStore) -> dict[Task, KernelSpec]:
    """Return the kernels with several schedules, with their specs, the most time-consuming in the profile
    first."""
    from ..jit.compiler import target_for
    from ..jit.spec_reader import from_json
    from ..jit.tuning import schedules_of
    from ..vm.work import work_of

    specs = [from_json(kernel.spec) for kernel in program.kernels]
    targets = [target_for(spec, store.target) for spec in specs]
    launched: Counter[Task] = Counter()
    for values, calls in profile.sizes.items():
        for kernel, dims in launches(program, dict(zip(profile.symbols, values, strict=True))):
            launched[kernel, tuple(dims)] += calls.count
    work: Counter[Task] = Counter()
    for (kernel, sizes), count in launched.items():
        if len(schedules_of(specs[kernel], sizes, targets[kernel])) > 1:
            cost = work_of(own_generic(program.kernels[kernel].objects))
            work[kernel, sizes] = count * cost(sizes)
    return {task: specs[task[0]] for task, _ in work.most_common()}


def tune(
    program: Program, profile: Profile, store: KernelStore, seconds: float, notify: Notify = lambda *_: None
) -> Tuned:
    """Measure for `seconds`, or until KeyboardInterrupt; each measurement is stored in the tuning database at
    once. `notify` gets the number done, the total, and the next task.

    Raises ArgumentError for a profile of another program.
    """
    check_calls(program, profile)
    tasks = tasks_of(program, profile, store)
    tuned, end = Tuned(len(tasks)), time.monotonic() + seconds
    try:
        for done, ((kernel, dims), spec) in enumerate(tasks.items()):
            if time.monotonic() >= end:
                break
            notify(done, len(tasks), f"k{kernel} {program.kernels[kernel].label} {list(dims)}")
            name, share, o = measured(store, spec, dims)
            tuned.found[kernel, dims] = name, share
            if share < 1:
                tuned.objects[kernel, dims] = o
            if store.tuning is not None:
                store.tuning.put(spec, dims, o.target, name)
    except KeyboardInterrupt:
        pass
    return tuned


def measured(store: KernelStore, spec: KernelSpec, dims: Sizes) -> tuple[str, float, KernelObject]:
    """Return the fastest schedule of a kernel, its share of the time of the generator's choice, its code.

    A schedule whose results have other bits is a defect: it is never taken.
    """
    from ..jit.compiler import compile_kernel, target_for
    from ..jit.execute import Kernel
    from ..jit.measure.objects import made_up
    from ..jit.tuning import schedules_of
    from ..vm.artifact import parse_object

    target = target_for(spec, store.target)
    default = compile_kernel(spec, dims, target)
    names = [name for name in schedules_of(spec, dims, target) if name != default.schedule_name]
    objects: dict[str, KernelObject] = {default.schedule_name: default}
    objects |= {name: parse_object(store.record(spec, dims, target, name)) for name in names}
    kernels = {name: Kernel(o) for name, o in objects.items()}
    buffers = made_up(kernels[default.schedule_name], dims)
    results = {}
    for name, kernel in kernels.items():
        kernel.run(buffers, dims)
        outputs = [a for a, b in zip(buffers, kernel.code.buffers, strict=True) if b.is_output]
        results[name] = [a.tobytes() for a in outputs]
        for a in outputs:
            a.view(np.uint8).fill(0)
    same = {name: k for name, k in kernels.items() if results[name] == results[default.schedule_name]}
    times = _times(same, buffers, dims)
    best = min(times, key=times.__getitem__)
    if times[best] > WORTH * times[default.schedule_name]:
        best = default.schedule_name
    return best, min(1.0, times[best] / times[default.schedule_name]), objects[best]


def _times(kernels: Mapping[str, Kernel], buffers: list[np.ndarray], dims: Sizes) -> dict[str, int]:
    """Return the nanoseconds of each, measured in turn."""
    turns = [
        {name: kernel.least_ns(buffers, dims, MEASURE_SECONDS) for name, kernel in kernels.items()}
        for _ in range(N_TURNS)
    ]
    return {name: min(turn[name] for turn in turns) for name in kernels}
