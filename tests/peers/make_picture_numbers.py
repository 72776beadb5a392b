# SPDX-License-Identifier: Apache-2.0
"""What transformers' processors make of odd pictures, for families that came after the first: tests/data/media/towers.{json,safetensors}.

  make_picture_numbers.py tests/data/media

The processors are those that resize with Pillow, which must be one before 13 (11.3 was used): since then lines may come before columns,
and numbers are a level off. Each case has its preprocessor_config.json, with small sizes."""
import json
import os
import sys

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

CASES = {
    "gemma3": (Gemma3ImageProcessorPil, {"size": {"height": 24, "width": 24}}, {}),
    "llava": (LlavaImageProcessorPil, {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}, {}),
    "llava_padded": (LlavaImageProcessorPil, {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}, "do_pad": True}, {}),
    "mistral3": (PixtralImageProcessorPil, {"size": {"longest_edge": 40}}, {"patch_size": 8}),
    "idefics3": (Idefics3ImageProcessorPil, {"size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 16}}, {"return_row_col_info": True}),
    "idefics3_whole": (Idefics3ImageProcessorPil, {"size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 16}, "do_image_splitting": False}, {}),
}
SIZES = ((61, 37), (23, 50))  # width, height


def main():
    random, tensors, numbers = np.random.default_rng(11), {}, {}
    for i, (width, height) in enumerate(SIZES):
        # Soft hills with hard edges in them.
        y, x = np.mgrid[:height, :width]
        picture = 128 + 90 * np.sin(x / 3 + i)[..., None] * np.cos(y / 4)[..., None] * np.array([1, -0.6, 0.3])
        picture[height // 3: height // 2, width // 4: width // 2] = random.integers(0, 256, 3)
        tensors[f"picture/{i}"] = torch.from_numpy(np.clip(picture + random.normal(0, 9, picture.shape), 0, 255).astype(np.uint8))
    for name, (processor, said, more) in CASES.items():
        made = processor(**said)
        numbers[name] = {k: v for k, v in {**made.to_dict(), **said}.items()
                         if k in ("size", "crop_size", "max_image_size", "do_pad", "do_center_crop", "do_image_splitting", "image_mean", "image_std", "resample")}
        for i in range(len(SIZES)):
            out = made([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="np", **more)
            tensors[f"{name}/{i}"] = torch.from_numpy(np.asarray(out["pixel_values"], dtype=np.float32)).contiguous()
    numbers = json.loads(json.dumps(numbers, default=lambda v: int(v) if hasattr(v, "__index__") else dict(v)))
    save_file(tensors, os.path.join(sys.argv[1], "towers.safetensors"))
    with open(os.path.join(sys.argv[1], "towers.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)
    print({k: tuple(v.shape) for k, v in tensors.items()})


main()
