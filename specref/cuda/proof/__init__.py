"""How the kernels are shown to be right: cases, sanitizers, deleted barriers, planted faults, traffic, registers."""
