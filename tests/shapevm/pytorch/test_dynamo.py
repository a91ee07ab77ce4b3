"""torch.compile with our backend: gradients, sizes, weights, graph breaks, threads, what falls back."""

import copy
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest
import torch
from shapevm.vm.errors import ArgumentError, GuardError
from torch import nn
from torch._inductor import list_mode_options

from shapevm.pytorch import dynamo

BACKEND = "shapevm"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class _Fallbacks(logging.Handler):
    """Keeps what the logger `shapevm` says of graphs and calls that run in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "runs in PyTorch" in record.getMessage():
            self.texts.append(record.getMessage())


@pytest.fixture(autouse=True)
def fallbacks() -> Iterator[list[str]]:
    """Graphs and calls that ran in PyTorch: a test takes away those that it expects."""
    handler = _Fallbacks()
    logging.getLogger("shapevm").addHandler(handler)
    yield handler.texts
    logging.getLogger("shapevm").removeHandler(handler)
    assert handler.texts == []


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The executables that the backend makes."""
    found: list[Any] = []
    original = dynamo._executable

    def executable(graph: Any, options: Any) -> Any:
        found.append(original(graph, options))
        return found[-1]

    monkeypatch.setattr(dynamo, "_executable", executable)
    return found


def train(model: nn.Module, inputs: Callable[[int], torch.Tensor], sizes: tuple[int, ...]) -> None:
    """Compare steps of training with eager's, random numbers included."""
    eager = copy.deepcopy(model)
    compiled = torch.compile(model, backend=BACKEND, dynamic=True)
    optimisers = [torch.optim.SGD(m.parameters(), 0.05) for m in (model, eager)]
    for size in sizes:
        x, results = inputs(size), []
        for run, optimiser in zip((compiled, eager), optimisers, strict=True):
            torch.manual_seed(size)
            optimiser.zero_grad()
            results.append(run(x))
            results[-1].square().mean().backward()
            optimiser.step()
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(model.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


# Training -----------------------------------------------------------------------------------------


def test_training_of_a_perceptron(made: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.3), nn.Linear(16, 3))
    train(model, lambda n: torch.randn(n, 6), (5, 7, 9))
    assert len(made) == 2  # forward and backward, for all sizes
    assert made[1].machine.externs == ()


def test_training_of_a_small_conv_net(made: list[Any]) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    train(model, lambda n: torch.randn(n, 3, 12, 12), (5, 3))
    assert [exe.machine.externs for exe in made] == [(), ()]


def test_training_of_a_transformer_layer(made: list[Any]) -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    train(model, lambda n: torch.randn(3, n, 16), (6, 5))
    assert len(made) == 2
    assert made[1].machine.externs == ()  # dropout's random numbers are PyTorch's


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"include_last_offset": True}])
def test_training_of_bags(mode: str, options: dict[str, Any], made: list[Any]) -> None:
    model = nn.EmbeddingBag(10, 3, mode=mode, **options)
    compiled, eager = torch.compile(model, backend=BACKEND), copy.deepcopy(model)
    indices, offsets = torch.randint(0, 10, (7,)), torch.tensor([0, 3, 3, 7])
    for run in (compiled, eager):
        run(indices, offsets).square().sum().backward()
        if not options.get("include_last_offset"):
            run(indices[:6].view(2, 3)).square().sum().backward()
    torch.testing.assert_close(model.weight.grad, eager.weight.grad)
    assert {exe.machine.externs for exe in made} == {()}


def test_training_of_weighted_bags(made: list[Any]) -> None:
    def function(table: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        indices, offsets = torch.tensor([1, 2, 3, 2, 5, 1, 7]), torch.tensor([0, 3, 3])
        how = {"mode": "sum", "per_sample_weights": factors, "padding_idx": 5}
        return nn.functional.embedding_bag(indices, table, offsets, **how)

    table, factors, found = torch.randn(10, 3), torch.rand(7), []
    for run in (torch.compile(function, backend=BACKEND), function):
        leaves = [x.clone().requires_grad_() for x in (table, factors)]
        run(*leaves).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*found)
    assert {exe.machine.externs for exe in made} == {()}


@torch._dynamo.config.patch(allow_rnn=True)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
def test_an_lstm_of_any_length(options: dict[str, Any], made: list[Any]) -> None:
    """Without gradients torch.compile has it as one operator of oneDNN's."""
    model = nn.LSTM(3, 4, **options).requires_grad_(False)
    compiled = torch.compile(model, backend=BACKEND, dynamic=True)
    for length in (5, 7, 2):
        x = torch.randn(length, 2, 3)
        torch.testing.assert_close(compiled(x), model(x))
    assert [exe.machine.externs for exe in made] == [()]


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_of_any_length(kind: Any, options: dict[str, Any], made: list[Any]) -> None:
    """Without gradients each is one operator: no length compiles again, and nothing runs in PyTorch."""
    model = nn.Sequential(nn.Linear(6, 3), kind(3, 4, batch_first=True, **options)).eval()
    compiled = torch.compile(model, backend=BACKEND, dynamic=True, fullgraph=True)
    for no_gradients in (torch.no_grad, torch.inference_mode):
        with no_gradients():
            for length in (5, 7, 2):
                x = torch.randn(3, length, 6)
                found, wanted = compiled(x), model(x)
                for one, other in zip(*map(torch.utils._pytree.tree_leaves, (found, wanted)), strict=True):
                    torch.testing.assert_close(one, other)
    assert 1 <= len(made) <= 2 and {exe.machine.externs for exe in made} == {()}
    assert not torch._dynamo.config.allow_rnn


def test_recurrent_layers_with_first_states(made: list[Any]) -> None:
    model = nn.LSTM(7, 11, proj_size=8).eval()
    compiled = torch.compile(model, backend=BACKEND, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for batch, length in ((3, 6), (2, 5), (5, 9)):
            x, hx = torch.randn(length, batch, 7), (torch.randn(1, batch, 8), torch.randn(1, batch, 11))
            torch.testing.assert_close(compiled(x, hx), model(x, hx))
    assert len(made) == 1


def test_recurrent_layers_in_training_are_left_to_pytorch(made: list[Any]) -> None:
    model = nn.LSTM(3, 4)
    compiled, x = torch.compile(model, backend=BACKEND, dynamic=True), torch.randn(5, 2, 3)
    compiled(x)[0].sum().backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(x)[0].sum().backward()
    torch.testing.assert_close(found, [p.grad for p in model.parameters()])
    assert made == []


def test_other_backends_do_not_trace_recurrent_layers() -> None:
    model, x, graphs = nn.GRU(3, 4), torch.randn(5, 2, 3), []

    def other(module: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=other)(x), model(x))
    assert graphs == []


class _Packs(nn.Module):
    """Packs what it is given, runs a recurrent layer and pads the result."""

    def __init__(self, kind: Any, enforce_sorted: bool, batch_first: bool, **options: Any) -> None:
        super().__init__()
        self.layer = kind(3, 4, batch_first=batch_first, **options)
        self.how = {"batch_first": batch_first, "enforce_sorted": enforce_sorted}

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x * 2, lengths, **self.how)
        result, last = self.layer(packed)
        padded, n = nn.utils.rnn.pad_packed_sequence(result, self.how["batch_first"], -1.0)
        hidden = last[0] if isinstance(last, tuple) else last
        mean = x.mean(1 if self.how["batch_first"] else 0)
        return padded * 2, n, last, torch.cat([hidden[-1], mean], 1), result


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(("enforce_sorted", "batch_first"), [(False, True), (True, False)])
def test_packed_sequences_of_any_lengths(
    kind: Any, options: dict[str, Any], enforce_sorted: bool, batch_first: bool, made: list[Any]
) -> None:
    """Without gradients packing, the layer and padding are one program, for any number and lengths."""
    model = _Packs(kind, enforce_sorted, batch_first, **options).eval()
    compiled = torch.compile(model, backend=BACKEND, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for lengths in ([6, 4, 2, 5, 6], [5, 5, 3, 1], [2, 7], [9]):  # one of size 1 is compiled anew
            n = torch.tensor(sorted(lengths, reverse=True) if enforce_sorted else lengths)
            x = torch.randn(len(lengths), max(lengths), 3)
            x = x if batch_first else x.transpose(0, 1)
            found, wanted = (torch.utils._pytree.tree_leaves(run(x, n)) for run in (compiled, model))
            torch.testing.assert_close(found, wanted)
    assert len(made) <= 2 and {exe.machine.externs for exe in made} == {()}


def test_packed_sequences_are_inputs_and_results(made: list[Any]) -> None:
    model = nn.LSTM(3, 4).eval()
    compiled = torch.compile(model, backend=BACKEND, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for lengths in ([3, 6, 2], [5, 5, 3, 1]):
            x = nn.utils.rnn.pack_sequence([torch.randn(n, 3) for n in lengths], enforce_sorted=False)
            found, wanted = compiled(x), model(x)
            torch.testing.assert_close(found, wanted)
            assert type(found[0]) is nn.utils.rnn.PackedSequence
            hx = torch.randn(1, len(lengths), 4), torch.randn(1, len(lengths), 4)
            torch.testing.assert_close(compiled(x, hx), model(x, hx))
    assert {exe.machine.externs for exe in made} == {()}


def test_packed_sequences_in_training_are_left_to_pytorch(made: list[Any]) -> None:
    model, x, n = _Packs(nn.GRU, False, True), torch.randn(3, 6, 3), torch.tensor([6, 4, 2])
    compiled = torch.compile(model, backend=BACKEND, dynamic=True)
    torch.testing.assert_close(compiled(x, n)[0], model(x, n)[0])
    compiled(x, n)[0].sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.softmax(x @ y, -1).cumsum(0),
        lambda x, y: nn.functional.layer_norm(torch.tanh(x), (3,)) @ y.t(),
        lambda x, y: torch.cat([x[1:], x[:1] * y.mean()]).std(0),
    ],
)
def test_gradients_are_those_of_differences(function: Any) -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.compile(function, backend=BACKEND, dynamic=True), (x, y))


# Sizes --------------------------------------------------------------------------------------------


def test_a_marked_axis_never_compiles_again(made: list[Any]) -> None:
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1), backend=BACKEND)
    for n in (5, 6, 33, 2):
        x = torch.randn(n, 4)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1))
    assert len(made) == 1


@pytest.mark.parametrize("dynamic", [True, False, None])
def test_sizes_of_0_and_1(dynamic: bool | None) -> None:
    compiled = torch.compile(lambda x: (x.sum(0), x.relu()), backend=BACKEND, dynamic=dynamic)
    for n in (3, 0, 1, 4):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), (x.sum(0), x.relu()))


def test_sizes_are_results_and_numbers() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * (x.shape[0] ** 0.5), x.shape[0] * x.shape[1], x / x.shape[1]

    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    for shape in ((4, 5), (6, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x))


# Weights ------------------------------------------------------------------------------------------


def test_weights_are_constants_until_they_change(made: list[Any]) -> None:
    model = nn.Linear(4, 3)
    compiled, x = torch.compile(model, backend=BACKEND), torch.randn(5, 4)
    n_inputs = []
    for _ in range(5):
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x))
            n_inputs.append(len(made[-1].machine.inputs))
            model.weight.mul_(1.5)
    assert n_inputs == [1, 1, 1, 3, 3] and len(made) == 4


def test_weights_that_are_not_frozen(made: list[Any]) -> None:
    model = nn.Linear(4, 3)
    compiled, x = torch.compile(model, backend=BACKEND, options={"freeze": False}), torch.randn(5, 4)
    with torch.no_grad():
        compiled(x)
        model.weight.data.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(made) == 1


def test_weights_written_past_their_version(made: list[Any]) -> None:
    """Through `.data` and numpy; of shapes that take whole words, single bytes, and parts of a storage."""
    whole = torch.randn(100)
    model = nn.ParameterList(
        [torch.randn(40, 30), torch.randn(3), torch.randn(()), torch.randn(9, 70).t(), whole[20:70:2]]
    )
    compiled = torch.compile(lambda x: [x * each.sum() for each in model], backend=BACKEND)
    x = torch.ones(2)
    with torch.no_grad():
        for i, weight in enumerate(model):
            torch._dynamo.reset()
            torch.testing.assert_close(compiled(x), [x * each.sum() for each in model])
            n_made = len(made)
            (weight.data if i % 2 else torch.from_numpy(weight.data.numpy())).mul_(2)
            torch.testing.assert_close(compiled(x), [x * each.sum() for each in model])
            assert len(made) == n_made + 1


def test_weights_of_inference_mode() -> None:
    with torch.inference_mode():
        model = nn.Linear(4, 3)
        compiled, x = torch.compile(model, backend=BACKEND), torch.randn(5, 4)
        compiled(x)
        model.weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))


def test_attention_without_gradients_is_a_kernel(made: list[Any]) -> None:
    def attend(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        parts = nn.functional.linear(x, torch.ones(24, 8)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask, scale=0.3).flatten(-2)

    compiled = torch.compile(attend, backend=BACKEND, dynamic=True)
    for batch, length in ((2, 5), (3, 7)):
        x, mask = torch.randn(batch, length, 8), torch.ones(length, length).tril() > 0
        torch.testing.assert_close(compiled(x, mask), attend(x, mask))
    assert [program.machine.externs for program in made] == [()]


# Arguments, results, code -------------------------------------------------------------------------


def test_attention_with_what_came_before(made: list[Any]) -> None:
    """Dynamo does not know that past keys and values have one length."""

    def decode(x: torch.Tensor, past: list[torch.Tensor]) -> torch.Tensor:
        keys, values = (torch.cat([each, x], 2) for each in past)
        return nn.functional.scaled_dot_product_attention(x, keys, values)

    run = torch.compile(decode, backend=BACKEND, dynamic=True)
    with torch.no_grad():
        for batch, past, length in ((1, 5, 1), (1, 1, 7), (3, 9, 4)):
            both = [torch.randn(batch, 2, past, 8), torch.randn(batch, 2, past, 8)]
            x = torch.randn(batch, 2, length, 8)
            torch.testing.assert_close(run(x, both), decode(x, both))
    assert not any(exe.machine.externs for exe in made)


def test_inputs_and_buffers_that_change() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y[1:].mul_(2)
        return x * y

    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    ours = [torch.randn(4, 3), torch.randn(4, 3)]
    theirs = [x.clone() for x in ours]
    torch.testing.assert_close(compiled(*ours), function(*theirs))
    torch.testing.assert_close(ours, theirs)
    norm = nn.BatchNorm1d(3)
    eager = copy.deepcopy(norm)
    with torch.no_grad():
        compiled = torch.compile(norm, backend=BACKEND)
        for _ in range(3):
            x = torch.randn(5, 3)
            torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(norm.state_dict(), eager.state_dict())


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(("height", "width"), [(6, 6), (4, 9)])
def test_columns_whose_number_a_guard_tells(height: int, width: int, gradients: bool) -> None:
    """A product's K is the weight's number, which the images' sizes give by a guard alone."""
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)
    model = nn.Sequential(*layers)
    compiled = torch.compile(model, backend=BACKEND, dynamic=True)
    with torch.set_grad_enabled(gradients):
        for batch in (2, 5, 1):
            x = torch.randn(batch, 3, height, width)
            found, expected = compiled(x), model(x)
            torch.testing.assert_close(found, expected)
            if gradients:
                weights = list(model.parameters())
                ours, theirs = (torch.autograd.grad(y.square().sum(), weights) for y in (found, expected))
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_batches_whose_number_a_guard_tells() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x.reshape(-1, x.shape[2], x.shape[3]), y)

    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    for a, b, m in ((2, 6, 5), (3, 4, 7)):
        x, y = torch.randn(a, b, m, 4), torch.randn(12, 4, 9)
        torch.testing.assert_close(compiled(x, y), function(x, y))


def test_results_lie_in_memory_as_in_eager() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return (x + 1).permute(0, 2, 3, 1), (x * 2).transpose(1, 3)[:, 1], w.t(), w

    x, w = torch.randn(2, 3, 4, 4), torch.randn(3, 2)
    found, expected = torch.compile(function, backend=BACKEND, dynamic=True)(x, w), function(x, w)
    torch.testing.assert_close(found, expected, check_stride=True)
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    picture = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        compiled = torch.compile(lambda x: conv(x).permute(0, 2, 3, 1).view(-1, 4), backend=BACKEND)
        torch.testing.assert_close(compiled(picture), conv(picture).permute(0, 2, 3, 1).reshape(-1, 4))


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("dynamic", [True, False])
def test_results_share_memory_as_in_eager(gradients: bool, dynamic: bool) -> None:
    """What is written into one result is seen in another, and in the argument that it is a view of."""

    def function(x: torch.Tensor) -> Any:
        y, n = x.relu(), x.shape[0]
        first, second = y.split(2, 1)
        views = y[0], y[:, 1:], y.t(), y.view(-1), first, second, y.unfold(0, 2, 1), y.detach()
        z = x * 2
        return (
            y,
            *views,
            x[1:],
            x.view(2, n // 2, 4),
            z[0],
            z[1:],
            z.view(2, -1),
            (x + 1)[0],
            y.as_strided((2,), (3,)),
        )

    compiled = torch.compile(function, backend=BACKEND, dynamic=dynamic)
    with torch.set_grad_enabled(gradients):
        for n in (4, 6):
            x = torch.randn(n, 4)
            n_results = len(function(x))
            for i in range(n_results):
                ours, theirs = x.clone(), x.clone()
                found, expected = compiled(ours), function(theirs)
                torch.testing.assert_close(found, expected, check_stride=True)
                found[i].fill_(7)
                expected[i].fill_(7)
                torch.testing.assert_close((ours, *found), (theirs, *expected))


def test_an_argument_expanded_as_another() -> None:
    functions = (
        lambda x, y: x.expand_as(y),
        lambda x, y: (x + 1).expand_as(y),
        lambda x, y: x.expand(y.shape[0] * 2, -1),
    )
    for function in functions:
        compiled = torch.compile(function, backend=BACKEND, dynamic=True)
        for n in (3, 5):
            for gradients in (True, False):
                with torch.set_grad_enabled(gradients):
                    x, y = torch.randn(1, 4), torch.randn(n, 4)
                    torch.testing.assert_close(compiled(x, y), function(x, y), check_stride=True)


def test_graphs_without_tensors() -> None:
    def function(n: int) -> torch.Tensor:
        x = torch.ones(n, dtype=torch.bfloat16)
        torch._dynamo.graph_break()
        return x / 3 + torch.arange(n)

    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    for n in (3, 3, 3, 5):
        torch.testing.assert_close(compiled(n), function(n))


def test_graph_breaks() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 1
        torch._dynamo.graph_break()
        if y.sum() > 0:
            return y * 2
        return y - 1

    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    for n in (3, 5):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), function(x))


def test_what_cannot_be_compiled_runs_in_pytorch(fallbacks: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x)

    compiled = torch.compile(function, backend=BACKEND)
    x = torch.randn(4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x))
    assert len(fallbacks) == 1 and "complex" in fallbacks.pop()


def test_a_call_that_is_refused_runs_in_pytorch(made: list[Any], fallbacks: list[str]) -> None:
    compiled = torch.compile(lambda x: x * 2, backend=BACKEND)
    x = torch.randn(3)
    compiled(x)
    with mock.patch.object(made[0].machine, "call", mock.Mock(side_effect=GuardError("it is Monday"))):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), x * 2)
    assert fallbacks == ["a call of the model runs in PyTorch: it is Monday"]
    fallbacks.clear()


def test_a_defect_of_the_compiler_is_told_with_its_type(
    monkeypatch: pytest.MonkeyPatch, fallbacks: list[str]
) -> None:
    monkeypatch.setattr(dynamo, "_executable", mock.Mock(side_effect=KeyError("loop")))
    compiled = torch.compile(lambda x: x * 2, backend=BACKEND)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert fallbacks == ["a graph of the model runs in PyTorch: KeyError: 'loop'"]
    fallbacks.clear()


def test_meta_tensors_run_in_pytorch(fallbacks: list[str]) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend=BACKEND)
    for _ in range(2):
        found = compiled(torch.empty(3, 4, device="meta"))
        assert found.device.type == "meta" and found.shape == (3, 4)
    assert len(fallbacks) == 1 and "on meta" in fallbacks.pop()


def test_jagged_tensors_run_in_pytorch(fallbacks: list[str]) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend=BACKEND)
    for lengths in ((2, 3), (1, 4, 2)):
        x = torch.nested.nested_tensor([torch.randn(n, 4) for n in lengths], layout=torch.jagged)
        torch.testing.assert_close(compiled(x).values(), x.values() * 2 + 1)
    assert fallbacks and all("jagged" in text for text in fallbacks)
    fallbacks.clear()


def test_sparse_buffers() -> None:
    class Graph(nn.Module):
        def __init__(self, layout: torch.layout) -> None:
            super().__init__()
            self.register_buffer("edges", torch.eye(3).to_sparse(layout=layout))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.edges @ x + 1

    for layout in (torch.sparse_coo, torch.sparse_csr):
        model, x = Graph(layout), torch.randn(3, 2)
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                torch._dynamo.reset()
                torch.testing.assert_close(torch.compile(model, backend=BACKEND)(x), model(x))


def test_threads_share_a_graph(made: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).requires_grad_(False)
    compiled = torch.compile(model, backend=BACKEND, dynamic=True)
    inputs = [torch.randn(n, 8) for n in range(2, 40)]
    compiled(inputs[0])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(compiled, inputs))
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, model(x))
    assert len(made) == 1


def test_options() -> None:
    with pytest.raises(Exception, match="option 'speed' is unknown; known are sizes, buckets, target, fall"):
        torch.compile(lambda x: x + 1, backend=BACKEND, options={"speed": 1})(torch.ones(2))
    with pytest.raises(ArgumentError, match="strategy 'fast' is unknown"):
        dynamo._options({"strategy": "fast"})
    with pytest.raises(ArgumentError, match="mode 'fast' is unknown; known are default, lite"):
        dynamo._options({}, "fast")
    x = torch.randn(3)
    compiled = torch.compile(lambda x: x + 1, backend=BACKEND, options={"strategy": "generic"})
    torch.testing.assert_close(compiled(x), x + 1)


@pytest.mark.parametrize("mode", list(list_mode_options()))
def test_modes(mode: str, made: list[Any]) -> None:
    compiled = torch.compile(lambda x: x.exp() + 1, backend=BACKEND, mode=mode, dynamic=True)
    for n in (5, 3):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), x.exp() + 1)
    wanted = "exact" if "max" in mode else made[0].stats().tier()
    assert made[0].stats().tier() == wanted


def test_an_operator_with_fewer_results_than_traced(fallbacks: list[str]) -> None:
    library = torch.library.Library("shapevm_undefined", "DEF")
    library.define("two(Tensor x) -> (Tensor, Tensor)")
    library.impl("two", lambda x: (x * 2, None), "CPU")
    library.impl("two", lambda x: (torch.empty_like(x), torch.empty_like(x)), "Meta")

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.shapevm_undefined.two(x + 1)[0] * 3

    compiled, x = torch.compile(function, backend=BACKEND), torch.randn(3)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))
    (text,) = fallbacks
    assert "gave 1 results; the program takes 2" in text
    fallbacks.clear()


def _grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)


def _heads(length: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(1, 4, length, 16), torch.randn(1, 2, length, 16), torch.randn(1, 2, length, 16)


@pytest.mark.parametrize("dynamic", [True, False, None])
@pytest.mark.parametrize("is_causal", [False, True])
def test_grouped_queries(dynamic: bool | None, is_causal: bool) -> None:
    compiled = torch.compile(_grouped, backend=BACKEND, dynamic=dynamic)
    with torch.no_grad():
        for length in (7, 9):
            args = _heads(length)
            torch.testing.assert_close(compiled(*args, is_causal), _grouped(*args, is_causal))


@pytest.mark.parametrize("dynamic", [True, False])
def test_gradients_of_grouped_queries(dynamic: bool) -> None:
    compiled = torch.compile(_grouped, backend=BACKEND, dynamic=dynamic)
    args = [x.requires_grad_() for x in _heads(7)]
    found, wanted = (torch.autograd.grad(f(*args, True).square().sum(), args) for f in (compiled, _grouped))
    torch.testing.assert_close(found, wanted)


def test_pytorch_runs_the_graph_as_it_came(monkeypatch: pytest.MonkeyPatch, fallbacks: list[str]) -> None:
    def refuse(*args: Any) -> None:
        raise KeyError("attention")

    monkeypatch.setattr(dynamo, "run_passes", refuse)
    compiled, args = torch.compile(_grouped, backend=BACKEND), _heads(5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args, False), _grouped(*args, False))
    assert len(fallbacks) == 1
    fallbacks.clear()
