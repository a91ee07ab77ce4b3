"""Run times: of code objects on made-up data, and of this machine's register tiles."""
