"""LLVM IR as text: functions, vectors, dtypes, loads and stores, targets, the kernels' ABI."""
