"""Other libraries of sparse Gaussian processes, trained on the same problem from the same start."""
