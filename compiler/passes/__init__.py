"""Graph passes, one per file; `pipeline` is their order."""
