"""Small programs, a model of texts over one of them, and servers."""

import threading
import time
from contextlib import contextmanager

import httpx2
import numpy as np
import pytest
import torch
import uvicorn
from shapevm.vm.artifact import to_bytes
from shapevm.vm.assembler import assemble
from starlette.testclient import TestClient

import shapevm
from shapevm.serve.app import application
from shapevm.serve.limits import Limits
from shapevm.serve.models import Service
from tests.vm.programs import forever_at_0

#: Never ends for k = 0, else returns k + 1.
FOREVER = forever_at_0("int r3 1", "add r4 r0 r3", "return (r4)")


class Encoder(torch.nn.Module):
    """Vectors of token ids: the mean over a text's tokens, through a layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(256, 32)
        self.line = torch.nn.Linear(32, 24)

    def forward(self, ids, mask):
        weights = mask.to(torch.float32).unsqueeze(-1)
        rows = torch.tanh(self.table(ids)) * weights
        return torch.tanh(self.line(rows.sum(1) / weights.sum(1)))


class Lines:
    """A model of texts for tests: a token for each byte. Texts with "boom" cannot be run; "hold" waits until
    `released` is set."""

    max_length, RESULTS = 64, ("vectors",)

    def __init__(self, exe, kind="encoder", name="lines"):
        self.exe, self.kind, self.name = exe, kind, name
        self.batches, self.released = [], threading.Event()

    def tokenize(self, texts, *, prompt=None):
        texts = ["\0".join(text) if isinstance(text, tuple) else text for text in texts]
        return [[1, *(prompt or "").encode(), *text.encode()][: self.max_length] for text in texts]

    def run(self, tokens):
        return self.results(tokens)["vectors"]

    def results(self, tokens):
        self.batches.append([bytes(text[1:]).decode() for text in tokens])
        if any("boom" in text for text in self.batches[-1]):
            raise RuntimeError("a defect of the model")
        if any("hold" in text for text in self.batches[-1]):
            assert self.released.wait(60)
        longest = max(map(len, tokens))
        ids, mask = np.zeros((2, len(tokens), longest), np.int64)
        for row, text in enumerate(tokens):
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
        found = self.exe(ids, mask)
        return {"vectors": found if self.kind == "encoder" else found[:, :1] * 3}


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """The path of y = x @ w + b and whether a number is above 0, for any number of rows."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.line = torch.nn.Linear(3, 2)

        def forward(self, x, n):
            return {"y": self.line(x), "above": x > n}

    rows = torch.export.Dim("rows", min=0, max=1 << 16)
    shapes = {"x": {0: rows}, "n": None}
    path = tmp_path_factory.mktemp("linear") / "linear.svm"
    with shapevm.compile(
        Model(),
        (torch.ones(4, 3), torch.ones((), dtype=torch.int32)),
        dynamic_shapes=shapes,
        strategy="generic",
    ) as exe:
        exe.save(path)
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The path of an encoder of token ids."""
    return compiled_encoder(tmp_path_factory.mktemp("encoder") / "encoder.svm")


def compiled_encoder(path):
    """Compile an encoder of token ids into a file, and return its path."""
    batch, length = (torch.export.Dim(name, min=1, max=4096) for name in ("batch", "length"))
    ids, axes = torch.ones(3, 5, dtype=torch.int64), {0: batch, 1: length}
    with shapevm.compile(Encoder(), (ids, ids), dynamic_shapes=(axes, axes), strategy="generic") as exe:
        exe.save(path)
    return path


@pytest.fixture
def service():
    """Return a function that makes a service of an artifact, closed when the test ends."""
    made = []

    def service(path, kind=None, *, name="model", **limits):
        path = to_bytes(assemble(path)) if isinstance(path, str) else path
        exe = shapevm.load(path, strategy="generic")
        text = Lines(shapevm.load(path, strategy="generic"), kind) if kind else None
        made.append(Service(exe, name, Limits(**{"workers": 2, **limits}), text))
        return made[-1]

    yield service
    for each in made:
        if each.text is not None:
            each.text.released.set()
        each.close()


@pytest.fixture
def client(service):
    """Return a function that makes a client of a service, or of the arguments of one, in this process."""

    def client(*args, **options):
        served = args[0] if isinstance(args[0], Service) else service(*args, **options)
        return TestClient(application(served))

    return client


@contextmanager
def listening(service, **options):
    """Run a real server on a thread; give clients of it."""
    config = uvicorn.Config(
        application(service), port=0, lifespan="off", log_config=None, access_log=False, **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    limit = time.monotonic() + 60
    while not server.started and time.monotonic() < limit:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as made:
            yield made
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.fixture(name="listening")
def listening_fixture():
    return listening


@pytest.fixture
def forever():
    return FOREVER
