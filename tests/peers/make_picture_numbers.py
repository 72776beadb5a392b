# SPDX-License-Identifier: Apache-2.0
"""What transformers' processors make of odd pictures and of a sound, for families that came after the first: tests/data/media/towers.{json,safetensors}.

  make_picture_numbers.py tests/data/media

The processors are those that resize with Pillow, which must be one before 13 (11.3 was used): since then lines may come before columns,
and numbers are a level off. Each case has its preprocessor_config.json, with small sizes."""
import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file
from transformers.video_utils import VideoMetadata
from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import DeepseekOcr2ImageProcessorPil
from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import DeepseekVLImageProcessorPil
from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe import Ernie4_5_VLMoeImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3n.feature_extraction_gemma3n import Gemma3nAudioFeatureExtractor
from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.gemma4_unified.image_processing_gemma4_unified import patches_merge
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil, smart_resize
from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import HunYuanVLImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
from transformers.models.llama4.image_processing_llama4 import Llama4ImageProcessor, find_supported_resolutions, get_best_fit
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.ovis2.image_processing_pil_ovis2 import Ovis2ImageProcessorPil
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil
from transformers.models.kimi_k25.image_processing_kimi_k25 import navit_resize
from transformers.models.mllama.image_processing_pil_mllama import MllamaImageProcessorPil, get_optimal_tiled_canvas
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.molmo2.image_processing_molmo2 import Molmo2ImageProcessor
from transformers.models.molmo2.processing_molmo2 import Molmo2Processor
from transformers.models.molmo2.video_processing_molmo2 import Molmo2VideoProcessor
from transformers.models.qwen3_asr.feature_extraction_qwen3_asr import Qwen3ASRFeatureExtractor
from transformers.models.qwen3_asr.modeling_qwen3_asr import _get_feat_extract_output_lengths
from transformers.image_utils import SizeDict
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import SmolVLMProcessor
from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor
from transformers.models.phi4_multimodal import image_processing_phi4_multimodal as phi4
from transformers.models.phi4_multimodal.feature_extraction_phi4_multimodal import Phi4MultimodalFeatureExtractor
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

CASES = {
    "gemma3": (Gemma3ImageProcessorPil, {"size": {"height": 24, "width": 24}}, {}),
    "gemma3n": (SiglipImageProcessorPil, {"size": {"height": 24, "width": 24}, "resample": 2, "do_normalize": False}, {}),
    "llava": (LlavaImageProcessorPil, {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}, {}),
    "llava_padded": (LlavaImageProcessorPil, {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}, "do_pad": True}, {}),
    "mistral3": (PixtralImageProcessorPil, {"size": {"longest_edge": 40}}, {"patch_size": 8}),
    "idefics3": (Idefics3ImageProcessorPil, {"size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 16}}, {"return_row_col_info": True}),
    "idefics3_whole": (Idefics3ImageProcessorPil, {"size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 16}, "do_image_splitting": False}, {}),
    "got_ocr2": (GotOcr2ImageProcessorPil, {"size": {"height": 24, "width": 24}}, {}),
    "deepseek_vl": (DeepseekVLImageProcessorPil, {"size": {"height": 24, "width": 24}, "min_size": 6}, {}),
}
# Those that give rows of patches.
PATCHES = {
    "ernie4_5_vl_moe": (Ernie4_5_VLMoeImageProcessorPil, {"size": {"shortest_edge": 512, "longest_edge": 2048}, "patch_size": 4}),
    "glm4v": (Glm4vImageProcessorPil, {"size": {"shortest_edge": 512, "longest_edge": 2048}, "patch_size": 4}),
    "hunyuan_vl": (HunYuanVLImageProcessorPil, {"size": {"shortest_edge": 512, "longest_edge": 2048}, "patch_size": 4}),
    "paddleocr_vl": (PaddleOCRVLImageProcessorPil, {"size": {"shortest_edge": 512, "longest_edge": 2048}, "patch_size": 4}),
}
SIZES = ((61, 37), (23, 50))  # width, height


def add_smolvlm(tensors, numbers):
    """A video of two frames, which frames are taken of others, and what a text says of them."""
    processor = SmolVLMVideoProcessor(max_image_size={"longest_edge": 16}, video_sampling={"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 48}})
    video = torch.stack([tensors["picture/0"], tensors["picture/0"].flip(1)]).permute(0, 3, 1, 2)
    made = processor([video], return_tensors="np", do_sample_frames=False)
    tensors["smolvlm_video"] = torch.from_numpy(made["pixel_values"][0]).contiguous()
    metadata = lambda total, rate: VideoMetadata(total, fps=rate, duration=total / rate)
    numbers["frames/smolvlm"] = [[total, rate, processor.sample_frames(metadata(total, rate)).tolist()]
                                 for total, rate in ((1, 25), (7, 30), (40, 24), (100, 29.97), (1500, 25), (3000, 25), (9000, 29.97))]
    words = SimpleNamespace(image_seq_len=1, image_token="<image>", fake_image_token="", global_image_token="")
    numbers["text/smolvlm"] = []
    for total, rate, at in numbers["frames/smolvlm"]:
        said = metadata(total, rate)
        said.frames_indices = at
        text = SmolVLMProcessor.replace_video_token(words, {"pixel_values": np.zeros((1, len(at))), "video_metadata": [said]}, 0)
        numbers["text/smolvlm"].append([at, rate, text])


def add_gemma4(tensors, numbers):
    """Rows of patches in blocks of 2 x 2, by colour and from -1 to 1, as the tower is given them here; and sizes."""
    said = {"patch_size": 4, "max_soft_tokens": 70, "pooling_kernel_size": 2}
    processor = Gemma4ImageProcessorPil(**said)
    numbers["gemma4"] = said
    for i in range(len(SIZES)):
        made = processor([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="np")
        places = np.asarray(made["image_position_ids"])[0]
        count = int((places[:, 0] >= 0).sum())
        wide, high = (int(n) + 1 for n in places[:count].max(0))
        rows = np.asarray(made["pixel_values"], dtype=np.float32)[0, :count].reshape(high // 2, 2, wide // 2, 2, 4, 4, 3)
        tensors[f"gemma4/{i}"] = torch.from_numpy(rows.transpose(0, 2, 1, 3, 6, 4, 5).reshape(count, -1) * 2 - 1).contiguous()
        tensors[f"gemma4/{i}/grid"] = torch.tensor([1, high, wide])
    numbers["sizes/gemma4"] = [[height, width, *get_aspect_ratio_preserving_size(height, width, 16, 70 * 9, 3)]
                               for height in (9, 48, 70, 333, 1201) for width in (13, 47, 420, 1999)]


def add_gemma4_unified(tensors, numbers):
    """Rows of squares of 2 x 2 patches, by colour and from 0 to 1. Its own processor resizes by torchvision alone; here Pillow does."""
    said = {"patch_size": 4, "max_soft_tokens": 70, "pooling_kernel_size": 2}
    processor = Gemma4ImageProcessorPil(**said)
    numbers["gemma4_unified"] = said
    for i in range(len(SIZES)):
        made = processor([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="pt")
        count = int((made["image_position_ids"][0][:, 0] >= 0).sum())
        rows, places = patches_merge(made["pixel_values"][:, :count].float(), made["image_position_ids"][:, :count], count // 4)
        tensors[f"gemma4_unified/{i}"] = rows[0].reshape(-1, 8, 8, 3).permute(0, 3, 1, 2).flatten(1).contiguous()
        wide, high = (places[0].amax(0) + 1).tolist()
        tensors[f"gemma4_unified/{i}/grid"] = torch.tensor([1, high, wide])


def add_phi3_v(tensors, numbers):
    """The larger picture in squares behind the square of all of it, as Phi-3-vision's own processor has it."""
    side, numbers["phi3_v"] = 16, {"num_crops": 5}
    for i in range(len(SIZES)):
        image = Image.fromarray(tensors[f"picture/{i}"].numpy())
        high = image.width < image.height
        lying = image.transpose(Image.Transpose.TRANSPOSE) if high else image
        squares, ratio = 1, lying.width / lying.height
        while squares * np.ceil(squares / ratio) <= 5:
            squares += 1
        wide = (squares - 1) * side
        lying = lying.resize((wide, int(wide / ratio)), Image.Resampling.BILINEAR)
        ground = Image.new("RGB", (wide, -(-lying.height // side) * side), (255, 255, 255))
        ground.paste(lying, (0, (ground.height - lying.height) // 2))
        large = ground.transpose(Image.Transpose.TRANSPOSE) if high else ground
        mean, deviation = torch.tensor([0.48145466, 0.4578275, 0.40821073]), torch.tensor([0.26862954, 0.26130258, 0.27577711])
        planes = ((torch.from_numpy(np.asarray(large).copy()).float() / 255 - mean) / deviation).permute(2, 0, 1)
        whole = torch.nn.functional.interpolate(planes[None], size=(side, side), mode="bicubic")
        tiles = planes.unfold(1, side, side).unfold(2, side, side).permute(1, 2, 0, 3, 4).flatten(0, 1)
        tensors[f"phi3_v/{i}"] = torch.cat([whole, tiles]).contiguous()
        numbers[f"phi3_v/{i}/size"] = [large.height, large.width]


def add_phi4(tensors, numbers, sound):
    """Squares of Phi-4-multimodal behind the square of all of it; what of them is no filling; of phi4mm too, whose own processor resizes
    with Pillow. And the spectrogram of a sound."""
    side, patch, said = 24, 4, {"size": {"height": 24, "width": 24}, "patch_size": 4, "dynamic_hd": 5}
    numbers["phi4"] = said

    def add(name, i):
        picture = tensors[f"picture/{i}"].permute(2, 0, 1)
        made = phi4.Phi4MultimodalImageProcessor(**said)([picture], return_tensors="pt")
        (high, wide), mask = made["image_sizes"][0].tolist(), made["image_attention_mask"][0, 1:]
        lines, columns = mask[:: wide // side, :, 0].sum(), mask[: wide // side, 0].sum()
        tensors[f"{name}/{i}"] = made["image_pixel_values"][0].float().contiguous()
        numbers[f"{name}/{i}/size"] = [int(lines) * patch, int(columns) * patch]
        # The processor counts the square of all of it as one of 16 x 16 cells.
        numbers[f"{name}/{i}/tokens"] = int(made["num_img_tokens"][0]) - 16 * 17 + 3 * 4
    for i in range(len(SIZES)):
        add("phi4_multimodal", i)
    resize = phi4.tvF.resize
    as_pillow = lambda image, size, **more: resize(image, size, **more) if more else torch.from_numpy(np.array(Image.fromarray(image.permute(1, 2, 0).numpy()).resize(size[::-1], Image.Resampling.BILINEAR))).permute(2, 0, 1)
    phi4.tvF.resize = as_pillow
    add("phi4mm", 1)
    phi4.tvF.resize = resize
    ratios = lambda height, width: phi4.Phi4MultimodalImageProcessor().dynamic_preprocess(torch.zeros(3, height, width, dtype=torch.uint8), 448, 14, 32)[0].shape[-2:]
    numbers["sizes/phi4"] = [[height, width, *ratios(height, width)] for height in (20, 448, 449, 900, 3000) for width in (100, 448, 1000, 5000)]
    heard = Phi4MultimodalFeatureExtractor(feature_size=8)(sound, sampling_rate=16000, return_tensors="np")
    tensors["phi4/mel"] = torch.from_numpy(np.ascontiguousarray(heard["audio_input_features"][0].T))
    numbers["phi4/tokens"] = int(heard["audio_embed_sizes"][0])


def add_deepseek_vl2(tensors, numbers):
    """All of a picture in one square, and the squares of a larger one, as DeepSeek-VL2's own processor has them."""
    side, sizes = 12, [[12 * wide, 12 * high] for high in range(1, 4) for wide in range(1, 4)]
    numbers["deepseek_vl2"] = {"candidate_resolutions": sizes}
    for i in range(len(SIZES)):
        image = Image.fromarray(tensors[f"picture/{i}"].numpy())
        shown = lambda size: min(int(image.width * min(size[0] / image.width, size[1] / image.height)) * int(image.height * min(size[0] / image.width, size[1] / image.height)), image.width * image.height)
        best = max(sizes, key=lambda size: (shown(size), -(size[0] * size[1] - shown(size))))
        padded = lambda size: torch.from_numpy(np.asarray(ImageOps.pad(image, size, color=(127, 127, 127)))).float().permute(2, 0, 1) / 127.5 - 1
        large = padded(best).unfold(1, side, side).unfold(2, side, side).permute(1, 2, 0, 3, 4).flatten(0, 1)
        tensors[f"deepseek_vl2/{i}"] = torch.cat([padded((side, side))[None], large]).contiguous()
        numbers[f"deepseek_vl2/{i}/size"] = [best[1], best[0]]


def step3_windows(width, height):
    """Step3-VL's rule: the size of the larger picture, and the side of its windows (0: there are none)."""
    longer, shorter = max(width, height), min(width, height)
    if shorter < 32 and longer / shorter > 4:
        width = height = shorter = longer
    if longer > 3024:
        width, height = int(width * 3024 / longer), int(height * 3024 / longer)
        longer, shorter = max(width, height), min(width, height)
    window = (shorter if longer / shorter > 1.5 else 0) if longer <= 728 else min(shorter, 504) if longer / shorter > 4 else 504
    fitted = lambda n: n if n < window else window * (n // window + (n / window - n // window > 0.2))
    return (fitted(width), fitted(height), window) if window else (width, height, 0)


def add_step3(tensors, numbers):
    """Windows and then all of a picture, as rows of patches."""
    mean, deviation = (torch.tensor(n).view(3, 1, 1) for n in ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]))

    def rows(image, side):
        planes = (torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255 - mean) / deviation
        planes = torch.nn.functional.interpolate(planes[None], size=(side, side), mode="bilinear", antialias=True)[0]
        return planes.unfold(1, 4, 4).unfold(2, 4, 4).permute(1, 2, 0, 3, 4).flatten(0, 1).flatten(1)
    for i in range(len(SIZES)):
        image = Image.fromarray(tensors[f"picture/{i}"].numpy())
        width, height, window = step3_windows(*image.size)
        large, views = image.resize((width, height), Image.Resampling.BILINEAR), []
        for top in range(0, height, window) if window else ():
            views += [rows(large.crop((left, top, left + min(window, width), top + min(window, height))), 36) for left in range(0, width, window)]
        tensors[f"step3_vl/{i}"] = torch.cat([*views, rows(image, 52)]).contiguous()
        numbers[f"step3_vl/{i}/windows"] = len(views)
    numbers["sizes/step3_vl"] = [[width, height, *step3_windows(width, height)] for width, height in
                                 ((20, 20), (100, 20), (600, 20), (600, 500), (728, 400), (729, 600), (1100, 300), (130, 800), (1120, 1009), (3200, 60))]


def add_molmo2(tensors, numbers):
    """Squares as rows of patches, by colour, and which patches become one row; of a video too."""
    said = {"size": {"height": 20, "width": 20}, "patch_size": 4, "overlap_margins": [1, 1], "max_crops": 5, "pooling_size": [2, 2]}
    numbers["molmo2"] = said
    rows = lambda pixels: pixels.reshape(-1, 4, 4, 3).permute(0, 3, 1, 2).flatten(1).contiguous()
    for i in range(len(SIZES)):
        made = Molmo2ImageProcessor(**said)([tensors[f"picture/{i}"].permute(2, 0, 1)], return_tensors="pt")
        tensors[f"molmo2/{i}"], tensors[f"molmo2/{i}/pooled"] = rows(made["pixel_values"]), made["image_token_pooling"].int().contiguous()
        numbers[f"molmo2/{i}/grid"] = made["image_grids"][0].tolist()
    video = torch.stack([tensors["picture/0"], tensors["picture/0"].flip(1)]).permute(0, 3, 1, 2)
    films = Molmo2VideoProcessor(size=said["size"], patch_size=4, do_sample_frames=False, do_rescale=True, do_normalize=True)
    made = films([video], return_tensors="pt")
    tensors["molmo2/video"], tensors["molmo2/video/pooled"] = rows(made["pixel_values_videos"]), made["video_token_pooling"].int().contiguous()
    usual = Molmo2ImageProcessor()
    numbers["sizes/molmo2"] = [[height, width, *usual.get_image_grid_and_crops(height, width)[0], usual.get_image_grid_and_crops(height, width)[1]]
                               for height in (9, 112, 333, 700, 1201) for width in (13, 420, 600, 1999)]
    metadata = lambda total, rate: VideoMetadata(total, fps=rate, duration=total / rate)
    numbers["frames/molmo2"] = [[total, rate, films.sample_frames(metadata(total, rate)).tolist()]
                                for total, rate in ((1, 25), (7, 30), (7, 1), (40, 24), (100, 29.97), (1500, 25), (3000, 25), (9001, 29.97), (12345, 30))]
    words = SimpleNamespace(video_use_col_tokens=False, use_frame_special_tokens=True)
    numbers["text/molmo2"] = Molmo2Processor.get_video_string(words, torch.tensor([3, 1, 2]), [0 / 25, 7 / 25, 3600 / 25])


def add_minicpm(tensors, numbers):
    """All of a picture and its slices as rows of patches, in blocks of 4 x 4, and the grid of each."""
    said = {"scale_resolution": 24, "patch_size": 4, "max_slice_nums": 5}
    processor = MiniCPMV4_6ImageProcessorPil(**said)
    numbers["minicpmv4_6"] = {k: v for k, v in {**processor.to_dict(), **said}.items()
                              if k in ("scale_resolution", "patch_size", "max_slice_nums", "image_mean", "image_std", "resample")}
    for i in range(len(SIZES)):
        made = processor([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="np")
        strip, grids = np.asarray(made["pixel_values"], dtype=np.float32)[0], np.asarray(made["target_sizes"])
        patches, rows, first = strip.reshape(3, 4, -1, 4).transpose(2, 0, 1, 3), [], 0
        for high, wide in grids.tolist():
            own = patches[first: first + high * wide].reshape(high // 4, 4, wide // 4, 4, -1)
            first += high * wide
            rows.append(own.transpose(0, 2, 1, 3, 4).reshape(high * wide, -1))
        tensors[f"minicpmv4_6/{i}"] = torch.from_numpy(np.concatenate(rows)).contiguous()
        tensors[f"minicpmv4_6/{i}/grids"] = torch.from_numpy(grids.astype(np.int64)).contiguous()
        numbers[f"minicpmv4_6/{i}/slices"] = [int(n) for n in made["grids"][0]]


def add_tiles(tensors, numbers):
    """Of Ovis 2, Llama 4 (whose pictures torchvision resizes) and DeepSeek-OCR 2: tiles, and how many lines and columns of them."""
    for name, processor in (("ovis2", Ovis2ImageProcessorPil(size={"height": 16, "width": 16}, crop_to_patches=True, max_patches=6)),
                            ("llama4", Llama4ImageProcessor(size={"height": 16, "width": 16}, max_patches=8)),
                            ("deepseek_ocr2", DeepseekOcr2ImageProcessorPil(size={"height": 32, "width": 32}, tile_size=16))):
        numbers[name] = {k: v for k, v in processor.to_dict().items()
                         if k in ("size", "tile_size", "min_patches", "max_patches", "crop_to_patches", "image_mean", "image_std", "resample", "resize_to_max_canvas")}
        for i in range(len(SIZES)):
            made = processor([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="pt")
            pixels = made["pixel_values"].float()
            tensors[f"{name}/{i}"] = (pixels[0] if pixels.dim() == 5 else pixels).contiguous()
            if "pixel_values_local" in made:
                tensors[f"{name}/{i}/tiles"] = made["pixel_values_local"].float().contiguous()
            grid = made.get("grids", made.get("aspect_ratios", made.get("num_local_patches")))
            numbers[f"{name}/{i}/grid"] = np.asarray(grid[0]).tolist()
    canvases = torch.tensor(find_supported_resolutions(16, SizeDict(height=336, width=336)))
    numbers["sizes/llama4"] = [[height, width, *[int(n) // 336 for n in get_best_fit((height, width), canvases)]]
                               for height in (9, 300, 336, 700, 1201, 5000) for width in (13, 97, 336, 420, 672, 1999)]


def add_mllama(tensors, numbers):
    """Of Llama 3.2 Vision: the tiles of a picture without those that fill them up, and how many lines and columns of them."""
    processor = MllamaImageProcessorPil(size={"height": 16, "width": 16}, max_image_tiles=4)
    numbers["mllama"] = {k: v for k, v in processor.to_dict().items() if k in ("size", "max_image_tiles", "image_mean", "image_std", "resample")}
    for i in range(len(SIZES)):
        made = processor([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="pt")
        tensors[f"mllama/{i}"] = made["pixel_values"][0, 0, :made["num_tiles"][0][0]].float().contiguous()
        numbers[f"mllama/{i}/shape"] = int(made["aspect_ratio_ids"][0, 0])
    numbers["sizes/mllama"] = [[height, width, *[int(n) // 560 for n in get_optimal_tiled_canvas(height, width, 4, 560)]]
                               for height in (9, 300, 560, 700, 1201, 1400) for width in (13, 97, 560, 672, 1120, 1999)]


def add_lfm2(tensors, numbers):
    """Tiles of a picture and all of it as rows of patches, in blocks of 2 x 2 and colour by colour, and the lines and columns of each."""
    said = {"encoder_patch_size": 4, "downsample_factor": 2, "tile_size": 16, "min_image_tokens": 2, "max_image_tokens": 6, "min_tiles": 2,
            "max_tiles": 6, "max_pixels_tolerance": 2.0}
    processor = Lfm2VlImageProcessor(**said)
    numbers["lfm2_vl"] = {k: v for k, v in {**processor.to_dict(), **said}.items() if k in said or k in ("image_mean", "image_std", "resample")}
    for i in range(len(SIZES)):
        made = processor([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="pt", return_row_col_info=True)
        rows, shapes = [], made["spatial_shapes"]
        for patches, (high, wide) in zip(made["pixel_values"].float(), shapes.tolist()):
            own = patches[: high * wide].reshape(high // 2, 2, wide // 2, 2, 4, 4, 3)
            rows.append(own.permute(0, 2, 1, 3, 6, 4, 5).reshape(high * wide, -1))
        tensors[f"lfm2_vl/{i}"], tensors[f"lfm2_vl/{i}/shapes"] = torch.cat(rows).contiguous(), shapes.long().contiguous()
        numbers[f"lfm2_vl/{i}/tiles"] = [int(made["image_rows"][0]), int(made["image_cols"][0])]


def add_voxtral(tensors, numbers, sound):
    """A short sound filled up to half a minute: what is heard of it and four frames more; and where two pieces of a longer one meet."""
    extract = WhisperFeatureExtractor(feature_size=8)
    heard = lambda samples: extract(samples, sampling_rate=16000, return_tensors="np", padding=True, truncation=False, pad_to_multiple_of=480000)["input_features"][0]
    short, count = heard(sound), len(sound) // 160 + 5
    tensors["voxtral/heard"] = torch.from_numpy(short[:, :count]).contiguous()
    assert (short[:, count:] == short[0, -1]).all()
    numbers["voxtral/silence"] = float(short[0, -1])
    longer = heard(np.tile(sound, 120)[:481600])
    assert longer.shape == (8, 6000)
    tensors["voxtral/meeting"] = torch.from_numpy(longer[:, 2990:3020]).contiguous()


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
                         if k in ("size", "crop_size", "max_image_size", "min_size", "do_pad", "do_center_crop", "do_image_splitting", "do_normalize", "image_mean", "image_std", "resample")}
        for i in range(len(SIZES)):
            out = made([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="np", **more)
            tensors[f"{name}/{i}"] = torch.from_numpy(np.asarray(out["pixel_values"], dtype=np.float32)).contiguous()
    for name, (processor, said) in PATCHES.items():
        made = processor(**said)
        numbers[name] = {k: v for k, v in {**made.to_dict(), **said}.items()
                         if k in ("size", "patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std", "resample")}
        for i in range(len(SIZES)):
            out = made([Image.fromarray(tensors[f"picture/{i}"].numpy())], return_tensors="np")
            rows = np.asarray(out["pixel_values"], dtype=np.float32).reshape(-1, np.prod(out["pixel_values"].shape[1:]))
            if out["pixel_values"].ndim > 2 or name == "hunyuan_vl":  # line after line; in the order of squares of 2 x 2
                time, high, wide = out["image_grid_thw"][0]
                rows = rows.reshape(high // 2, 2, wide // 2, 2, -1).transpose(0, 2, 1, 3, 4).reshape(len(rows), -1)
            tensors[f"{name}/{i}"] = torch.from_numpy(rows).contiguous()
            tensors[f"{name}/{i}/grid"] = torch.from_numpy(np.asarray(out["image_grid_thw"])[0]).contiguous()
    numbers["sizes/glm4v"] = [[frames, height, width, *smart_resize(frames, height, width, 2, 28, 112 * 112, 28 * 28 * 60)]
                              for frames in (2, 5, 8) for height in (9, 20, 28, 70, 333, 1201) for width in (13, 28, 97, 420, 1999)
                              if max(height, width) / min(height, width) < 100]
    # Of what was resized, and of what was filled up to whole cells.
    numbers["sizes/kimi_k25"] = [[height, width, *sum(navit_resize(height, width, 4, 2, 64, 24), ())]
                                 for height in (3, 9, 20, 28, 70, 333) for width in (5, 13, 28, 97, 420)]
    frames = lambda total, rate: Glm4vVideoProcessor().sample_frames(VideoMetadata(total, fps=rate, duration=total / rate)).tolist()
    numbers["frames/glm4v"] = [[total, rate, frames(total, rate)] for total, rate in ((1, 25), (7, 30), (40, 24), (100, 29.97), (9000, 25))]
    add_smolvlm(tensors, numbers)
    add_minicpm(tensors, numbers)
    add_lfm2(tensors, numbers)
    add_tiles(tensors, numbers)
    add_mllama(tensors, numbers)
    add_gemma4(tensors, numbers)
    add_gemma4_unified(tensors, numbers)
    add_phi3_v(tensors, numbers)
    add_deepseek_vl2(tensors, numbers)
    add_step3(tensors, numbers)
    add_molmo2(tensors, numbers)
    # Qwen2-Audio: the spectrogram of a short sound, two frames of the silence behind it included.
    time = np.arange(4321) / 16000
    sound = (0.4 * np.sin(2 * np.pi * 440 * time) * np.exp(-3 * time) + random.normal(0, 0.01, time.shape)).astype(np.float32)
    heard = WhisperFeatureExtractor(feature_size=8)(sound, sampling_rate=16000, return_tensors="np", return_attention_mask=True, padding="max_length")
    frames = int(heard["attention_mask"].sum())
    tensors["qwen2_audio/sound"] = torch.from_numpy(sound)
    tensors["qwen2_audio/mel"] = torch.from_numpy(heard["input_features"][0, :, :frames + 2]).contiguous()
    numbers["qwen2_audio"] = {"frames": frames, "tokens": ((frames - 1) // 2 + 1 - 2) // 2 + 1}
    # Qwen3-ASR: of less than half a second, and of more than one.
    for name, samples in (("short", sound), ("long", np.tile(sound, 4))):
        made = Qwen3ASRFeatureExtractor(feature_size=8)(samples, sampling_rate=16000, return_tensors="np", padding="longest", return_attention_mask=True)
        frames = int(made["attention_mask"].sum())
        tensors[f"qwen3_asr/{name}"] = torch.from_numpy(np.asarray(made["input_features"])[0, :, :frames]).contiguous()
        numbers[f"qwen3_asr/{name}"] = int(_get_feat_extract_output_lengths(torch.tensor(frames)))
    add_voxtral(tensors, numbers, sound)
    made = Gemma3nAudioFeatureExtractor(feature_size=8)(sound, return_tensors="np")
    assert made["input_features_mask"].all()
    tensors["gemma3n/mel"] = torch.from_numpy(made["input_features"][0].T).contiguous()
    add_phi4(tensors, numbers, sound)
    numbers = json.loads(json.dumps(numbers, default=lambda v: int(v) if hasattr(v, "__index__") else dict(v)))
    save_file(tensors, os.path.join(sys.argv[1], "towers.safetensors"))
    with open(os.path.join(sys.argv[1], "towers.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)
    print({k: tuple(v.shape) for k, v in tensors.items()})


main()
