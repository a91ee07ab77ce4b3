"""Convolutions on channels-last images."""
