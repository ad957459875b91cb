"""World models: video diffusion transformers that draw what follows an action chunk."""
