"""Options of sessions and calls, with the names that ONNX Runtime gives them."""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import Any

from .absent import WHY, refused
from .errors import InvalidArgument

_LOG = logging.getLogger("shapevm")
#: The level of Python's log for each of ONNX Runtime's.
_LEVELS = {0: logging.DEBUG, 1: logging.INFO, 2: logging.WARNING, 3: logging.ERROR, 4: logging.CRITICAL}


def set_default_logger_severity(severity: int) -> None:
    """Set the level of shapevm's log: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal. Raises InvalidArgument
    for others."""
    if severity not in _LEVELS:
        raise InvalidArgument(
            f"the log severity is {severity!r}; it must be 0 (verbose), 1 (info), 2 (warning), 3 (error) or "
            "4 (fatal)"
        )
    _LOG.setLevel(_LEVELS[int(severity)])


class GraphOptimizationLevel(IntEnum):
    """Accepted and without effect: every program is compiled in full."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Accepted and without effect: kernels run one after the other, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Accepted and without effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Fields:
    """An object whose fields are named: any other is an error, as in ONNX Runtime."""

    _fields: dict[str, Any]

    def __init__(self) -> None:
        for name, default in self._fields.items():
            object.__setattr__(self, name, default)
        self._entries: dict[str, str] = {}

    def _add_entry(self, key: str, value: str) -> None:
        """Keep a configuration entry, which has no effect."""
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        """Return a configuration entry. Raises RuntimeError for one that was not added."""
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]

    def apply_log_level(self) -> None:
        """Set the level of shapevm's log to the severity that is given, if one is: -1 is none."""
        if self.log_severity_level != -1:
            set_default_logger_severity(self.log_severity_level)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(self._fields)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields and not name.startswith("_"):
            self.__getattr__(name)
        object.__setattr__(self, name, value)


_WEIGHTS = "weights cannot be replaced: the program is compiled with the model's; write a model"


class SessionOptions(_Fields):
    """Options of a session. `intra_op_num_threads` sets the threads of the process, `log_severity_level` the
    level of shapevm's log; `enable_profiling` and `profile_file_prefix` write a trace. The others have no
    effect.
    """

    _fields = {
        "intra_op_num_threads": 0, "inter_op_num_threads": 0, "enable_profiling": False,
        "profile_file_prefix": "onnxruntime_profile_", "log_severity_level": -1, "log_verbosity_level": 0,
        "logid": "", "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL, "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True, "enable_mem_reuse": True, "use_deterministic_compute": False,
        "use_per_session_threads": True, "optimized_model_filepath": "",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}

    @property
    def numbers(self) -> dict[str, int]:
        """The values of the model's named sizes."""
        return dict(self._numbers)

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Give a named size of the model a value."""
        self._numbers[name] = int(value)

    add_free_dimension_override_by_denotation = refused(
        "sizes have no denotations here; use add_free_dimension_override_by_name"
    )
    add_session_config_entry, get_session_config_entry = _Fields._add_entry, _Fields._entry

    register_custom_ops_library = refused(
        "operators for ONNX Runtime cannot be called by shapevm; use others"
    )
    add_initializer = refused(_WEIGHTS)
    add_external_initializers = add_external_initializers_from_files_in_memory = refused(_WEIGHTS)
    set_provider_selection_policy = set_provider_selection_policy_delegate = refused(WHY)
    add_provider = add_provider_for_devices = set_ep_context_data_read_func = refused(WHY)
    clear_ep_context_data_read_func = refused(WHY)
    set_load_cancellation_flag = refused("opening a session cannot be cancelled; use a process for it")

    def has_providers(self) -> bool:
        """Return False."""
        return False


class RunOptions(_Fields):
    """Options of a call. `terminate` refuses the call, `log_severity_level` sets the level of shapevm's log;
    the others have no effect."""

    _fields = {
        "log_severity_level": -1, "log_verbosity_level": 0, "logid": "", "terminate": False,
        "only_execute_path_to_fetches": False,
    }  # fmt: skip

    add_run_config_entry, get_run_config_entry = _Fields._add_entry, _Fields._entry
    add_active_adapter = refused(_WEIGHTS)
