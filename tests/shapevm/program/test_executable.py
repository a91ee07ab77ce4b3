"""Executables: saved and loaded, closed and collected, counted, shared by threads and processes."""

import gc
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from shapevm.vm import native
from torch.export import Dim

import shapevm

N = Dim("n", min=0, max=5000)


def work(self, x):
    return torch.softmax(x, -1) @ x.transpose(0, 1), x.exp().sum(-1)


def X(n: int) -> torch.Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(n))


def bits(results) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in results]


@pytest.fixture(scope="module")
def saved(module, tmp_path_factory):
    """The artifact of `work`, without exact kernels."""
    path = tmp_path_factory.mktemp("artifact") / "work.svm"
    with shapevm.compile(module(work), (X(3),), dynamic_shapes={"x": {0: N}}, strategy="generic") as exe:
        exe.save(path)
    return path


def run_python(
    code: str, *args: object, timeout: float = 600, **variables: str
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | variables,
        check=False,
    )


# Strategies -----------------------------------------------------------------------------------------


def test_strategies_give_equal_bits(saved):
    exes = [shapevm.load(saved, strategy=strategy) for strategy in ("generic", "jit", "auto")]
    for n in (1, 2, 3, 16, 17, 100, 0):
        results = []
        for exe in exes:
            results += [bits(exe(X(n))) for _ in range(4)]
            exe.wait_until_specialised()
            results.append(bits(exe(X(n))))
        assert all(result == results[0] for result in results)
    generic, jit, auto = (exe.stats() for exe in exes)
    assert generic.tier() == "generic" and generic.compiled == generic.from_cache == 0
    assert jit.tier() == auto.tier() == "exact"
    for exe in exes:
        exe.close()


def test_the_strategy_is_the_settings(saved):
    with shapevm.settings.scope(strategy="jit"), shapevm.load(saved) as exe:
        exe(X(5))
        assert exe.stats().tier() == "exact"
    with shapevm.settings.scope(strategy="generic"), shapevm.load(saved) as exe:
        for _ in range(5):
            exe(X(5))
        assert exe.stats().tier() == "generic"
    with pytest.raises(
        shapevm.ArgumentError, match="strategy 'fast' is unknown; known are auto, jit, bucket, generic"
    ):
        shapevm.load(saved, strategy="fast")


def test_auto_specialises_what_is_hot(saved):
    with shapevm.settings.scope(hot_calls=3), shapevm.load(saved, strategy="auto") as exe:
        for calls in range(1, 3):
            exe(X(21))
            exe.wait_until_specialised()
            assert exe.stats().tier() == "generic", calls
        exe(X(21))
        exe(X(21))
        assert exe.wait_until_specialised()
        assert exe.stats().tier() == "exact"
        exe(X(22))
        assert exe.stats().tier().startswith("exact ")  # some of both


# Statistics -----------------------------------------------------------------------------------------


def test_stats_count(saved):
    with shapevm.load(saved, strategy="generic") as exe:
        assert exe.stats().entries == () and exe.stats().calls == 0
        for n in (3, 3, 4, 3):
            exe(X(n))
        stats = exe.stats()
        assert (stats.calls, stats.plans, stats.replays) == (4, 2, 2)
        n_kernels = len(exe.machine.kernels)
        assert len(stats.entries) == 2 * n_kernels
        assert {entry.dims for _, entry in stats.entries} == {(3,), (4,)}


def test_entries_are_bounded(module):
    """A program with many kernels at ever new sizes keeps entries of some of them only."""

    def many(self, x):
        flags = (x > 0).sum().item() % 2  # no plans, which keep their entries
        return [torch.cumsum(x + number + flags, 0) for number in range(8)]

    given = torch.randn(5)
    with shapevm.compile(module(many), (given,), dynamic_shapes={"x": {0: N}}, strategy="generic") as exe:
        for n in range(3000):
            exe(np.zeros(n, np.float32))
        entries = exe.stats().entries
        n_kernels = len({kernel for kernel, _ in entries})
        assert n_kernels >= 8 and len(entries) <= 2048 * n_kernels


def test_since_tells_what_ran(saved):
    with shapevm.load(saved, strategy="generic") as exe:
        exe(X(3))
        before = exe.stats()
        assert exe.stats().since(before).entries == () and exe.stats().since(before).calls == 0
        exe(X(4))
        new = exe.stats().since(before)
        assert new.calls == 1 and {entry.dims for _, entry in new.entries} == {(4,)}
        before = exe.stats()
        exe(X(3))
        again = exe.stats().since(before)
        assert again.replays == 1 and {entry.dims for _, entry in again.entries} == {(3,)}


def test_exact_kernels_asked_for_are_in_the_artifact(module, tmp_path):
    sizes = [{"n": 5}, {"n": 6}]
    with shapevm.compile(
        module(work), (X(3),), dynamic_shapes={"x": {0: N}}, options=shapevm.Options(sizes=sizes)
    ) as exe:
        exe.save(tmp_path / "sized.svm")
    with shapevm.load(tmp_path / "sized.svm", strategy="auto") as exe:
        for n in (5, 6):
            exe(X(n))
        assert exe.stats().tier() == "exact" and exe.stats().compiled == exe.stats().from_cache == 0
        exe(X(7))
        assert exe.stats().tier() != "exact"


def test_a_program_that_never_ran_has_no_tier(saved):
    with shapevm.load(saved, strategy="generic") as exe:
        assert exe.stats().tier() == "none"
        exe(X(3))
        assert exe.stats().tier() == "generic"


def test_a_cache_that_cannot_be_used_is_counted(saved, tmp_path):
    (tmp_path / "file").write_text("")
    with (
        shapevm.settings.scope(cache_dir=str(tmp_path / "file" / "kernels")),
        shapevm.load(saved, strategy="jit") as exe,
    ):
        exe(X(3))
        failures = exe.stats().cache_failures
        assert (
            failures > 0
            and f'shapevm_cache_failures_total{{model="{exe.name}"}} {failures}\n' in exe.metrics()
        )


def test_summary_and_repr(saved):
    exe = shapevm.load(saved)
    kernels = len(exe.machine.kernels)
    assert exe.summary() == f"{kernels} kernels for n 0..5000"
    assert repr(exe) == f"<shapevm.Executable: {kernels} kernels for n 0..5000>"
    exe.close()
    assert repr(exe) == "<shapevm.Executable, closed>"


# The disk cache -------------------------------------------------------------------------------------

COMPILE = """
    import sys, torch, shapevm
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.tanh(x).sum(-1) * 3.25
    n = torch.export.Dim("n", min=0)
    exe = shapevm.compile(Model(), (torch.ones(3, 8),), dynamic_shapes={"x": {0: n}}, strategy="jit")
    for n in (3, 4):
        exe(torch.ones(n, 8))
    stats = exe.stats()
    print(stats.compiled, stats.from_cache)
"""


def test_a_second_process_compiles_nothing(tmp_path):
    first, second = (run_python(COMPILE, SHAPEVM_CACHE_DIR=str(tmp_path)) for _ in range(2))
    compiled, from_cache = map(int, first.stdout.split())
    assert compiled >= 3 and from_cache == 0
    assert second.stdout.split() == ["0", str(compiled)]
    entries = list(tmp_path.glob("??/*"))  # the cache's secret lies beside them
    assert len(entries) >= compiled  # parts of kernels lie there too
    for path in entries:  # what is damaged is compiled again, what is gone too
        path.write_bytes(path.read_bytes()[:-1])
    entries[0].unlink()
    assert run_python(COMPILE, SHAPEVM_CACHE_DIR=str(tmp_path)).stdout.split() == [str(compiled), "0"]


@pytest.mark.parametrize("variables", [{"SHAPEVM_CACHE": "0"}, {"SHAPEVM_CACHE_DIR": "/proc/no/such/folder"}])
def test_without_a_cache(variables):
    done = run_python(COMPILE, **variables)
    assert done.returncode == 0 and done.stdout.split()[1] == "0", done.stderr


# Files ----------------------------------------------------------------------------------------------


def test_saving_is_all_or_nothing(saved, tmp_path):
    with shapevm.load(saved) as exe:
        target = tmp_path / "copy.svm"
        target.write_text("what was there before")
        exe.save(target)
        assert target.read_bytes() == saved.read_bytes()
        exe.save(str(saved))  # over itself
        assert target.read_bytes() == saved.read_bytes()
        for place in (tmp_path / "no" / "folder.svm", tmp_path):
            with pytest.raises(OSError, match="cannot be written"):
                exe.save(place)
        assert os.listdir(tmp_path) == ["copy.svm"]
        umask = os.umask(0o027)
        try:
            exe.save(tmp_path / "new.svm")
            target.chmod(0o600)
            exe.save(target)  # keeps the mode of the file that was there
        finally:
            os.umask(umask)
        assert [path.stat().st_mode & 0o777 for path in (tmp_path / "new.svm", target)] == [0o640, 0o600]


def test_what_was_loaded_is_saved_even_when_the_file_has_changed(saved, tmp_path):
    original = tmp_path / "model.svm"
    original.write_bytes(saved.read_bytes())
    with shapevm.load(original) as exe:
        original.unlink()
        original.write_text("another file")
        exe.save(tmp_path / "copy.svm")
        assert bits(exe(X(3))) == bits(shapevm.load(tmp_path / "copy.svm")(X(3)))
    exe.save(tmp_path / "closed.svm")
    assert (tmp_path / "closed.svm").read_bytes() == saved.read_bytes()


def test_compiling_leaves_no_files_and_no_descriptors(tmp_path):
    """In a process of its own, where no other test's programs, threads and processes come and go."""
    done = run_python(
        """
        import gc, os, sys, torch, shapevm

        def descriptors():
            gc.collect()
            found = set()
            for name in os.listdir("/proc/self/fd"):
                try:
                    found.add((name, os.readlink(f"/proc/self/fd/{name}")))
                except OSError:  # that of the folder
                    pass
            return found

        def compiled():
            return shapevm.compile(torch.nn.Linear(8, 4), (torch.ones(3, 8),), strategy="generic")

        compiled().close()
        before = descriptors()
        exe = compiled()
        assert os.listdir(sys.argv[1]) == []
        exe.save(os.path.join(sys.argv[1], "x.svm"))
        exe.close()
        del exe
        assert descriptors() == before, (descriptors(), before)
        """,
        tmp_path, TMPDIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["x.svm"]


@pytest.mark.parametrize("damage", ["empty", "cut", "no artifact", "bit", "missing", "folder"])
def test_files_that_are_no_artifacts(saved, tmp_path, damage):
    path = tmp_path / "bad.svm"
    data = bytearray(saved.read_bytes())
    if damage == "bit":
        data[data.index(b"main")] ^= 4  # a name: no padding between sections, which nobody reads
    contents = {"empty": b"", "cut": bytes(data[:2000]), "no artifact": b"hello" * 1000, "bit": bytes(data)}
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(contents[damage])
    with pytest.raises(shapevm.Error) as caught:
        shapevm.load(path)
    assert isinstance(caught.value, (shapevm.ArtifactError, OSError)) and "\n" not in str(caught.value)


def test_an_artifact_whose_structure_is_not_the_programs(saved, tmp_path):
    from dataclasses import replace

    from shapevm.vm.artifact import read, write

    program = read(saved)
    for structure in (
        {"inputs": '{"positional":["x"],"parameters":{"x":{"list":["*","*"]}}}'},
        {"inputs": '{"positional":["y"],"parameters":{"x":"*"}}'},
        {"inputs": "[]"},
        {"outputs": '"*"'},
        {"outputs": '{"dict":["*","*"]}'},
        {"outputs": '{"object":5,"fields":{"a":"*","b":"*"}}'},
        {"outputs": "{"},
        {"outputs": 7},
    ):
        write(replace(program, meta={"structure": structure}), tmp_path / "odd.svm")
        with pytest.raises(shapevm.ArtifactError):
            shapevm.load(tmp_path / "odd.svm")
    write(replace(program, meta={}), tmp_path / "flat.svm")  # without a structure: by name, a tuple
    with shapevm.load(tmp_path / "flat.svm") as exe:
        assert bits(exe(x=X(3))) == bits(shapevm.load(saved)(X(3)))


# Flat calls -----------------------------------------------------------------------------------------


def test_run_takes_and_gives_flat_values_by_name(build):
    exe = build(lambda self, d: {"s": d["a"] + d["b"], "t": (d["a"],)}, {"a": X(2), "b": X(3)[:2]})
    results = exe.run({"d.b": X(3)[:2], "d.a": X(2)})
    assert list(results) == ["s", "t.0"] and torch.equal(results["t.0"], X(2))
    with pytest.raises(shapevm.ArgumentError, match="input 'd.b' is missing; the program takes d.a, d.b"):
        exe.run({"d.a": X(2)})
    with pytest.raises(shapevm.ArgumentError, match="input 'c' is unknown; the program takes d.a, d.b"):
        exe.run({"d.a": X(2), "d.b": X(2), "c": X(2)})


# The end --------------------------------------------------------------------------------------------


def compiler_threads() -> set[native.Thread]:
    """Return the threads of the operating system that `threading` does not know."""
    threads = [each for each in gc.get_objects() if type(each) is native.Thread]
    return {thread for thread in threads if thread._ended.locked()}


def test_closed_executables_say_so(saved):
    exe = shapevm.load(saved)
    exe(X(3))
    exe.close()
    exe.close()
    for use in (lambda: exe(X(3)), lambda: exe.bind(X(3)), exe.stats, lambda: exe.run({"x": X(3)})):
        with pytest.raises(shapevm.ArgumentError, match="the program is closed; load the artifact again"):
            use()


def test_closing_ends_the_thread(saved):
    before = compiler_threads()  # those of programs that other tests have left may end meanwhile
    exe = shapevm.load(saved, strategy="auto")
    assert len(compiler_threads() - before) == 1
    exe.close()
    assert compiler_threads() <= before
    with shapevm.load(saved, strategy="generic"):
        assert compiler_threads() <= before


def test_collected_executables_leave_nothing(saved):
    gc.collect()
    before = compiler_threads()
    exes = [shapevm.load(saved, strategy="auto") for _ in range(5)]
    for exe in exes:
        exe(X(3))
    machines = [weakref.ref(exe.machine) for exe in exes]
    del exe, exes
    gc.collect()
    for _ in range(6000):
        if compiler_threads() <= before and not any(ref() for ref in machines):
            break
        threading.Event().wait(0.01)
    gc.collect()
    assert compiler_threads() <= before and not any(ref() for ref in machines)


def test_loading_and_closing_does_not_leak(saved):
    done = run_python(
        """
        import resource, sys, numpy, shapevm
        x = numpy.ones((64, 8), "f")
        def use(times):
            for _ in range(times):
                with shapevm.load(sys.argv[1], strategy="auto") as exe:
                    for _ in range(3):
                        exe(x)
                    exe.wait_until_specialised()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        use(20)
        print(*(use(60) for _ in range(4)))
        """,
        saved,
    )
    most = list(map(int, done.stdout.split()))
    grown = min(after - before for before, after in itertools.pairwise(most))
    assert grown < 4096, f"KiB that 60 programs left behind, in each of three rounds: {most}"


# Threads and processes ------------------------------------------------------------------------------


def test_threads_share_an_executable_while_it_specialises(saved):
    with shapevm.load(saved, strategy="generic") as plain:
        expected = {n: bits(plain(X(n))) for n in range(1, 60)}
    wrong: list[object] = []
    with shapevm.settings.scope(compile_budget=0), shapevm.load(saved, strategy="auto") as exe:
        start = threading.Barrier(4)

        def call(first: int) -> None:
            try:
                start.wait()
                for _ in range(8):
                    for n in range(first, 60, 2):
                        if bits(exe(X(n))) != expected[n]:
                            wrong.append(n)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=call, args=(1 + i % 2,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert exe.wait_until_specialised(timeout=600) and not wrong
        assert exe.stats().tier() == "exact"
        compiled = exe.stats().compiled + exe.stats().from_cache
        assert compiled == len(exe.stats().entries)  # each once, though several threads wanted it


@pytest.mark.parametrize("strategy", ["auto", "jit", "generic"])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_fork(saved, strategy, n_threads):
    """A child runs the program that its parent has loaded, also at shapes that need compiling."""
    done = run_python(
        """
        import os, sys, numpy, shapevm
        shapevm.set_threads(int(sys.argv[3]))
        exe = shapevm.load(sys.argv[1], strategy=sys.argv[2])
        def call(n):
            return [y.tobytes() for y in exe(numpy.random.default_rng(n).random((n, 8), "f"))]
        before = [call(n) for n in (5, 5, 5, 600)]
        for child in range(3):
            pid = os.fork()
            if pid == 0:
                same = [call(n) for n in (5, 5, 5, 600)] == before
                for n in range(40 + child, 45):
                    for _ in range(4):
                        call(n)
                same = same and exe.wait_until_specialised(20)
                if sys.argv[2] != "generic":
                    same = same and all(e.tier == "exact" for _, e in exe.stats().entries if e.dims[0] >= 40)
                os._exit(0 if same else 3)
            call(30 + child)
            assert os.waitpid(pid, 0)[1] == 0
        exe.wait_until_specialised()
        print("both", call(5) == before[0])
        """,
        saved,
        strategy,
        n_threads,
        SHAPEVM_COMPILE_BUDGET="0",
    )
    assert done.stdout == "both True\n", (done.returncode, done.stderr)


EXITS = {
    "the end": "",
    "sys.exit": "sys.exit(0)",
    "os._exit": "sys.stdout.flush(); os._exit(0)",
    "kept by a cycle": "exe.cycle = exe",
    "kept by a module": "shapevm.kept = exe",
    "closed": "exe.close()",
}


@pytest.mark.parametrize(
    ("end", "budget"), [*((end, "200") for end in EXITS), ("the end", "0"), ("closed", "0")]
)
def test_a_process_ends_while_it_compiles(saved, end, budget):
    """Whether a thread of it does (0: no budget), or a process of its own."""
    done = run_python(
        """
        import os, sys, numpy, shapevm
        from shapevm.specialise import profitability
        profitability.ASK_NS = 0
        profitability.Gains.pays_after = lambda self, kernel, dims: 2
        exe = shapevm.load(sys.argv[1], strategy="auto")
        for n in range(1, 60):
            for _ in range(3):
                exe(numpy.ones((n, 8), "f"))
        assert any(entry.state in ("queued", "compiling") for _, entry in exe.stats().entries)
        print("done")
"""
        + f"        {EXITS[end]}\n",
        saved,
        SHAPEVM_CACHE="0",
        SHAPEVM_COMPILE_BUDGET=budget,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# Without the packages that compiling needs ----------------------------------------------------------

BLOCK = """
    import sys
    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in sys.argv[2].split(","):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Blocker())
    import importlib.util
    found, missing = importlib.util.find_spec, sys.argv[2].split(",")
    importlib.util.find_spec = lambda name, package=None: None if name in missing else found(name)
"""


@pytest.mark.parametrize("strategy", ["auto", "generic", "jit"])
@pytest.mark.parametrize("missing", ["torch", "torch,llvmlite,sympy,rich,platformdirs"])
def test_loading_needs_no_compiler(saved, strategy, missing):
    code = """
    import numpy, shapevm
    exe = shapevm.load(sys.argv[1], strategy=sys.argv[3])
    try:
        for _ in range(5):
            softmax, total = exe(numpy.ones((7, 8), "f"))
        exe.wait_until_specialised()
        exe(numpy.ones((7, 8), "f"))
        print(type(total).__name__, total.shape, exe.stats().tier())
    except shapevm.Error as error:
        print(error)
    """
    done = run_python(BLOCK + code, saved, missing, strategy)
    assert done.returncode == 0, done.stderr
    if strategy == "jit" and "llvmlite" in missing:
        assert "needs exact code and no compiler is attached; use strategy generic" in done.stdout
    else:
        tier = "generic" if "llvmlite" in missing or strategy == "generic" else "exact"
        assert done.stdout == f"ndarray (7,) {tier}\n"


def test_compiling_without_its_packages_says_what_to_install():
    code = """
    import shapevm
    try:
        shapevm.compile(None)
    except shapevm.Error as error:
        print(error)
    """
    done = run_python(BLOCK + code, "", "torch,llvmlite")
    assert done.stdout.startswith("compiling needs llvmlite, torch: install shapevm[compile]"), done.stderr


def test_importing_brings_in_nothing():
    code = """
    import sys, shapevm
    print(*{"torch", "llvmlite", "numpy", "sympy", "click", "rich"} & set(sys.modules))
    """
    assert run_python(code).stdout == "\n"


@pytest.mark.parametrize("strategy", ["auto", "jit"])
def test_the_compiler_is_imported_when_a_call_needs_it(saved, strategy):
    code = """
    import sys, numpy as np, shapevm
    compiler = {"llvmlite", "shapevm.jit.compiler"}
    with shapevm.load(sys.argv[1], strategy=sys.argv[2]) as exe:
        print(sorted(compiler & set(sys.modules)), exe.specialisation.opened_store)
        for _ in range(5):
            exe(np.ones((7, 8), "f"))
        exe.wait_until_specialised()
        print(sorted(compiler & set(sys.modules)), {entry.tier for _, entry in exe.stats().entries})
    """
    done = run_python(code, saved, strategy)
    lines = done.stdout.splitlines()
    assert lines == ["[] None", "['llvmlite', 'shapevm.jit.compiler'] {'exact'}"], done.stderr


def test_a_map_whose_progress_is_not_shown_imports_no_bar(saved):
    code = """
    import sys, numpy as np, shapevm
    with shapevm.load(sys.argv[1]) as exe:
        print(len(list(exe.map([np.ones(8, "f")] * 3))), "rich" in sys.modules)
    """
    done = run_python(code, saved)
    assert done.stdout == "3 False\n", done.stderr


# Other targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["auto", "jit", "generic"])
def test_an_artifact_for_another_cpu_is_compiled_again_where_it_can(module, saved, tmp_path, strategy):
    other = "x86-64-v4" if os.uname().machine == "aarch64" else "aarch64"
    path = tmp_path / "other.svm"
    with shapevm.compile(
        module(work), (X(3),), dynamic_shapes={"x": {0: N}}, options=shapevm.Options(target=other)
    ) as exe:
        exe.save(path)
        assert bits(exe(X(5))) == bits(shapevm.load(saved)(X(5)))
    with shapevm.load(path, strategy=strategy) as exe:
        assert bits(exe(X(5))) == bits(shapevm.load(saved)(X(5)))
    code = """
    import shapevm
    try:
        shapevm.load(sys.argv[1])
    except shapevm.Error as error:
        print(error)
    """
    done = run_python(BLOCK + code, path, "llvmlite")
    assert f"has machine code for {other}, this CPU runs" in done.stdout, done.stderr


def test_machine_code_that_is_asked_for_is_the_artifacts(module, tmp_path):
    from shapevm.vm.artifact import read

    with shapevm.settings.scope(target="x86-64-v3"):
        shapevm.compile(module(work), (X(3),)).save(tmp_path / "v3.svm")
    assert {o.target for kernel in read(tmp_path / "v3.svm").kernels for o in kernel.objects} == {"x86-64-v3"}
    assert Path(tmp_path / "v3.svm").stat().st_size > 0


def test_exact_code_is_for_the_artifacts_target(module, tmp_path):
    """Another target's bits may differ."""
    options, shapes = shapevm.Options(target="x86-64-v3"), {"x": {0: N}}
    with shapevm.compile(
        module(work), (X(3),), dynamic_shapes=shapes, strategy="generic", options=options
    ) as exe:
        exe.save(tmp_path / "v3.svm")
    with shapevm.load(tmp_path / "v3.svm", strategy="jit") as exe:
        exe(X(5))
        assert {kernel.target for kernel in exe.machine.kernels} == {"x86-64-v3"}
        assert exe.specialisation.on_demand.get().target == "x86-64-v3" and exe.stats().tier() == "exact"


def test_rows_of_a_product_are_those_of_the_longer_axis(build):
    """A product whose operands disagree about the order of its axes has two forms; sizes choose, also what
    is compiled ahead."""

    def forward(self, x, w):
        return x.transpose(0, 1) @ w

    b, n = torch.export.Dim("b", min=0, max=64), torch.export.Dim("n", min=0, max=64)
    w, sizes = torch.randn(8, 24), [{"b": 9, "n": 2}, {"b": 2, "n": 9}, {"b": 1, "n": 30}]
    options = shapevm.Options(sizes=sizes, buckets={"b": [(40, 64)], "n": [(2, 8)]})
    shapes = ({0: b, 1: n}, None)
    exe = build(forward, torch.randn(3, 5, 8), w, dynamic_shapes=shapes, strategy="generic", options=options)
    forms = [kernel for kernel in exe.machine.kernels if "matmul" in kernel.label]
    assert sorted(kernel.n_objects for kernel in forms) == [
        3,
        3,
    ]  # generic; one, two exact; a bucket where n <= b
    for shape in ((9, 2), (2, 9), (1, 30), (50, 3), (7, 7), (0, 5), (5, 0), (1, 1), (64, 1)):
        x = torch.randn(*shape, 8)
        found = [exe.using(strategy)(x, w) for strategy in ("generic", "bucket", "jit")]
        torch.testing.assert_close(found[0], forward(None, x, w), rtol=1e-5, atol=1e-5)
        assert all(torch.equal(found[0], other) for other in found)
        assert torch.equal(found[0][:, :1], exe(x[:1], w))
    ran = {
        e.dims: kernel for kernel, e in exe.stats().entries if kernel in map(exe.machine.kernels.index, forms)
    }
    assert len({ran[key] for key in ran if key[0] > key[1]}) == 1
