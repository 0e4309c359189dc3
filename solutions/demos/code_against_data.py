# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Weights as data, weights as code
#
# **Claim** (code-generation paper, 3.7): a kernel with the weights written into it beats one that reads them.
#
# A filter of 64 taps, of which 12 are left, slides along a row of numbers. As *data* the 12 are two arrays: how much, and where.

# %%
import tempfile
from pathlib import Path

import numpy as np

from convladder.autograde.faces import demo, recorded_figures, show
from convladder.kernels.resources import resources

rng = np.random.default_rng(4)
taps = np.sort(rng.choice(64, 12, replace=False))
weights = rng.choice([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], 12)
kept = tempfile.TemporaryDirectory(prefix="lecture-")
place, value = Path(kept.name) / "place.npy", Path(kept.name) / "value.npy"
np.save(place, taps.astype(np.int32))
np.save(value, weights.astype(np.float32))

as_data = """
//@ launch slide grid=n/128 block=128
__global__ void slide(const float* x, const float* value, const int* place, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int j = 0; j < 12; j++)
        sum += value[j] * x[i + place[j]];
    y[i] = sum;
}
"""
demo.run(as_data, "n=256", "x=float[n+64]:random", f"value={value}", f"place={place}", "y=float[n]:out")

# %% [markdown]
# *Three loads for each product. Which of them are the same for every thread, every image, every day?*
#
# As *code* the 12 weights are 12 lines. A program has written them; here it is, and what it wrote.

# %%
lines = "\n".join(f"    sum += {weight}f * x[i + {tap}];" for tap, weight in zip(taps, weights))
as_code = f"""
//@ launch slide grid=n/128 block=128
__global__ void slide(const float* x, float* y, int n)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
{lines}
    y[i] = sum;
}}
"""
print(as_code)

# %%
demo.run(as_code, "n=256", "x=float[n+64]:random", "y=float[n]:out")

# %% [markdown]
# Compare `y`, the requests, and the warp instructions. The loop is gone, the indices are gone, and two loads of three.
#
# *So what has become larger?*
#
# **What code weighs.** The same for more and more weights. As data, a weight takes 8 bytes, its value and its place:

# %%
for count in (12, 100, 1000):
    many = "\n".join(f"    sum += {w:.9e}f * x[i + {tap}];" for tap, w in enumerate(rng.standard_normal(count)))
    (made,) = resources(as_code.replace(lines, many), "sm_90").values()
    print(f"{count:4d} weights: {made.code_bytes:6,} bytes of code, {made.code_bytes / count:.0f} a weight")

# %% [markdown]
# An instruction takes 16 bytes, and here a weight takes two: its load and its multiply-add. Whole layers, with filters that share their loads, and the paper's own sizes:

# %%
recorded_figures.code_sizes("alexnet-conv2", "vgg-conv3")

# %% [markdown]
# *Data are fetched once and kept on the chip. And code? Who fetches it, and how often?*
#
# Every multiprocessor fetches every instruction itself, and again in each pass if there is more than it can keep. So an instruction pays if many warps execute it once it is there.
#
# *On a layer with 98 % zeros: how many times as long does the best kernel with weights as data take? And a library with tensor cores?*

# %%
show.claim("code-data")

# %% [markdown]
# **What to take home.** Code saves two loads of three, and costs 16 bytes for each weight that every multiprocessor has to fetch. It pays where zeros are many, where many threads share each instruction, and where the weights never change.
