"""A Qwen3-VL of a few hundred thousand parameters with a tokenizer of our own, in the layout that the hub has.

It knows nothing. It is there so that the reading (tokens, window, metadata, cache) runs on a laptop through the very
classes that read at full size, and can be trained to answer about small frames.
"""

from __future__ import annotations

from pathlib import Path

import torch

from coevo.rewards.vlm_config import Prompt, TinyVlm

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
SPREAD = 0.1
"""Standard deviation of new weights: at 0.02, that of wide models, so narrow a one learns nothing for long."""
WORDS = 512
"""Size of the vocabulary at the most: 256 bytes, the special tokens, and merges of the words below."""


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer, the same on every machine; ' True' and ' False' are one token each."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    prompts = [Prompt().before + Prompt().after, "The task is: How far is it done, from 0 to 10?", "<0.5 seconds>"]
    tokenizer.train_from_iterator([*prompts, *(f"The answer is:{word}" for word in (" True", " False"))] * 4, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    ).save_pretrained(folder)


def make_model(settings: TinyVlm, tokenizer):
    """The model with random weights from torch's generator: the caller seeds it."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    size = settings.hidden // settings.heads
    if settings.hidden % settings.heads or size % 4:
        raise ValueError(f"hidden = {settings.hidden} over {settings.heads} heads: give each a multiple of 4")
    half = size // 2
    token = tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config=dict(
            vocab_size=len(tokenizer), hidden_size=settings.hidden, intermediate_size=2 * settings.hidden,
            num_hidden_layers=settings.layers, num_attention_heads=settings.heads,
            num_key_value_heads=settings.heads, head_dim=size, max_position_embeddings=4096, initializer_range=SPREAD,
            rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, mrope_interleaved=True,
                mrope_section=[half - 2 * (half // 4), half // 4, half // 4],
            ),
        ),
        vision_config=dict(
            depth=settings.vision_layers, hidden_size=settings.hidden, intermediate_size=2 * settings.hidden,
            num_heads=settings.heads, patch_size=settings.patch, spatial_merge_size=2, temporal_patch_size=2,
            out_hidden_size=settings.hidden, num_position_embeddings=64, deepstack_visual_indexes=[0],
            initializer_range=SPREAD,
        ),
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"),
    )  # fmt: skip
    return Qwen3VLForConditionalGeneration(config)


def write(folder: Path, settings: TinyVlm | None = None, seed: int = 0) -> None:
    """Model and tokenizer as a folder that `PretrainedVlm(model=folder)` loads like one of the hub."""
    from transformers import AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make_model(settings or TinyVlm(), AutoTokenizer.from_pretrained(folder)).save_pretrained(folder)
