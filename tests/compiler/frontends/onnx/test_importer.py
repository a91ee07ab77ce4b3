"""ONNX models become programs of any size."""

import subprocess
import sys

import numpy as np
import onnx
import pytest

import shapevm
from tests.compiler.frontends.onnx.onnx_models import agrees, compiled, model_of, node

FLATTENED = model_of(
    [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["first"]),
        node("Concat", ["first", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["rows"]),
        node("MatMul", ["rows", "w"], ["y"]),
    ],
    {"x": ["batch", "height", 4]},
    {"zero": [0], "rest": [-1, 8], "w": np.arange(24, dtype=np.float32).reshape(8, 3)},
)


def test_arithmetic_of_shapes_is_folded() -> None:
    with shapevm.compile(FLATTENED) as exe:
        for batch, height in ((2, 6), (1, 2), (0, 4), (3, 0)):
            x = np.random.default_rng(0).standard_normal((batch, height, 4), np.float32)
            wanted = x.reshape(batch, height // 2, 8) @ np.arange(24, dtype=np.float32).reshape(8, 3)
            np.testing.assert_allclose(exe(x), wanted, rtol=1e-5)


def test_names_of_sizes_are_those_of_the_model() -> None:
    with shapevm.compile(FLATTENED) as exe, pytest.raises(shapevm.ShapeError, match="rank"):
        exe(np.zeros((2, 4), np.float32))


def test_every_missing_operator_is_named() -> None:
    model = model_of([node("Foo", ["x"], ["a"], name="first"), node("Bar", ["a"], ["y"])], {"x": [2]})
    with pytest.raises(
        shapevm.UnsupportedOp,
        match=r"operator ai.onnx.Foo, version 20, of node 'first'.*1 others: ai.onnx.Bar",
    ):
        shapevm.compile(model)


def test_conditions_on_sizes_are_elements_of_tensors() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"]),
        node("Gather", ["shape", "one"], ["m"]),
        node("Greater", ["n", "m"], ["is_long"]),
        node("Equal", ["n", "one"], ["is_one"]),
        node("Or", ["is_long", "is_one"], ["is_either"]),
        node("Not", ["is_either"], ["is_neither"]),
        node("Concat", ["is_long", "is_one", "is_either", "is_neither"], ["known"], axis=0),
        node("Cast", ["known"], ["numbers"], to=onnx.TensorProto.INT64),
    ]
    model = model_of(nodes, {"x": ["n", "m"]}, {"zero": [0], "one": [1]}, ["numbers"])
    with shapevm.compile(model) as exe:
        for n, m in ((3, 2), (1, 5), (2, 2), (0, 0), (1, 0)):
            long, one = n > m, n == 1
            assert list(exe(np.zeros((n, m), np.float32))) == [long, one, long or one, not (long or one)]


def test_branches_on_sizes_are_decided_at_run_time() -> None:
    def way(name: str, op: str) -> onnx.GraphProto:
        return onnx.helper.make_graph(
            [node(op, ["x"], [name])], name, [], [onnx.helper.make_empty_tensor_value_info(name)]
        )

    model = model_of(
        [
            node("Shape", ["x"], ["shape"]),
            node("Greater", ["shape", "two"], ["is_long"]),
            node("If", ["is_long"], ["y"], then_branch=way("a", "Neg"), else_branch=way("b", "Abs")),
        ],
        {"x": ["n"]},
        {"two": [2]},
    )
    with shapevm.compile(model) as exe:
        np.testing.assert_array_equal(exe(np.array([-1, 2, 3], np.float32)), [1, -2, -3])
        np.testing.assert_array_equal(exe(np.array([-1, 2], np.float32)), [1, 2])


def test_torch_is_not_imported(tmp_path) -> None:
    onnx.save(FLATTENED, tmp_path / "model.onnx")
    code = (
        "import sys, shapevm, numpy as np\n"
        "exe = shapevm.compile(sys.argv[1])\n"
        "exe(np.zeros((2, 4, 4), np.float32))\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.onnx")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.mark.parametrize("data", [b"", b"\x08", b"\x08\x07", b"no model at all"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(shapevm.Error, match="is no ONNX model|damaged"):
        shapevm.compile(data)


@pytest.mark.parametrize("location", ["../weights", "/etc/hostname", "", "a\0b", "link"])
def test_external_data_lie_in_the_folder_of_the_model(tmp_path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "weights")
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": [4]}, {"w": np.zeros(4, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(shapevm.ArchiveError, match="no file"):
        shapevm.compile(folder / "m.onnx")


def test_a_missing_package_is_named() -> None:
    code = (
        "import sys\n"
        "sys.modules['onnx'] = None\n"
        "import importlib.util, shapevm\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'onnx' else found(name, *rest)\n"
        "try: shapevm.compile(b'model')\n"
        "except shapevm.Error as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wanted = "compiling ONNX models needs onnx: install shapevm[onnx]\n"
    assert (done.stdout, done.stderr) == (wanted, "")


def test_a_table_of_positions_bounds_the_length() -> None:
    """Its first positions are added to rows of the same number: the size is bounded, and no size of 1 is
    broadcast."""
    nodes = [
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Slice", ["positions", "zero", "length", "one"], ["places"]),
        node("Gather", ["table", "places"], ["rows"]),
        node("Add", ["x", "rows"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = {
        "positions": np.arange(16)[None], "table": rng.standard_normal((16, 4), np.float32),
        "zero": np.array([0]), "one": np.array([1]),
    }  # fmt: skip
    model = model_of(nodes, {"x": ["batch", "length", 4]}, weights)
    shapes = ((2, 3, 4), (0, 1, 4), (1, 0, 4), (2, 16, 4))
    agrees(model, *({"x": rng.standard_normal(shape, np.float32)} for shape in shapes))
    with compiled(model) as exe:
        assert exe.summary().startswith("1 kernel for batch 0.., length 0..16")
        with pytest.raises(shapevm.Error, match="length is 17; it must be at most 16"):
            exe(np.zeros((1, 17, 4), np.float32))


@pytest.mark.parametrize("is_safe", [False, True])
def test_attention_in_parts_is_one_kernel(is_safe: bool) -> None:
    """A row that is masked whole is NaN, or 0 where the model says so."""
    nodes = [
        node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "t"], ["scores"]),
        node("Where", ["seen", "zero", "low"], ["mask"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("IsNaN", ["p"], ["nan"]),
        node("Where", ["nan", "zero", "p"], ["safe"]),
        node("MatMul", ["safe" if is_safe else "p", "v"], ["y"]),
    ]
    used = [each for each in nodes if is_safe or each.output[0] not in ("nan", "safe")]
    shape: list = [2, "heads", "n", 8]
    inputs = {"q": shape, "k": [*shape[:2], "m", 8], "v": [*shape[:2], "m", 5], "seen": [2, 1, "n", "m"]}
    weights = {"zero": np.float32(0), "low": np.float32(-np.inf)}
    model = model_of(used, inputs, weights, dtypes={"seen": onnx.TensorProto.BOOL})
    rng = np.random.default_rng(0)

    def call(heads: int, n: int, m: int) -> dict:
        given = {
            name: rng.standard_normal([{"heads": heads, "n": n, "m": m}.get(x, x) for x in sizes], np.float32)
            for name, sizes in inputs.items()
        }
        given["seen"] = given["seen"] < 0.5
        given["seen"][:, :, n // 2] = False
        return given

    agrees(model, call(3, 5, 7), call(1, 1, 1), call(2, 33, 70))
    with compiled(model) as exe:
        assert exe.summary().startswith("1 kernel ")


@pytest.mark.parametrize("allowzero", [0, 1])
def test_a_reshape_whose_shape_is_an_input(allowzero: int) -> None:
    made = node("Reshape", ["x", "shape"], ["y"], allowzero=allowzero)
    model = model_of([made], {"x": ["n", 6], "shape": [2]}, dtypes={"shape": onnx.TensorProto.INT64})
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    shapes = [(4, 6), (-1, 8), (3, -1), (1, 24), *([] if allowzero else [(0, -1), (-1, 0)])]
    agrees(model, *({"x": x, "shape": np.array(shape)} for shape in shapes))
    with compiled(model) as exe:
        with pytest.raises(shapevm.Error):
            exe(x, np.array([5, 5]))
        if allowzero:
            assert exe(x[:0], np.array([0, 3])).shape == (0, 3)


def test_slices_whose_bounds_and_steps_are_inputs() -> None:
    names = ["start", "end", "step"]
    made = node("Slice", ["x", "start", "end", "axes", "step"], ["y"])
    inputs = {"x": [2, "n"], **{name: [1] for name in names}}
    model = model_of(
        [made], inputs, {"axes": np.array([1])}, dtypes=dict.fromkeys(names, onnx.TensorProto.INT64)
    )
    x, far = np.arange(14, dtype=np.float32).reshape(2, 7), 2**63 - 1
    bounds = [
        (0, 7, 1),
        (1, 6, 2),
        (6, 0, -1),
        (-1, -far, -2),
        (far, -far, -3),
        (-3, far, 1),
        (5, 2, 1),
        (2, 5, -1),
    ]
    agrees(model, *({"x": x, **{name: np.array([each]) for name, each in zip(names, case, strict=True)}}
                    for case in bounds))  # fmt: skip


def test_a_slice_backwards_from_a_size() -> None:
    """The start is known as an expression of sizes."""
    nodes = [
        node("Shape", ["z"], ["from"], start=0, end=1),
        node("Slice", ["x", "from", "low", "axes", "step"], ["y"]),
    ]
    weights = {"low": np.array([-(2**31)]), "axes": np.array([0]), "step": np.array([-1])}
    model = model_of(nodes, {"x": ["n"], "z": ["m"]}, weights)
    x, z = np.arange(9, dtype=np.float32), np.zeros(3, np.float32)
    agrees(model, {"x": x, "z": z}, {"x": x[:2], "z": z}, {"x": x, "z": np.zeros(0, np.float32)})


@pytest.mark.parametrize("onesided", [0, 1])
def test_transforms_of_any_length(onesided: int) -> None:
    model = model_of([node("DFT", ["x", "", "axis"], ["y"], onesided=onesided)], {"x": ["n", "length", 1]},
                     {"axis": np.array(1)})  # fmt: skip
    rng = np.random.default_rng(0)
    shapes = ((2, 8, 1), (1, 1, 1), (3, 13, 1), (1, 60, 1))
    agrees(model, *({"x": rng.standard_normal(shape, np.float32)} for shape in shapes), tolerance=1e-3)
