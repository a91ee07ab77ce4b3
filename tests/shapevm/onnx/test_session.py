"""Sessions with ONNX Runtime's names, against ONNX Runtime itself."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import shapevm
import shapevm.onnx as ours
from shapevm.onnx import programs
from tests.compiler.frontends.onnx.onnx_models import model_of, node

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def model() -> onnx.ModelProto:
    made = model_of(
        [node("MatMul", ["x", "w"], ["y"]), node("Softmax", ["y"], ["z"])],
        {"x": ["batch", 4]},
        {"w": WEIGHT},
        ("y", "z"),
    )
    made.producer_name, made.graph.doc_string = "tests", "a product"
    made.metadata_props.add(key="author", value="nobody")
    for output in made.graph.output:
        output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, ["batch", 3]))
    return made


@pytest.fixture
def path(model, tmp_path) -> Path:
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture(autouse=True)
def cache(tmp_path):
    with shapevm.settings.scope(cache_dir=str(tmp_path / "cache")):
        yield


def test_descriptions_are_those_of_onnxruntime(path) -> None:
    session, other = ours.InferenceSession(path), onnxruntime.InferenceSession(path)
    for name in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        found, wanted = getattr(session, name)(), getattr(other, name)()
        assert [(x.name, x.type, x.shape) for x in found] == [(x.name, x.type, x.shape) for x in wanted]
    meta, wanted = session.get_modelmeta(), other.get_modelmeta()
    for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "version"):
        assert getattr(meta, name) == getattr(wanted, name)
    assert meta.custom_metadata_map == wanted.custom_metadata_map
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("names", [None, [], ["z"], ["z", "y"]])
def test_run(path, names) -> None:
    found = ours.InferenceSession(str(path)).run(names, {"x": X})
    wanted = onnxruntime.InferenceSession(path).run(names, {"x": X})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_second_session_opens_what_the_first_kept(path) -> None:
    code = (
        "import sys, numpy as np, shapevm.onnx as ort\n"
        "session = ort.InferenceSession(sys.argv[1])\n"
        "print(session.run(['y'], {'x': np.ones((3, 4), np.float32)})[0].sum())\n"
        "print(*(name in sys.modules for name in ('onnx', 'sympy', 'llvmlite', 'torch')))\n"
    )
    folder = shapevm.settings.cache_dir
    for loaded in ("True True True False", "False False"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env={"SHAPEVM_CACHE_DIR": folder, "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        total, modules = done.stdout.splitlines()
        assert float(total) == pytest.approx(3 * WEIGHT.sum())
        assert modules.startswith(loaded), done.stderr


def test_free_sizes_without_a_name(tmp_path) -> None:
    model = model_of([node("Neg", ["x"], ["y"])], {"x": [-1, "?", None, 2]})
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [-1, "?", None, 2])
    )
    onnx.save(model, tmp_path / "model.onnx")
    other = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for _ in range(2):  # compiled, then kept
        session = ours.InferenceSession(tmp_path / "model.onnx")
        assert session.get_inputs()[0].shape == other.get_inputs()[0].shape
        assert session.get_outputs()[0].shape == other.get_outputs()[0].shape
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 1
    assert session.run(None, {"x": np.ones((2, 3, 4, 2), np.float32)})[0].shape == (2, 3, 4, 2)


def test_a_changed_model_is_compiled_anew(model, path) -> None:
    assert ours.InferenceSession(path).run(["y"], {"x": X})[0][0, 0] == pytest.approx((X @ WEIGHT)[0, 0])
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(WEIGHT * 2, "w"))
    onnx.save(model, path)
    assert ours.InferenceSession(path).run(["y"], {"x": X})[0][0, 0] == pytest.approx(2 * (X @ WEIGHT)[0, 0])


def test_changed_external_data_are_compiled_anew(model, tmp_path) -> None:
    path = tmp_path / "external.onnx"
    for factor in (1, 2):
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(WEIGHT * factor, "w"))
        onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
        found = ours.InferenceSession(path).run(["y"], {"x": X})[0]
        np.testing.assert_allclose(found, factor * (X @ WEIGHT), rtol=1e-5)


def test_kept_programs_that_are_damaged_are_compiled_anew(path) -> None:
    ours.InferenceSession(path)
    folder = Path(shapevm.settings.cache_dir) / "artifacts" / "onnx"
    for name, content in (("*.json", "{"), ("*.json", json.dumps({"inputs": [1]})), ("*.svm", "nothing")):
        (found,) = folder.glob(name)
        found.write_text(content)
        np.testing.assert_allclose(ours.InferenceSession(path).run(["y"], {"x": X})[0], X @ WEIGHT, rtol=1e-5)


@pytest.mark.parametrize(
    ("feed", "names", "theirs", "own"),
    [
        ({}, None, ValueError, ValueError),
        ({"x": X, "q": X}, None, ours.InvalidArgument, ours.InvalidArgument),
        ({"x": X}, ["q"], ours.InvalidArgument, ours.InvalidArgument),
        ({"x": X.astype(np.float64)}, None, ours.InvalidArgument, shapevm.DtypeError),
        ({"x": X[0]}, None, ours.InvalidArgument, shapevm.ShapeError),
        ({"x": X[:, :3]}, None, ours.InvalidArgument, shapevm.ShapeError),
    ],
)
def test_errors_of_calls(path, feed, names, theirs, own) -> None:
    session = ours.InferenceSession(path)
    with pytest.raises(theirs) as error:
        session.run(names, feed)
    assert isinstance(error.value, own)


def test_errors_of_opening(tmp_path) -> None:
    (tmp_path / "damaged.onnx").write_bytes(b"\x08\x07nothing")
    unknown = model_of([node("Nonsense", ["x"], ["y"])], {"x": [2]}).SerializeToString()
    for given, theirs in (
        (tmp_path / "missing.onnx", ours.NoSuchFile),
        (tmp_path / "damaged.onnx", ours.InvalidProtobuf),
        (unknown, ours.NotImplemented),
    ):
        with pytest.raises(theirs) as error:
            ours.InferenceSession(given)
        assert isinstance(error.value, shapevm.Error)


def test_binding(path) -> None:
    session = ours.InferenceSession(path)
    binding, memory = session.io_binding(), np.empty((2, 3), np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("z")
    binding.bind_output("y", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(memory, X @ WEIGHT, rtol=1e-5)
    softmax, product = binding.copy_outputs_to_cpu()
    np.testing.assert_allclose(softmax.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(product, memory)
    with pytest.raises(ours.InvalidArgument):
        binding.bind_output("q")


def test_values(path) -> None:
    value = ours.OrtValue.ortvalue_from_numpy(X)
    wanted = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    assert (value.shape(), value.data_type(), value.device_name()) == (
        wanted.shape(), wanted.data_type(), wanted.device_name(),
    )  # fmt: skip
    (found,) = ours.InferenceSession(path).run_with_ort_values(["y"], {"x": value})
    np.testing.assert_allclose(found.numpy(), X @ WEIGHT, rtol=1e-5)
    with pytest.raises(ours.Fail, match="CPU"):
        ours.OrtValue.ortvalue_from_numpy(X, "cuda")


def test_options(path, tmp_path) -> None:
    options = ours.SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = 1, True
    options.profile_file_prefix = str(tmp_path / "trace")
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    threads = shapevm.get_threads()
    try:
        session = ours.InferenceSession(
            path, options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
        )
        assert shapevm.get_threads() == 1
        session.run(None, {"x": X})
        trace = session.end_profiling()
    finally:
        shapevm.set_threads(threads)
    assert json.loads(Path(trace).read_text())
    with pytest.raises(ours.InvalidArgument):
        session.run(None, {"x": X[:1]})
    with pytest.raises(AttributeError, match="no field 'threads'"):
        options.threads = 2
    options.optimized_model_filepath = "x.onnx"
    with pytest.raises(ours.Fail, match="optimized_model_filepath"):
        ours.InferenceSession(path, options)


def test_log_levels(path) -> None:
    log = logging.getLogger("shapevm")
    before, options, call = log.level, ours.SessionOptions(), ours.RunOptions()
    try:
        options.log_severity_level = 3
        session = ours.InferenceSession(path, options)
        assert log.level == logging.ERROR
        session.run(None, {"x": X})
        assert log.level == logging.ERROR
        call.log_severity_level = 0
        session.run(None, {"x": X}, call)
        assert log.level == logging.DEBUG
        ours.set_default_logger_severity(2)
        assert log.level == logging.WARNING
        options.log_severity_level = 9
        with pytest.raises(ours.InvalidArgument, match="the log severity is 9; it must be 0"):
            ours.InferenceSession(path, options)
    finally:
        log.setLevel(before)


def test_a_folder_that_others_may_write_to_keeps_nothing(path, tmp_path, caplog) -> None:
    session = ours.InferenceSession(path)
    (folder,) = (tmp_path / "cache").rglob("onnx")
    kept = sorted(folder.iterdir())
    folder.chmod(0o777)
    again = ours.InferenceSession(path)
    assert "each session compiles its model" in caplog.text and str(folder) in caplog.text
    np.testing.assert_array_equal(again.run(["z"], {"x": X}), session.run(["z"], {"x": X}))
    assert sorted(folder.iterdir()) == kept


def test_every_field_of_onnxruntimes_options_is_known() -> None:
    for kind in ("SessionOptions", "RunOptions"):
        theirs, own = getattr(onnxruntime, kind)(), getattr(ours, kind)()
        fields = [
            name for name in dir(theirs) if not name.startswith("_") and not callable(getattr(theirs, name))
        ]
        assert [name for name in fields if not hasattr(own, name)] == []


def members(runtime, path) -> dict[str, object]:
    """Return the module, and an object of each class that programs hold."""
    session = runtime.InferenceSession(path)
    return {
        "module": runtime, "session": session, "options": runtime.SessionOptions(),
        "call": runtime.RunOptions(), "value": runtime.OrtValue.ortvalue_from_numpy(X),
        "binding": session.io_binding(), "meta": session.get_modelmeta(), "input": session.get_inputs()[0],
    }  # fmt: skip


def test_every_name_of_onnxruntime_is_there_or_refused(path) -> None:
    wanted, found = members(onnxruntime, str(path)), members(ours, str(path))
    modules = {"capi", "contextlib", "import_capi_exception", "onnxruntime_validation"}
    for what, each in wanted.items():
        names = {name for name in dir(each) if not name.startswith("_")} - modules
        assert [name for name in sorted(names) if not hasattr(found[what], name)] == [], what


def test_refusals_say_why(path) -> None:
    session, options = ours.InferenceSession(path), ours.SessionOptions()
    for call, why in (
        (lambda: ours.OrtDevice("cpu", 0), "OrtDevice: shapevm runs on the CPU"),
        (lambda: ours.set_global_thread_pool_sizes(1, 1), "shapevm.set_threads"),
        (lambda: options.add_initializer("w", None), "weights cannot be replaced"),
        (lambda: session.set_ep_dynamic_options({}), "shapevm runs on the CPU"),
    ):
        with pytest.raises(ours.Fail, match=why):
            call()
    with pytest.raises(AttributeError, match="OrtMemType.DEFAULT: shapevm runs on the CPU"):
        _ = ours.OrtMemType.DEFAULT
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ours.nonsense
    value = ours.OrtValue.ortvalue_from_numpy(X)
    assert value.element_type() == onnxruntime.OrtValue.ortvalue_from_numpy(X).element_type()
    assert session.create_ortvalue_from_shape_and_type((2, 3), np.int64).element_type() == 7


def test_installed(path) -> None:
    code = (
        "import shapevm.onnx; shapevm.onnx.install()\n"
        "import importlib.util, sys, numpy as np, onnxruntime\n"
        "assert importlib.util.find_spec('onnxruntime') and importlib.util.find_spec('onnxruntime.capi')\n"
        "from onnxruntime import InferenceSession, SessionOptions, GraphOptimizationLevel\n"
        "from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument\n"
        "import onnxruntime.capi.onnxruntime_inference_collection as c\n"
        "session = InferenceSession(sys.argv[1], providers=onnxruntime.get_available_providers())\n"
        "print(type(session).__module__, session.run(['y'], {'x': np.ones((1, 4), np.float32)})[0].sum())\n"
        "try: session.run(None, {'x': np.ones((1, 5), np.float32)})\n"
        "except InvalidArgument as error: print('refused', isinstance(error, shapevm.ShapeError))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["shapevm.onnx.session 66.0", "refused True"], done.stderr


def test_a_change_of_any_part_of_the_compiler_makes_kept_programs_stale() -> None:
    found = list(programs.sources())
    for part in ("frontends/importer.py", "tuning.py", "isa.py", "onnx/session.py"):
        assert any(line.split()[0].endswith(part) for line in found), part
