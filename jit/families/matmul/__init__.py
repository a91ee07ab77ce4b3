"""Matrix products with prologue and epilogue."""
