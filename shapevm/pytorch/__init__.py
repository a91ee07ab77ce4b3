"""Programs inside PyTorch: the backend of torch.compile, and partly compiled models."""
