"""Packed text: padded batches of tokens become the valid tokens, one after the other."""
