"""Episodes on disk and in memory, how they are labelled, and the datasets that mix them."""
