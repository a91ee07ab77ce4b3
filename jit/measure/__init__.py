"""Run times: of code objects on made-up data, of this machine's register tiles, and what limits kernels."""
