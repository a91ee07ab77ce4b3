"""MiniLM-L6 with its real weights: PyTorch's values at every shape, the same bits in every tier, thread
count and host."""

import subprocess

import numpy as np
import pytest
import torch

import shapevm

SHAPES = [
    (1, 1),
    (1, 2),
    (1, 15),
    (1, 16),
    (1, 17),
    (1, 64),
    (1, 127),
    (1, 256),
    (1, 511),
    (1, 512),
    (2, 1),
    (3, 37),
    (32, 1),
    (17, 29),
    (5, 300),
]
BIT_SHAPES = [(1, 1), (1, 19), (1, 128), (2, 33), (5, 61)]


def bits(result) -> list[np.ndarray]:
    return [np.asarray(tensor).view(np.uint32) for tensor in (result.last_hidden_state, result.pooler_output)]


def same_bits(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(bits(a), bits(b), strict=True))


@pytest.mark.parametrize(("batch", "length"), SHAPES)
def test_values_are_eagers(bert, exe, inputs, batch, length):
    item = inputs(batch, length)
    with torch.inference_mode():
        expected = bert(**item)
    for _ in range(2):
        result = exe(**item)
        assert type(result) is type(expected)
        for name in ("last_hidden_state", "pooler_output"):
            ours, theirs = getattr(result, name), getattr(expected, name)
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("batch", "length"), BIT_SHAPES)
def test_tiers_threads_and_replay_give_equal_bits(artifact, inputs, batch, length):
    item = inputs(batch, length)
    results = []
    before = shapevm.get_threads()
    try:
        for strategy in ("generic", "jit", "auto"):
            for threads in (1, 2):
                shapevm.set_threads(threads)
                loaded = shapevm.load(artifact, strategy=strategy)
                results += [loaded(**item) for _ in range(4)]
                loaded.wait_until_specialised()
                results.append(loaded(**item))
                if strategy != "generic":
                    assert loaded.stats().tier() == "exact"
                loaded.close()
    finally:
        shapevm.set_threads(before)
    assert all(same_bits(results[0], other) for other in results[1:])


@pytest.mark.parametrize(("batch", "length"), BIT_SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_runner_gives_equal_bits(artifact, exe, inputs, tmp_path, batch, length, threads):
    item = inputs(batch, length)
    expected = exe(**item)
    command = [
        str(shapevm.runner_path()),
        str(artifact),
        "--output",
        str(tmp_path / "out.npz"),
        "--threads",
        str(threads),
    ]
    for name, tensor in item.items():
        np.save(tmp_path / f"{name}.npy", tensor.numpy())
        command += ["--input", f"{name}={tmp_path / name}.npy"]
    subprocess.run(command, check=True, capture_output=True)
    out = np.load(tmp_path / "out.npz")
    assert list(out) == ["last_hidden_state", "pooler_output"]
    for name, theirs in zip(out, bits(expected), strict=True):
        assert np.array_equal(out[name].view(np.uint32), theirs)


def test_numpy_in_numpy_out(exe, inputs):
    item = inputs(2, 9)
    result = exe(**{name: tensor.numpy() for name, tensor in item.items()})
    assert isinstance(result.last_hidden_state, np.ndarray)
    assert same_bits(result, exe(**item))


def test_exact_kernels_travel_in_the_artifact(bert, inputs, tmp_path):
    import encoder

    path = tmp_path / "sized.svm"
    sizes = [{"batch": 1, "length": 21}]
    made = shapevm.compile(
        bert,
        kwargs=encoder.example_inputs(),
        dynamic_shapes=encoder.dynamic_shapes(),
        options=shapevm.Options(sizes=sizes),
    )
    made.save(path)
    loaded = shapevm.load(path, strategy="auto")
    loaded(**inputs(1, 21))
    assert loaded.stats().tier() == "exact" and loaded.stats().compiled == 0
    loaded(**inputs(1, 22))
    assert "generic" in loaded.stats().tier()


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((1, 513), (1, 513)), ("input_ids", "513", "512", "length")),
        (((33, 4), (33, 4)), ("input_ids", "33", "32", "batch")),
        (((1, 0), (1, 0)), ("input_ids", "0", "1", "length")),
        (((2, 5), (2, 6)), ("attention_mask", "6", "5")),
        (((2, 5), (1, 5)), ("attention_mask", "1", "2")),
        (((5,), (2, 5)), ("input_ids", "rank 1", "2")),
    ],
)
def test_the_contract_is_one_sentence(exe, shapes, words):
    ids, mask = (torch.ones(shape, dtype=torch.long) for shape in shapes)
    with pytest.raises(shapevm.ShapeError) as caught:
        exe(input_ids=ids, attention_mask=mask)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_dtype_and_wrong_token(exe):
    ids = torch.ones(1, 4)
    with pytest.raises(shapevm.DtypeError, match="input_ids.*f32.*i64"):
        exe(input_ids=ids, attention_mask=torch.ones(1, 4, dtype=torch.long))
    with pytest.raises(IndexError, match="30522"):
        exe(input_ids=torch.full((1, 4), 30522), attention_mask=torch.ones(1, 4, dtype=torch.long))
    with pytest.raises(shapevm.Error, match="attention_mask is missing"):
        exe(input_ids=torch.ones(1, 4, dtype=torch.long))
