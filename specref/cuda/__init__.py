"""The verification rules as CUDA kernels, and a CPU emulator that runs the same source."""
