"""Families that move elements to positions which depend on data, and scans."""
