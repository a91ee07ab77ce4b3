"""Regions of images, sampled to one size."""
