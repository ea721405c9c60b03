"""The plain reference of speculative decoding: every algorithm written to be read, each rule's output law proven exactly."""
