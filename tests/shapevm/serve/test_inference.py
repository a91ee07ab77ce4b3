"""The Open Inference Protocol through the application."""

import json

import numpy as np
import pytest

import shapevm

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 7


def given(**changes):
    x = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": X.ravel().tolist()}
    n = {"name": "n", "shape": [], "datatype": "INT32", "data": [0]}
    return {"inputs": [x | changes, n]}


def infer(client, body, status=200, **headers):
    answer = client.post("/v2/models/model/infer", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_metadata(client, linear):
    served = client(linear)
    assert served.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    found = served.get("/v2/models/model").json()
    assert found["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 3]},
        {"name": "n", "datatype": "INT32", "shape": []},
    ]
    assert sorted(found["outputs"], key=lambda row: row["name"]) == [
        {"name": "above", "datatype": "BOOL", "shape": [-1, 3]},
        {"name": "y", "datatype": "FP32", "shape": [-1, 2]},
    ]
    assert served.get("/v2/models/model/versions/1").json() == found
    for path in ("/v2/models/other", "/v2/models/model/versions/2", "/v2/models/other/ready"):
        answer = served.get(path)
        assert answer.status_code == 404 and "is unknown" in answer.json()["error"]
    for path in ("/health", "/v2/health/live", "/v2/health/ready", "/v2/models/model/ready"):
        assert served.get(path).status_code == 200


@pytest.mark.parametrize("data", [X.ravel().tolist(), X.tolist()])
def test_json(client, linear, data):
    found = infer(client(linear), given(data=data) | {"id": "seven"})
    with shapevm.load(linear) as exe:
        expected = exe.run({"x": X, "n": np.zeros((), np.int32)})
    assert found["id"] == "seven" and found["model_name"] == "model"
    for row in found["outputs"]:
        value = expected[row["name"]]
        assert row["shape"] == list(value.shape)
        assert np.array(row["data"], value.dtype).tobytes() == value.tobytes()


@pytest.mark.parametrize("n", [0, 1, 5, 4099])
def test_binary(client, linear, n):
    x = np.random.default_rng(n).standard_normal((n, 3), np.float32)
    data = x.tobytes() + np.int32(0).tobytes()
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "shape": [n, 3],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 12 * n},
                },
                {"name": "n", "shape": [], "datatype": "INT32", "parameters": {"binary_data_size": 4}},
            ],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}, {"name": "above"}],
        }
    ).encode()
    answer = client(linear).post(
        "/v2/models/model/infer",
        content=head + data,
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["inference-header-content-length"])
    y, above = json.loads(answer.content[:length])["outputs"]
    with shapevm.load(linear) as exe:
        expected = exe.run({"x": x, "n": np.zeros((), np.int32)})
    assert y["parameters"] == {"binary_data_size": 8 * n}
    assert answer.content[length:] == expected["y"].tobytes()
    assert above["data"] == expected["above"].ravel().tolist()


def test_numbers_that_are_no_tensors(client, forever):
    served = client(forever)
    (row,) = served.get("/v2/models/model").json()["inputs"]
    assert row == {"name": "k", "datatype": "INT64", "shape": [1]}
    body = {"inputs": [{"name": "k", "shape": [1], "datatype": "INT64", "data": [41]}]}
    assert infer(served, body)["outputs"][0]["data"] == [42]
    body["inputs"][0] |= {"shape": [2], "data": [41, 1]}
    assert "must be [1]" in infer(served, body, 400)["error"]


SECOND = {"name": "x", "shape": [0, 3], "datatype": "FP32", "data": []}
REFUSED = {
    "a number of rows that is none": (given(shape=[-1, 3]), "whole numbers"),
    "a shape of text": (given(shape="23"), "'23'"),
    "a shape of true": (given(shape=[True, 6]), "whole numbers"),
    "a product that overflows": (given(shape=[2**62, 2**62, 0]), "elements"),
    "a shape of many axes": (given(shape=[1] * 33), "at most 32"),
    "too few data": (given(data=[1.0]), "shape [1]"),
    "data of another shape": (given(data=X.T.tolist()), "shape [3, 2]"),
    "ragged data": (given(data=[[1, 2, 3], [4, 5]]), "different lengths"),
    "lists and numbers": (given(data=[[1, 2, 3], 4, 5, 6]), "different lengths"),
    "numbers and lists": (given(data=[1, 2, 3, 4, 5, [6]]), "a list is no value of FP32"),
    "text": (given(data=[1, 2, 3, 4, 5, "6" * 100]), "is no value of FP32"),
    "null": (given(data=[1, 2, 3, 4, 5, None]), "None is no value of FP32"),
    "true": (given(data=[1, 2, 3, 4, 5, True]), "True is no value of FP32"),
    "a number beyond f32": (given(data=[1, 2, 3, 4, 5, 1e39]), "range of FP32"),
    "no data": (given(data=None), "must be a list"),
    "another dtype": (given(datatype="INT64"), "takes FP32"),
    "no dtype": (given(datatype="FP31"), "unknown datatype 'FP31'"),
    "another name": (given(name="z"), "'z' is unknown"),
    "another axis": (given(shape=[3, 2], data=X.reshape(3, 2).tolist()), "axis 1 has size 2"),
    "a field that nobody knows": (given(dtype="FP32"), "'dtype' is unknown"),
    "a size of no data": (given(parameters={"binary_data_size": 24}), "give one of them"),
    "shared memory": (given(parameters={"shared_memory_region": "a"}), "'shared_memory_region' is unknown"),
    "an input twice": ({"inputs": [*given()["inputs"], SECOND]}, "twice"),
    "no inputs": ({"inputs": []}, "'x' is missing"),
    "inputs of text": ({"inputs": "x"}, "must be a list"),
    "an input of text": ({"inputs": ["x"]}, "a string; it must be an object"),
    "an output that is not there": (given() | {"outputs": [{"name": "z"}]}, "'z' is unknown"),
    "a list": ([1], "is a list; it must be an object"),
    "too many rows": (given(shape=[65537, 3], data=[0] * 65537 * 3), "65536"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(client, linear, case):
    body, part = REFUSED[case]
    message = infer(client(linear), body, 400)["error"]
    assert part in message and len(message) < 400 and "\n" not in message, message


def test_integers_out_of_range(client, linear):
    served = client(linear)
    for value, part in (
        (2**31, "range of INT32"),
        (2**63, "range of INT32"),
        (1.5, "1.5 is no value of INT32"),
    ):
        body = given()
        body["inputs"][1]["data"] = [value]
        assert part in infer(served, body, 400)["error"]


RAW = {
    "nothing": (b"", "no valid JSON"),
    "half": (b'{"inputs": [', "no valid JSON"),
    "NaN": (b'{"inputs": [NaN]}', "no valid JSON"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "no valid JSON"),
    "no UTF-8": (b'{"\xff": 1}', "no valid JSON"),
    "a number of many digits": (b'{"inputs": ' + b"9" * 100_000 + b"}", "no valid JSON"),
}


@pytest.mark.parametrize("case", RAW)
def test_bytes_that_are_no_json(client, linear, case):
    body, part = RAW[case]
    answer = client(linear).post("/v2/models/model/infer", content=body)
    assert answer.status_code == 400 and part in answer.json()["error"], answer.text
    assert len(answer.text) < 400


HEAD = {
    "longer than the body": ("1000000", 24, "at most the body's"),
    "negative": ("-1", 24, "at most the body's"),
    "no number": ("x", 24, "at most the body's"),
    "many digits": ("9" * 5000, 24, "at most the body's"),
    "a size beyond the data": (None, 25, "bytes are left"),
    "a negative size": (None, -24, "whole number"),
    "a size below the data": (None, 23, "FP32[2, 3] has 24 bytes"),
    "a size of true": (None, True, "whole number"),
}


@pytest.mark.parametrize("case", HEAD)
def test_binary_sizes_that_lie(client, linear, case):
    said, size, part = HEAD[case]
    row = {"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [row]}).encode()
    answer = client(linear).post(
        "/v2/models/model/infer", content=head + X.tobytes(),
        headers={"Inference-Header-Content-Length": said or str(len(head))},
    )  # fmt: skip
    assert answer.status_code == 400 and part in answer.json()["error"], answer.text


def test_binary_data_that_no_input_has(client, linear):
    head = json.dumps(given()).encode()
    answer = client(linear).post(
        "/v2/models/model/infer",
        content=head + b"1234",
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert answer.status_code == 400 and "belong to no input" in answer.json()["error"]


def test_a_program_whose_values_the_protocol_does_not_transport(client, service):
    text = 'input "k": list\noutput "y"\nfunction "main" (1 params, 1 results)\n  return (r0)\n'
    served = service(text)
    assert "'k' is list, which the Open Inference Protocol does not transport" in served.inference.problem
    assert client(served).get("/v2/models/model").status_code == 400


def test_results_that_are_not_finite(client, linear):
    body = given(data=None, parameters={"binary_data_size": 24})
    head, data = json.dumps(body).encode(), np.full(6, np.nan, np.float32).tobytes()
    length = {"Inference-Header-Content-Length": str(len(head))}
    answer = client(linear).post("/v2/models/model/infer", content=head + data, headers=length)
    assert answer.status_code == 400 and "ask for binary data" in answer.json()["error"]
