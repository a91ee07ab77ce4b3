"""Tests keep compiled kernels in a folder of their own, never in the user's cache; a kernel that cannot be
compiled fails the test that asked for it, also where generic code answers in its place."""

import os
import random
import signal
import sys
from collections import Counter

import pytest
from shapevm.vm.machine import Machine

from .drawing import left_out
from .fenced import fence_numpy, is_fence_loaded
from .quick_export import keep_what_torch_recomputes

AGAIN = ("renamed", "auto", "small", "closed")  # the forms of tests/again.py, which imports torch


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, help="of what tests draw anew in every run")
    parser.addoption(
        "--again", choices=(*AGAIN, "all"), help="compile each program once more: see tests/again.py"
    )
    parser.addoption(
        "--drawn", type=float, default=0.25, help="share of the tests marked `drawn` that are run; 1: all"
    )
    parser.addoption(
        "--slow", type=float, default=1.0, help="share of the cases of tests in tests/slow.txt that are run"
    )
    parser.addoption(
        "--sample", type=float, default=1.0, help="share of all tests that are run, drawn as well"
    )
    parser.addoption("--archives", type=int, default=200, help="how many mutated TorchScript files are read")
    parser.addoption("--all-damages", action="store_true", help="flip every bit, cut files at every length")


def pytest_configure(config):
    """Draw one seed for all processes of a run. Let Ctrl-C interrupt it and what it starts, also where the
    shell that started it in the background ignores the signal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    given = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    config.option.seed = random.randrange(10**6) if given is None else given
    if is_fence_loaded():
        fence_numpy()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config):
    return (
        f"seed of what tests draw: --seed {config.option.seed}; share of marked tests: {config.option.drawn}"
    )


SECONDS = Counter()  # of each file's tests


def pytest_runtest_logreport(report):
    """Name a failed test at once, so that the log of a run that is cut off tells what failed."""
    SECONDS[report.location[0]] += report.duration
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        *lines, place = report.longreprtext.splitlines() or [""]
        said = [line for line in lines if line.startswith("E  ")]
        print(f"\nFAILED {report.nodeid}: {place}", *said[:25], sep="\n", flush=True)


def pytest_terminal_summary(terminalreporter):
    """Print where a long run's time went."""
    if SECONDS.total() > 60:
        terminalreporter.section("slowest files: seconds of all workers")
        for path, seconds in SECONDS.most_common(25):
            terminalreporter.line(f"{seconds:7.0f} {seconds / SECONDS.total():4.0%} {path}")
        terminalreporter.line(f"{SECONDS.total():7.0f} in all")


def pytest_collection_modifyitems(config, items):
    """Leave out what `tests/drawing.py` draws by the options."""
    if out := left_out(items, config.option):
        config.hook.pytest_deselected(items=out)
        gone = set(out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    """Point the disk cache, also that of processes which tests start, at a folder that is fresh in this run
    and that the run's workers share."""
    before = os.environ.get("SHAPEVM_CACHE_DIR")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ["SHAPEVM_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["SHAPEVM_CACHE_DIR"]
    else:
        os.environ["SHAPEVM_CACHE_DIR"] = before


@pytest.fixture(scope="session", autouse=True)
def quick_export():
    """Make exporting quick where tests have imported torch."""
    if "torch" in sys.modules:
        keep_what_torch_recomputes()


@pytest.fixture(autouse=True)
def no_failed_kernels(request, monkeypatch):
    """Fail a test during which a call site went to state `failed`, unless it is marked `failing_kernels`."""
    failures = []
    compile_failed = Machine.compile_failed

    def noted(machine, kernel, dims, message):
        failures.append(f"kernel {machine.kernels[kernel].label!r} at {tuple(dims)}: {message}")
        compile_failed(machine, kernel, dims, message)

    monkeypatch.setattr(Machine, "compile_failed", noted)
    yield
    if failures and request.node.get_closest_marker("failing_kernels") is None:
        pytest.fail("kernels could not be compiled:\n" + "\n".join(failures))


@pytest.fixture(scope="session")
def recorder(request):
    """Record what tests compile, for `--again`."""
    if request.config.option.again is None:
        yield None
        return
    import shapevm

    from .again import Recorder

    compile = shapevm.compile
    shapevm.compile = Recorder(compile)
    yield shapevm.compile
    print(f"\nresults of other forms compared: {dict(shapevm.compile.compared)}")
    shapevm.compile = compile


@pytest.fixture(autouse=True)
def compiled_again(request, recorder):
    """With `--again`, compile what the test compiled in other forms and compare these with eager."""
    yield
    if recorder is None:
        return
    from .again import forms_of, problems

    calls, recorder.calls[:] = list(recorder.calls), []
    if request.node.get_closest_marker("as_given"):
        return
    forms = forms_of(request.config.option.again)
    found = [text for call in calls for form in forms for text in problems(call, form, recorder.compared)]
    if found:
        pytest.fail("other forms of the test's programs differ:\n" + "\n".join(found))
