"""The session: a program that is called with inputs by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from ..vm.host import set_threads
from .absent import WHY, refused
from .binding import IOBinding
from .errors import Fail, InvalidArgument, as_theirs
from .options import RunOptions, SessionOptions
from .programs import open_model
from .values import ModelMetadata, NodeArg, OrtValue

PROVIDER = "CPUExecutionProvider"
#: numpy's name of each of ONNX Runtime's types that differs from it.
_NUMPY = {"float": "float32", "double": "float64", "bfloat16": "uint16"}


class InferenceSession:
    """Runs a model, with the names and argument orders of ONNX Runtime's class."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **_: Any,
    ) -> None:
        """Open a model's path or bytes. The first session of a model compiles it; later ones, of other
        processes too, open what it kept. Providers other than the CPU's are left out, as ONNX Runtime does
        where they are not installed.

        Raises the exceptions of `shapevm.onnx.errors`, which are errors of shapevm as well.
        """
        self._options = sess_options or SessionOptions()
        if self._options.optimized_model_filepath:
            raise Fail(
                "optimized_model_filepath is given, but a compiled program is no ONNX model; write an "
                "artifact with shapevm compile"
            )
        self._options.apply_log_level()
        if self._options.intra_op_num_threads:
            set_threads(self._options.intra_op_num_threads)
        with as_theirs(loading=True):
            opened = open_model(path_or_bytes, self._options.numbers)
        #: The program, for everything that ONNX Runtime has no name for.
        self.executable = opened.program
        self._description = opened.description
        self._inputs = {each.name: each for each in opened.description.inputs}
        self._outputs = [each.name for each in opened.description.outputs]
        self._profile: Any = None
        self._started = time.time_ns()
        self._profiling = ExitStack()
        if self._options.enable_profiling:
            self._profile = self._profiling.enter_context(self.executable.profile())

    # Descriptions

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs, without weights."""
        return list(self._description.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return list(self._description.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the weights that the model lists among its inputs. They are those of the model in every
        call."""
        return list(self._description.weights)

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the model says of itself."""
        return self._description.meta

    def get_providers(self) -> list[str]:
        """Return the CPU's provider."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return no options of the CPU's provider."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Do nothing: programs run on the CPU."""

    def get_session_options(self) -> SessionOptions:
        """Return the options."""
        return self._options

    enable_fallback = disable_fallback = release_captured_graph = set_providers
    get_input_epdevices = get_input_memory_infos = get_output_memory_infos = refused(WHY)
    get_provider_graph_assignment_info = set_ep_dynamic_options = refused(WHY)
    get_tuning_results = set_tuning_results = refused("kernels are chosen without tuning")
    create_ortvalue_from_shape_and_type = staticmethod(OrtValue.ortvalue_from_shape_and_type)

    # Calls

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[np.ndarray]:
        """Return the outputs of these names, all if there are none, for inputs by name."""
        names = self._chosen(output_names)
        results = self._call(input_feed, run_options)
        return [results[name] for name in names]

    def _chosen(self, names: Sequence[str] | None) -> list[str]:
        if not names:
            return self._outputs
        for name in names:
            if name not in self._outputs:
                raise InvalidArgument(
                    f"{name!r} is no output of the model; it has {', '.join(self._outputs)}"
                )
        return list(names)

    def _call(self, feed: Mapping[str, Any], options: RunOptions | None) -> dict[str, Any]:
        if options is not None and options.terminate:
            raise Fail("Exiting due to terminate flag being set to true.")
        if options is not None:
            options.apply_log_level()
        missing = [name for name in self._inputs if name not in feed]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
        for name in feed:
            if name not in self._inputs and not any(name == each.name for each in self._description.weights):
                raise InvalidArgument(f"{name!r} is no input of the model; it has {', '.join(self._inputs)}")
        with as_theirs():
            made = self.executable(*(_array(feed[name], each) for name, each in self._inputs.items()))
        results = made if isinstance(made, tuple) else (made,)
        return dict(zip(self._outputs, map(np.asarray, results), strict=True))

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Like `run`, of values."""
        return [OrtValue(each) for each in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run on a separate thread, then call `callback(results, user_data, error)`."""
        from threading import Thread

        def work() -> None:
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:  # it is handed to the caller
                callback([], user_data, str(error))
            else:
                callback(results, user_data, "")

        Thread(target=work, daemon=True).start()

    run_with_ortvaluevector = refused("give values by name: use run_with_ort_values")

    def io_binding(self) -> IOBinding:
        """Return a binding without inputs and outputs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on bound inputs; the results are in the binding."""
        results = self._call(iobinding.inputs, run_options)
        iobinding.keep({name: results[name] for name in iobinding.outputs})

    # Profiles

    def get_profiling_start_time_ns(self) -> int:
        """Return when the session was opened, in nanoseconds."""
        return self._started

    def end_profiling(self) -> str:
        """Write the profile as a trace of Chrome and return its path; "" if profiling is off."""
        if self._profile is None:
            return ""
        self._profiling.close()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        path = f"{self._options.profile_file_prefix}_{stamp}_{os.getpid()}.json"
        self._profile.to_chrome_trace(path)
        self._profile = None
        return path


def _array(value: Any, wanted: NodeArg) -> Any:
    """Return an input as an array; lists get the input's dtype."""
    if isinstance(value, OrtValue):
        return value.numpy()
    if isinstance(value, list | tuple | int | float | bool):
        name = wanted.type.removeprefix("tensor(").removesuffix(")")
        return np.asarray(value, _NUMPY.get(name, name))
    return value
