"""Reports on a program's content, history and costs, for people and monitoring."""
