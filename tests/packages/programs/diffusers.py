"""Denoisers, autoencoders and their parts (`diffusers`)."""

from __future__ import annotations

import diffusers
import torch
from diffusers.models import attention, embeddings, resnet

_UNET = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 8,
}
_VAE = {
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
    "latent_channels": 4,
}


def _image(channels: int = 4, side: int = 8) -> torch.Tensor:
    return torch.randn(2, channels, side, side)


def _steps() -> torch.Tensor:
    return torch.tensor([3, 700])


def _unet2d():
    net = diffusers.UNet2DModel(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
        **_UNET,
    )
    return net, (_image(3), _steps()), {"return_dict": False}


def _unet_with_text():
    net = diffusers.UNet2DConditionModel(
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        **_UNET,
    )
    return net, (_image(), _steps(), torch.randn(2, 5, 16)), {"return_dict": False}


def _control():
    net = diffusers.ControlNetModel(
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=16,
        attention_head_dim=4,
        conditioning_embedding_out_channels=(8, 16),
    )
    args = (_image(), _steps(), torch.randn(2, 5, 16), _image(3, 16))
    return net, args, {"return_dict": False}


def _dit():
    net = diffusers.DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=10,
        norm_num_groups=4,
    )
    kwargs = {"timestep": _steps(), "class_labels": torch.tensor([1, 7]), "return_dict": False}
    return net, (_image(),), kwargs


def _pixart():
    net = diffusers.PixArtTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        sample_size=8,
        cross_attention_dim=16,
        caption_channels=12,
        norm_num_groups=4,
    )
    kwargs = {
        "encoder_hidden_states": torch.randn(2, 5, 12),
        "timestep": _steps(),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        "return_dict": False,
    }
    return net, (_image(),), kwargs


def _sd3():
    net = diffusers.SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pooled_projection_dim=12,
        out_channels=4,
        pos_embed_max_size=16,
    )
    args = (_image(), torch.randn(2, 5, 16), torch.randn(2, 12), _steps())
    return net, args, {"return_dict": False}


def _flux():
    net = diffusers.FluxTransformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=12,
        axes_dims_rope=(4, 6, 6),
    )
    kwargs = {
        "hidden_states": torch.randn(2, 9, 16),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "pooled_projections": torch.randn(2, 12),
        "timestep": torch.rand(2),
        "img_ids": torch.arange(27.0).reshape(9, 3),
        "txt_ids": torch.zeros(5, 3),
        "return_dict": False,
    }
    return net, (), kwargs


def _prior():
    net = diffusers.PriorTransformer(
        num_attention_heads=2, attention_head_dim=8, num_layers=1, embedding_dim=16, num_embeddings=5
    )
    args = (torch.randn(2, 16), _steps(), torch.randn(2, 16), torch.randn(2, 5, 16))
    return net, args, {"return_dict": False}


def _unet1d():
    net = diffusers.UNet1DModel(
        sample_size=16,
        in_channels=2,
        out_channels=2,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock1DNoSkip", "AttnDownBlock1D"),
        up_block_types=("AttnUpBlock1D", "UpBlock1DNoSkip"),
        mid_block_type="UNetMidBlock1D",
        extra_in_channels=16,
    )
    return net, (torch.randn(2, 2, 64), _steps()), {"return_dict": False}


class _Part(torch.nn.Module):
    """Calls one method of a model."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *args):
        return getattr(self.model, self.name)(*args, return_dict=False)


class _Scheduled(torch.nn.Module):
    """Adds noise as a scheduler does at given steps."""

    def __init__(self, scheduler):
        super().__init__()
        self.scheduler = scheduler

    def forward(self, x, noise, steps):
        return self.scheduler.add_noise(x, noise, steps)


PROGRAMS = {
    "UNet2DModel": _unet2d,
    "UNet2DConditionModel": _unet_with_text,
    "ControlNetModel": _control,
    "DiT": _dit,
    "PixArt": _pixart,
    "SD3": _sd3,
    "Flux": _flux,
    "PriorTransformer": _prior,
    "UNet1DModel": _unet1d,
    "AutoencoderKL": lambda: (diffusers.AutoencoderKL(**_VAE), (_image(3, 16),), {"return_dict": False}),
    "AutoencoderKL encodes": lambda: (
        torch.nn.Sequential(diffusers.AutoencoderKL(**_VAE).encoder),
        (_image(3, 16),),
        {},
    ),
    "AutoencoderKL decodes": lambda: (_Part(diffusers.AutoencoderKL(**_VAE), "decode"), (_image(),), {}),
    "AutoencoderTiny": lambda: (
        diffusers.AutoencoderTiny(
            encoder_block_out_channels=(8, 8),
            decoder_block_out_channels=(8, 8),
            num_encoder_blocks=(1, 1),
            num_decoder_blocks=(1, 1),
        ),
        (_image(3, 16),),
        {"return_dict": False},
    ),
    "VQModel": lambda: (
        diffusers.VQModel(block_out_channels=(8,), norm_num_groups=4, latent_channels=4, num_vq_embeddings=9),
        (_image(3),),
        {"return_dict": False},
    ),
    "DDPM adds noise": lambda: (_Scheduled(diffusers.DDPMScheduler()), (_image(), _image(), _steps()), {}),
    "FeedForward": lambda: (attention.FeedForward(8), (torch.randn(2, 5, 8),), {}),
    "BasicTransformerBlock": lambda: (
        attention.BasicTransformerBlock(16, 2, 8, cross_attention_dim=12),
        (torch.randn(2, 6, 16),),
        {"encoder_hidden_states": torch.randn(2, 5, 12)},
    ),
    "ResnetBlock2D": lambda: (
        resnet.ResnetBlock2D(in_channels=8, groups=4, temb_channels=16),
        (_image(8), torch.randn(2, 16)),
        {},
    ),
    "Upsample2D": lambda: (resnet.Upsample2D(4, use_conv=True), (_image(),), {}),
    "Timesteps": lambda: (embeddings.Timesteps(16, True, 0), (_steps(),), {}),
    "PatchEmbed": lambda: (embeddings.PatchEmbed(8, 8, 2, 4, 16), (_image(),), {}),
}
