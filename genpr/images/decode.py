"""One decode policy: encoded bytes in, 8-bit RGB out, or the reason why not.

A file is decoded in full, so that damage is found. Frame 0 of animations and stacks is used, alpha is dropped
and hidden colours kept, EXIF orientation is ignored: what the loaders of the reference implementations do, unless
the user chose otherwise. Each of these leaves a flag, to be counted and told. What cannot be told is bit errors inside JPEG data: they decode.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, features
from PIL.JpegImagePlugin import JpegImageFile

from genpr.errors import GenprError, ImageError
from genpr.images.integrity import ends_early, missed_damage
from genpr.images.item import ImageData, printable
from genpr.images.metadata import without_metadata
from genpr.images.pieces import TooManyPiecesError
from genpr.images.pillow_guard import pillow_guard
from genpr.images.pixels import rgb_pixels, turned
from genpr.images.plugins import (
    Depth,
    UnsupportedPixelsError,
    depth_of,
    is_animated,
    open_image,
    orientation_of,
)
from genpr.images.policy import FLAGS, MAX_PIXELS, DecodePolicy
from genpr.images.sniff import image_format, refusal
from genpr.images.workload import Workload, jpeg_passes, workload

__all__ = [
    "FLAGS",
    "MAX_PIXELS",
    "DecodePolicy",
    "Decoded",
    "content_sha256",
    "decode",
    "decoder_versions",
    "rgb_of_image",
]


_LEAST_LIMIT = (
    2**24
)  # pixels that a decoder may fill for a small image, however low the limit; they fit anywhere
_BOMB = "; a decompression bomb? If it is genuine, raise max_pixels"
_LONGEST_SIDE = 2**20  # pixels; decoders hold several rows at once, and resizing stretches them


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded image.

    Attributes:
        pixels: RGB, (h, w, 3), C-contiguous and writable (as `torch.from_numpy` wants it).
        flags: What was done on the way, a subset of `FLAGS` in their order.
    """

    pixels: NDArray[np.uint8]
    flags: tuple[str, ...]


def decode(data: ImageData, *, name: str, policy: DecodePolicy) -> Decoded:
    """Decode one image completely. Safe to call from several threads.

    Args:
        data: The bytes of a file; pixels (h, w, 3), which are passed through (copied only if they are not
            C-contiguous or not writable); or a loaded Pillow image, whose other frames are not looked at.
        name: Its label, for messages.
        policy: Limits, and what becomes of transparency and orientation.

    Raises:
        ImageError: With `path=name` and one of the codes image-unreadable, format-not-allowed,
            image-too-large, image-truncated, image-corrupt, mode-unsupported.
    """
    if isinstance(data, np.ndarray):
        return _pass_through(data, name, policy)
    if isinstance(data, Image.Image):
        return _convert(data, name, policy)
    format_name = image_format(data)
    if format_name is None:
        code, reason = refusal(data)
        raise _error(name, reason, code)
    with pillow_guard:
        try:
            return _decode_file(data, format_name, name, policy)
        except (GenprError, MemoryError):
            raise
        except UnsupportedPixelsError as error:
            raise _unsupported(name, error) from error
        except TooManyPiecesError as error:
            raise _error(
                name, f"{error}, which take too long to parse; save it again", "image-too-large"
            ) from error
        except Image.DecompressionBombError as error:
            raise _error(name, f"Pillow refuses it ({error})", "image-too-large") from error
        except Exception as error:  # damaged files make plugins raise nearly anything
            raise _damaged(data, format_name, name, error) from error


def loaded(image: Image.Image, *, name: str) -> Image.Image:
    """A Pillow image that someone else opened, with its pixels read.

    Raises:
        ImageError: They cannot be read.
    """
    with pillow_guard:
        try:
            image.load()
        except MemoryError:
            raise
        except Exception as error:  # as in `decode`
            raise _error(name, f"cannot be loaded ({printable(str(error))})", "image-corrupt") from error
    return image


def rgb_of_image(image: Image.Image, *, name: str) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) of a Pillow image that someone else opened, by the rules for files that nobody changed.

    Raises:
        ImageError: Its mode is refused, or it was not loaded yet and loading failed.
    """
    return _convert(loaded(image, name=name), name, DecodePolicy()).pixels


def content_sha256(data: ImageData) -> str:
    """Hex sha256 that identifies an image: of a file's bytes, or of pixels with their shape."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    if isinstance(data, Image.Image):
        data = rgb_of_image(data, name="image")
    digest = hashlib.sha256(f"genpr uint8 pixels {data.shape}\n".encode())  # no image file begins so
    digest.update(np.ascontiguousarray(data).data)
    return digest.hexdigest()


def decoder_versions() -> dict[str, str]:
    """Versions of what turns bytes into pixels; lossy decoders change pixels between versions."""
    libraries = {name: features.version(name) for name in ("libjpeg_turbo", "webp", "avif")}
    return {"pillow": PIL.__version__, **{name: str(found) for name, found in libraries.items() if found}}


def _decode_file(data: bytes, format_name: str, name: str, policy: DecodePolicy) -> Decoded:
    if format_name != "AVIF":
        _check_work(workload(data, format_name), format_name, name, policy)
    data, exif = without_metadata(data, format_name)
    image = open_image(data, format_name)
    if exif is not None:
        image.info["exif"] = exif
    if format_name == "AVIF":  # whose boxes libavif has read by now, and says best what is wrong with them
        _check_work(workload(data, format_name), format_name, name, policy)
    _check_size(image.size, name, policy)
    header_end = image.fp.tell() if image.fp else 0
    if isinstance(image, JpegImageFile):
        components = 0 if "progressive" in image.info else image.layers
        passes = jpeg_passes(data, image.size, components=components, at=header_end)
        _check_work(Workload(total=passes), format_name, name, policy)
    depth = depth_of(image)
    damage = missed_damage(data, format_name, header_end=header_end)
    if damage:
        raise _damaged(data, format_name, name, ValueError(f"{damage} data"))
    image.load()
    pixels, flags = _upright_rgb(image, depth, policy)
    if is_animated(image):
        flags.add("multi-frame")
    return Decoded(pixels, _in_order(flags))


def _convert(image: Image.Image, name: str, policy: DecodePolicy) -> Decoded:
    """Pixels of a loaded image that someone else opened."""
    _check_size(image.size, name, policy)
    with pillow_guard:
        try:
            depth = Depth(16) if image.mode.startswith("I;16") else Depth()
            pixels, flags = _upright_rgb(image, depth, policy)
        except MemoryError:
            raise
        except UnsupportedPixelsError as error:
            raise _unsupported(name, error) from error
        except Exception as error:  # as in `decode`
            raise _error(name, f"cannot be converted ({printable(str(error))})", "image-corrupt") from error
    return Decoded(pixels, _in_order(flags))


def _upright_rgb(
    image: Image.Image, depth: Depth, policy: DecodePolicy
) -> tuple[NDArray[np.uint8], set[str]]:
    """Pixels, and what was done on the way to them."""
    pixels, flags = rgb_pixels(image, depth, policy.background)
    orientation = orientation_of(image)
    if policy.exif == "apply":
        pixels = turned(pixels, orientation)
    elif orientation != 1:
        flags.add("exif-orientation")
    return pixels, flags


def _in_order(flags: set[str]) -> tuple[str, ...]:
    return tuple(flag for flag in FLAGS if flag in flags) if flags else ()


def _pass_through(pixels: NDArray[np.uint8], name: str, policy: DecodePolicy) -> Decoded:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        facts = f"needs uint8 pixels (h, w, 3), got {pixels.dtype} {pixels.shape}"
        raise _error(name, facts, "mode-unsupported")
    _check_size((pixels.shape[1], pixels.shape[0]), name, policy)
    return Decoded(np.require(pixels, requirements=["C", "W"]), ())


def _check_size(size: tuple[int, int], name: str, policy: DecodePolicy) -> None:
    width, height = size
    if width * height > policy.max_pixels:
        facts = (
            f"{width} x {height} = {width * height:,} pixels, more than the limit of {policy.max_pixels:,}"
        )
        raise _error(name, f"{facts}{_BOMB}", "image-too-large")
    if max(size) > _LONGEST_SIDE:
        facts = f"{width} x {height} pixels, with a side longer than the {_LONGEST_SIDE:,} that are read"
        raise _error(name, f"{facts}; cut it into pieces", "image-too-large")


def _check_work(work: Workload, format_name: str, name: str, policy: DecodePolicy) -> None:
    limit = work.limit_of(format_name, max(policy.max_pixels, _LEAST_LIMIT))
    if limit is not None:
        filled = max(work.largest, work.total)
        facts = f"its decoder would fill {filled:,} pixels in all, more than the limit of {limit:,}"
        raise _error(name, f"{facts}{_BOMB}", "image-too-large")


def _damaged(data: bytes, format_name: str, name: str, error: Exception) -> ImageError:
    reason = printable(str(error)) or type(error).__name__
    if "truncated" in reason.lower() or "not enough image data" in reason or ends_early(data, format_name):
        message = (
            f"the {format_name} file ends early, after {len(data):,} bytes; an interrupted copy or download?"
        )
        return _error(name, message, "image-truncated")
    return _error(name, f"the {format_name} file is damaged ({reason})", "image-corrupt")


def _unsupported(name: str, reason: Exception) -> ImageError:
    return _error(name, f"has {reason}; convert it to 8-bit RGB yourself", "mode-unsupported")


def _error(name: str, message: str, code: str) -> ImageError:
    return ImageError(f"{printable(name)}: {message}", code=code, path=name)
