"""Small models, compiled through the public interface and closed when the test ends."""

import textwrap

import pytest
import torch

import shapevm


def module(forward):
    """Return a module whose forward is this function; its first parameter is self."""
    return type("Model", (torch.nn.Module,), {"forward": forward})()


@pytest.fixture(name="module", scope="session")
def module_fixture():
    return module


@pytest.fixture
def build():
    """Return a function that compiles forward(self, ...) as `shapevm.compile` takes it."""
    made = []

    def build(forward, *args, **options):
        made.append(
            shapevm.compile(
                forward if isinstance(forward, torch.nn.Module) else module(forward), args, **options
            )
        )
        return made[-1]

    yield build
    for exe in made:
        exe.close()


MODEL = '''
    """A model for the command line."""

    import torch


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.line = torch.nn.Linear(8, 16)
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x):
            h = torch.relu(self.line(x))
            return {"sum": self.norm(h).sum(-1), "h": h}


    def make():
        n = torch.export.Dim("n", min=1, max=100)
        return {"model": Net(), "args": (torch.randn(3, 8),), "dynamic_shapes": {"x": {0: n}}}


    def nothing():
        return 5


    def misspelt():
        return {"model": Net(), "arguments": ()}
'''


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "net_of_test.py"
    path.write_text(textwrap.dedent(MODEL))
    return path


@pytest.fixture(scope="session")
def net(model_file):
    """Return the model file's module and the arguments of compile."""
    from shapevm.build.model import load_model

    return load_model(f"{model_file}:make")


@pytest.fixture(scope="session")
def artifact(net, tmp_path_factory):
    """The model file's artifact, with exact kernels for n=3."""
    path = tmp_path_factory.mktemp("artifact") / "net.svm"
    with shapevm.compile(**net, options=shapevm.Options(sizes=[{"n": 3}]), strategy="generic") as exe:
        exe.save(path)
    return path
