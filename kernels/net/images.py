"""A training set of our own: pictures that we draw, packed into one file, read at a disk's pace, decoded, cut out.

Class i of ten is a grating that runs at 18 i degrees, of random colours, width and phase under noise: small networks
tell them apart after some hundred pictures. The file is an uncompressed zip archive of JPEG files, so that one picture
can be read without the others, as from a database.
"""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from types import TracebackType

import numpy as np
from PIL import Image

from ..errors import ArgumentError

CLASSES = 10
_QUALITY = 90
#: What every value of a picture is brought to: (value - MEAN) / SPREAD.
MEAN, SPREAD = 128.0, 64.0


def draw(label: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """One picture of a class: (size, size, 3) uint8."""
    angle = np.pi * label / CLASSES
    y, x = np.mgrid[:size, :size] / size
    wave = np.sin(2 * np.pi * (rng.uniform(3, 6) * (x * np.cos(angle) + y * np.sin(angle)) + rng.random()))
    colours = rng.uniform(40, 215, (2, 3))
    mixed = colours[0] + (wave[..., None] + 1) / 2 * (colours[1] - colours[0]) + rng.normal(0, 12, (size, size, 3))
    return mixed.clip(0, 255).astype(np.uint8)


def write(path: Path, count: int, size: int, seed: int = 0) -> None:
    """Draw `count` pictures of size x size, the classes in turn, and pack them into a file."""
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for number in range(count):
            label = number % CLASSES
            coded = io.BytesIO()
            Image.fromarray(draw(label, size, rng)).save(coded, "JPEG", quality=_QUALITY)
            archive.writestr(f"{label}/{number:06}.jpg", coded.getvalue())


class Reader:
    """Reads coded pictures of a file that `write` made, no faster than a disk would.

    rate  bytes a second; None: as fast as this machine reads
    """

    def __init__(self, path: Path, rate: float | None = None):
        if rate is not None and rate <= 0:
            raise ArgumentError(f"rate = {rate}: a disk reads more than 0 bytes a second")
        self.rate = rate
        self._archive = zipfile.ZipFile(path)
        self._entries = self._archive.infolist()

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, numbers: np.ndarray) -> list[tuple[bytes, int]]:
        """Coded pictures and their labels."""
        started = time.perf_counter()
        found, size = [], 0
        for number in numbers:
            entry = self._entries[number]
            found.append((self._archive.read(entry), int(entry.filename.partition("/")[0])))
            size += entry.file_size
        if self.rate is not None:
            time.sleep(max(0.0, started + size / self.rate - time.perf_counter()))
        return found

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._archive.close()


def transform(coded: bytes, shape: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """Decode a picture, cut a random part out, take the mean away and scale.

    shape    (C, H, W) of the network's input, C being 1 or 3
    returns  (C, H, W) float32. Raises ArgumentError for a picture that is smaller.
    """
    C, H, W = shape
    with Image.open(io.BytesIO(coded)) as picture:
        pixels = np.asarray(picture.convert("L" if C == 1 else "RGB")).reshape(picture.height, picture.width, C)
    if pixels.shape[0] < H or pixels.shape[1] < W:
        raise ArgumentError(f"a picture of {pixels.shape[0]} x {pixels.shape[1]} is smaller than the input, {H} x {W}")
    top, left = (int(rng.integers(has - wants + 1)) for has, wants in zip(pixels.shape[:2], (H, W), strict=True))
    part = pixels[top : top + H, left : left + W].transpose(2, 0, 1)
    return (part.astype(np.float32) - np.float32(MEAN)) / np.float32(SPREAD)
