"""The choices that the tuner found, kept beside the generated code: for a device, a geometry and its weights."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np

from .. import gpu
from ..layouts import ConvGeometry
from ..sim import objectcache
from .tiling import Choice


def keep(geometry: ConvGeometry, w: np.ndarray, choice: Choice) -> bool:
    """Keep the choice for these weights on the GPU at hand. Returns whether that was possible."""
    return objectcache.write(_key(geometry, w), json.dumps(dataclasses.asdict(choice)).encode())


def kept_choice(geometry: ConvGeometry, w: np.ndarray) -> Choice | None:
    """What is kept for these weights on the GPU at hand, or None."""
    body = objectcache.read(_key(geometry, w))
    try:
        return None if body is None else Choice(**json.loads(body))
    except (ValueError, TypeError):
        return None  # of another version


def _key(geometry: ConvGeometry, w: np.ndarray) -> str:
    device = gpu.device_facts()["device"] if gpu.available() else "the engine"
    text = f"{device}\0{geometry}\0".encode() + np.ascontiguousarray(w).tobytes()
    return f"codegen-choice-{hashlib.sha256(text).hexdigest()}"
