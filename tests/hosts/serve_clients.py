"""Real clients of `shapevm serve`: `python serve_clients.py NAME URL` asks a server and prints what it got.

They are programs of the environment of `make hosts`.
"""

import json
import sys

name, url = sys.argv[1:]


def openai() -> object:
    """Embed texts and token ids, with the client's default, base64, and as floats."""
    from openai import BadRequestError, NotFoundError, OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    (model,) = client.models.list().data
    texts = ["one", "another text"]
    plain = client.embeddings.create(model=model.id, input=texts)
    floats = client.embeddings.create(model=model.id, input=texts, encoding_format="float")
    tokens = client.embeddings.create(model=model.id, input=[[1, *text.encode()] for text in texts])
    rows = [[row.embedding for row in found.data] for found in (plain, floats, tokens)]
    short = client.embeddings.create(model=model.id, input="one", dimensions=3)
    try:
        client.embeddings.create(model=model.id, input=[])
    except BadRequestError as error:
        message = error.body["message"]
    try:
        client.embeddings.create(model="other", input="a")
    except NotFoundError as error:
        message += error.body["message"]
    return [rows, len(short.data[0].embedding), plain.usage.prompt_tokens, message]


def cohere() -> object:
    """Rank documents with both versions of the client."""
    import cohere as package

    documents = ["b", "aaa", "c c"]
    old = package.Client(api_key="none", base_url=url)
    new = package.ClientV2(api_key="none", base_url=url)
    given = {"model": "ranker", "query": "q", "documents": documents, "top_n": 2}
    answers = [client.rerank(**given) for client in (old, new)]
    found = [[(row.index, row.relevance_score) for row in answer.results] for answer in answers]
    try:
        new.rerank(model="ranker", query="q", documents=[])
    except package.UnprocessableEntityError as error:
        return [found, error.body["message"]]


def tritonclient() -> object:
    """Call a program with binary data, the client's default, and with JSON."""
    import numpy as np
    from tritonclient import http
    from tritonclient.utils import InferenceServerException

    client = http.InferenceServerClient(url.removeprefix("http://"))
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("encoder")
    metadata = client.get_model_metadata("encoder")
    ids = np.array([[1, 111, 110, 101]], np.int64)
    found = []
    for is_binary in (True, False):
        inputs = []
        for row in metadata["inputs"]:
            value = ids if row["name"] == metadata["inputs"][0]["name"] else np.ones_like(ids)
            inputs.append(http.InferInput(row["name"], list(value.shape), row["datatype"]))
            inputs[-1].set_data_from_numpy(value, binary_data=is_binary)
        outputs = [
            http.InferRequestedOutput(row["name"], binary_data=is_binary) for row in metadata["outputs"]
        ]
        for wanted in (None, outputs):
            answer = client.infer("encoder", inputs, outputs=wanted, request_id="a")
            found.append(answer.as_numpy(metadata["outputs"][0]["name"]).tolist())
    inputs[0] = http.InferInput(metadata["inputs"][0]["name"], [1], "INT64")
    inputs[0].set_data_from_numpy(ids[0, :1])
    try:
        client.infer("encoder", inputs)
    except InferenceServerException as error:
        return [found, error.message()]


print(json.dumps({"openai": openai, "cohere": cohere, "tritonclient": tritonclient}[name]()))
