"""The guarantees on a program's results, tested on inputs."""
