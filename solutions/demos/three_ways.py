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
# # A kernel by hand, lowering, cuDNN: which is fastest?
#
# **Claim** (lab report, 3.1): on small images a hand-written CUDA kernel is faster than cuDNN, and lowering (im2col) faster than both.
#
# Ask the room first: *one 3×3 filter over a photograph of 511×511, three ways. In which order do they finish?*

# %%
import numpy as np

from convladder.autograde.faces import show
from convladder.kernels import conv2d, oracle

# %% [markdown]
# All three compute the same thing. Here is a small image on this machine, by a direct kernel and by lowering, beside the float64 reference.

# %%
rng = np.random.default_rng(1)
x = rng.standard_normal((1, 3, 31, 31), dtype=np.float32)
w = rng.standard_normal((1, 3, 3, 3), dtype=np.float32)
reference = oracle.conv2d(x, w, pad=1)
for method in ("direct_coalesced", "gemv", "gemm_shared"):
    y = conv2d(x, w, pad=1, method=method)
    print(f"{method:17s} largest difference from the reference {abs(y - reference).max():.1e}")

# %% [markdown]
# Lowering has a price before the product begins: with a 3×3 filter the matrix has nine times as many elements as the image.

# %%
show.claim("lowered")

# %% [markdown]
# Now the times. On a GPU they are measured as you watch; without one, the slide says where they were recorded.

# %%
show.claim("report")

# %% [markdown]
# One filter is the hand-written kernel's best case. *With 256 filters: who wins?*

# %%
show.claim("filters")

# %% [markdown]
# **What to take home.** The order depends on the problem: with one filter nothing can be reused, and a library's preparations cost more than they save. With many filters
# the same element of the image serves all of them, and the libraries, which keep it close, take over. A comparison without the conversion's time is none:

# %%
show.claim("conversion")
