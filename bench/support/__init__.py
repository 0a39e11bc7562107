"""What several benchmarks share: generated histories, conversations, and peers to compare with."""
