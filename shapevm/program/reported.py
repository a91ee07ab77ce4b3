"""The reports of an executable: the interface between programs and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..vm.errors import ArgumentError

if TYPE_CHECKING:
    from ..reports.execution_profile import ExecutionProfile
    from ..reports.explain import Explanation
    from ..reports.subject import Subject


class Reported:
    """The reports of a program, each imported on first use."""

    def metrics(self: Subject, model: str | None = None) -> str:
        """Return all counters as OpenMetrics text, with the label `model` (None: the program's name). Calls
        are timed from the first reading on."""
        from ..reports.metrics import metrics_text

        if model is not None and not isinstance(model, str):
            raise ArgumentError(f"model is {model!r}; give the text of a label")
        return metrics_text(self, self.name if model is None else model)

    def explain(self: Subject, measure: bool = False) -> Explanation:
        """Return the history of every call site with reasons: print it, or take its `text()`, `json()` or
        `html()`.

        `measure`: run the kernels on made-up data to determine the milliseconds that exact code saved.
        """
        from ..reports.explain import explain

        return explain(self, measure)

    def profile(self: Subject, inputs: Any = None, *, calls: int = 10) -> ExecutionProfile:
        """Return a profile of calls: the time by kernel, with its share of the machine's limits.

        `inputs`: the positional arguments in a tuple, or a dict of flat inputs by name; the program is called
        with them `calls` times, after one call that is not timed. Without inputs, a context manager that
        profiles the calls in its block, those of all threads: `with exe.profile() as profile: exe(x)`.
        Print the profile, or take its `to_json()`, `html()`, `to_chrome_trace(path)`.
        """
        from ..reports.execution_profile import profile

        return profile(self, inputs, calls)

    def _repr_html_(self: Subject) -> str:
        from ..reports.inspect import executable_html

        return executable_html(self)
