"""The compilation of exact kernels: which ones, when and by which process; profiles, buckets and tuning."""
