# SPDX-License-Identifier: Apache-2.0
"""Molmo2 for make_seeing_numbers.py: what its processors make of odd pictures and of a video, and the tokens that stand for them."""
import torch
from transformers.models.molmo2.image_processing_molmo2 import Molmo2ImageProcessor
from transformers.models.molmo2.video_processing_molmo2 import Molmo2VideoProcessor

SIZES = ((13, 31), (9, 9), (40, 17))  # height and width
# Which of its tokens is which, counted from that of a patch.
START, END, PATCH, COLUMN, SMALL_START, FRAME_START, FRAME_END = -2, -1, 0, 1, 2, 5, 6


def processors(config):
    vision = config.vision_config
    side = {"size": {"height": vision.image_size[0], "width": vision.image_size[0]}, "patch_size": vision.patch_size}
    return Molmo2ImageProcessor(**side, max_crops=4, overlap_margins=[1, 1]), Molmo2VideoProcessor(**side, do_sample_frames=False, do_rescale=True, do_normalize=True)


def pixels(count, height, width):
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8)


def picture(config, number):
    return dict(processors(config)[0](list(pixels(1, *SIZES[number])), return_tensors="pt"))


def video(config):
    made = processors(config)[1]([pixels(3, 14, 19)], return_tensors="pt")
    return {k: made[k] for k in ("pixel_values_videos", "video_token_pooling", "video_grids")}


def lines(token, high, wide, column):
    return ([token + PATCH] * wide + [token + COLUMN] * column) * high


def tokens_of(config, given):
    """Of one picture: all of it, and then its windows, line after line."""
    token, (small_high, small_wide, high, wide) = config.image_patch_id, given["image_grids"][0].tolist()
    return ([token + SMALL_START] + lines(token, small_high, small_wide, True) + [token + END]
            + [token + START] + lines(token, high, wide, True) + [token + END])


def tokens_of_video(config, given, words):
    """Each frame behind two words, which say when it was."""
    token, (frames, high, wide) = config.image_patch_id, given["video_grids"][0].tolist()
    return [t for i in range(frames) for t in
            words[2 * i: 2 * i + 2] + [token + FRAME_START] + lines(token, high, wide, False) + [token + FRAME_END]]


def together(parts):
    """Rows of patches are counted over all pictures."""
    first, pooling = 0, []
    for part in parts:
        own = part["image_token_pooling"]
        pooling.append(torch.where(own >= 0, own + first, own))
        first += part["pixel_values"].shape[0] * part["pixel_values"].shape[1]
    return {**{k: torch.cat([p[k] for p in parts]) for k in parts[0]}, "image_token_pooling": torch.cat(pooling)}


def kinds(config, row):
    """1 of all that belongs to a picture or a frame."""
    return (torch.tensor([row]) >= config.text_config.vocab_size).int()


def hub_tables(tensors, words):
    """transformers 5.24 writes halves of the embedding; files of the hub hold words, and what only pictures have."""
    names = ["model.transformer.wte.embedding", "model.transformer.wte.new_embedding"]
    table = torch.cat([tensors[n] for n in names])
    return {**tensors, names[0]: table[:words].contiguous(), names[1]: table[words:].contiguous()}
