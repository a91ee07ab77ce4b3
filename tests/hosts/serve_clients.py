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


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "legs": {"enum": [2, 4]}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}


def openai_texts() -> object:
    """Converse and complete, whole and in streams, with a seed, a stop string, probabilities and JSON."""
    from openai import BadRequestError, OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    said = [{"role": "user", "content": "hello"}]
    chat = {"model": "little", "messages": said, "max_completion_tokens": 9, "temperature": 1.5, "seed": 5}
    whole = client.chat.completions.create(**chat, logprobs=True, top_logprobs=2)
    parts = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
    (first,) = whole.choices
    stop = first.message.content[3:5]
    stopped = client.chat.completions.create(**chat, stop=[stop]).choices[0]
    given = {"model": "little", "prompt": "hello", "max_tokens": 9, "temperature": 0}
    text = client.completions.create(**given, logprobs=2).choices[0]
    pieces = [part.choices[0].text for part in client.completions.create(**given, stream=True)]
    many = client.chat.completions.create(**chat, n=2).choices
    form = {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": SCHEMA}}
    guided = {**chat, "max_completion_tokens": 90, "response_format": form}
    pet = client.chat.completions.create(**guided).choices[0]
    streamed = client.chat.completions.create(**guided, stream=True)
    pets = [pet.message.content, "".join(each.choices[0].delta.content or "" for each in streamed)]
    form = {"response_format": {"type": "json_object"}}
    pets.append(client.completions.create(**{**given, "max_tokens": 5}, extra_body=form).choices[0].text)
    wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strange"}}}
    try:
        client.chat.completions.create(**chat, response_format=wrong)
    except BadRequestError as error:
        refused = error.body["message"]
    try:
        client.chat.completions.create(**chat, tools=[{"type": "function", "function": {"name": "f"}}])
    except BadRequestError as error:
        message = error.body["message"]
    return {
        "text": first.message.content,
        "reason": first.finish_reason,
        "logprobs": [[row.token, row.logprob, len(row.top_logprobs)] for row in first.logprobs.content],
        "usage": [whole.usage.model_dump(exclude_none=True), parts[-1].usage.model_dump(exclude_none=True)],
        "streamed": "".join(each.choices[0].delta.content or "" for each in parts if each.choices),
        "stop": [stop, stopped.message.content, stopped.finish_reason],
        "completion": [text.text, "".join(pieces), text.logprobs.tokens, text.logprobs.token_logprobs],
        "pets": [*pets, pet.finish_reason, refused],
        "many": [each.message.content for each in many],
        "message": message,
    }


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


print(json.dumps({f.__name__: f for f in (openai, openai_texts, cohere, tritonclient)}[name]()))
