"""The judge: statistics with one stated error rate, checks, adapters to engines, planted faults."""
