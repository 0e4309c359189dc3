"""How a convolution is cut into blocks, and where a block keeps its input in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import GeometryError
from ..layouts import ConvGeometry

#: Channels that lie side by side in shared memory: one load brings a thread this many inputs of one tap.
VECTOR = 4
VECTOR_BYTES = 4 * VECTOR
WARP = 32

#: A quarter of a warp loads its vectors of 16 bytes at once: 8 neighbours use all banks.
_CONFLICT_FREE = 8


@dataclass(frozen=True)
class Choice:
    """How the code is cut.

    filters   output channels of one kernel: each of its threads keeps so many sums
    points    output points of one block, a thread each: any range of the N*P*Q points
    channels  input channels in shared memory at a time (twice: one set is read, the next one stored), a multiple of 4
    splits    1, or 2: each kernel has half of the input channels, hence of the code, and adds its sums to y. Two sums
              added to zero give the same bits in either order
    rounds    ranges of points that a block walks over, one after the other, with code that it has fetched already
    """

    filters: int
    points: int
    channels: int = VECTOR
    splits: int = 1
    rounds: int = 1

    def __post_init__(self) -> None:
        if self.filters < 1 or not 1 <= self.points <= 1024 or self.channels < 1 or self.channels % VECTOR:
            raise GeometryError(
                f"{self}: filters must be at least 1, points 1 to 1024, channels a multiple of {VECTOR}"
            )
        if self.splits not in (1, 2) or self.rounds < 1:
            raise GeometryError(f"{self}: splits must be 1 or 2, rounds at least 1")

    @property
    def threads(self) -> int:
        return -(-self.points // WARP) * WARP


@dataclass(frozen=True)
class Tiling:
    """The layout of one choice.

    Images are stacked in shared memory: image n begins at vector n * image_pitch with its upper padding, which is the
    lower padding of the image before. A row is `pitch` vectors long; the padding on its left serves the row before too.
    """

    geometry: ConvGeometry
    choice: Choice

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Rows and columns of the input under one output point."""
        g = self.geometry
        return (g.R - 1) * g.dilation[0] + 1, (g.S - 1) * g.dilation[1] + 1

    @cached_property
    def image_rows(self) -> int:
        """Rows of an image with the padding above it, and more where its last windows reach further."""
        g = self.geometry
        return max(g.H + g.pad[0], (g.P - 1) * g.stride[0] + max(1, self.reach[0] - g.pad[0]))

    @cached_property
    def width(self) -> int:
        """Columns that the points of one row reach."""
        return (self.geometry.Q - 1) * self.geometry.stride[1] + self.reach[1]

    @cached_property
    def pitch(self) -> int:
        """Vectors from row to row: with strides of 1, a warp that crosses from row to row still meets every bank."""
        g = self.geometry
        least = max(g.W + g.pad[1], self.width - g.pad[1])
        return least + (g.Q - least) % _CONFLICT_FREE if g.stride == (1, 1) else least

    @cached_property
    def image_pitch(self) -> int:
        """Vectors from image to image: more than the rows take, where a warp that crosses would meet a bank twice."""
        g = self.geometry
        least = self.image_rows * self.pitch
        return least + (g.P * g.Q - least) % _CONFLICT_FREE if g.stride == (1, 1) else least

    def place(self, point: np.ndarray) -> np.ndarray:
        """The vector at which the first row under an output point begins, counted over all images."""
        g = self.geometry
        image, within = np.divmod(point, g.P * g.Q)
        return image * self.image_pitch + within // g.Q * g.stride[0] * self.pitch

    @cached_property
    def plane(self) -> int:
        """Vectors of one set of four channels: what lies under the points of one block, wherever it begins."""
        start, last = self._ends
        apart = int((self.place(last) - self.place(start)).max())
        return apart + (self.reach[0] - 1) * self.pitch + max(self.width, self.pitch)

    @property
    def buffer(self) -> int:
        """Vectors of all channels that are there at a time."""
        return self.choice.channels // VECTOR * self.plane

    @property
    def shared_bytes(self) -> int:
        return 2 * self.buffer * VECTOR_BYTES

    @cached_property
    def input_rows(self) -> int:
        """Rows of images under the points of one block: what it stages of a channel."""
        g = self.geometry
        start, last = self._ends
        up = start % (g.P * g.Q) // g.Q * g.stride[0] - g.pad[0]
        down = last % (g.P * g.Q) // g.Q * g.stride[0] - g.pad[0] + self.reach[0]
        first_row = start // (g.P * g.Q) * g.H + np.clip(up, 0, g.H)
        return int((last // (g.P * g.Q) * g.H + np.clip(down, 0, g.H) - first_row).max())

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The first and last points of blocks, wherever in an image they can begin, whatever N is."""
        plane = self.geometry.P * self.geometry.Q
        start = np.unique(np.arange(plane) * self.choice.points % plane)
        return start, start + self.choice.points - 1

    @property
    def copies(self) -> int:
        """Input elements of one channel that each thread stages, at most."""
        return max(1, -(-self.input_rows * self.geometry.W // self.choice.threads))

    def blocks(self, images: int) -> int:
        """Blocks of one kernel."""
        return -(-images * self.geometry.P * self.geometry.Q // (self.choice.points * self.choice.rounds))
