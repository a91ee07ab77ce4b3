"""The graph IR: values, types, symbolic sizes, and graphs as text. It imports no operator."""
