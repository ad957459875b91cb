"""The report of a round: one HTML file that opens anywhere, written from the records alone."""
