"""Running sums, products, extrema."""
