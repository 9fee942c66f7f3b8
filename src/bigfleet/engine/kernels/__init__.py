"""How the engine's kernels are written, compiled and kept."""
