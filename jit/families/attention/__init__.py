"""Attention: softmax(q k^T) v without the matrix of scores."""
