"""Work spread over processes and GPUs. Randomness is keyed by the work item, so spreading changes no result."""
