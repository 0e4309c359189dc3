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
# # From how many zeros on does sparse convolution pay?
#
# **Claim** (sparse paper, 4.1): where more than 0.6 of the weights are zero.
#
# Ask the room first: *against which opponent? At which sparsity would you bet, against lowering with cuBLAS, and against cuDNN?*

# %%
import numpy as np

from convladder.autograde.faces import show
from convladder.kernels import conv2d, oracle

# %% [markdown]
# The idea: a weight that is not zero knows where its input lies, as a distance from the window's corner. Zeros are never touched.

# %%
show.claim("stretched")

# %% [markdown]
# So the work shrinks with the zeros. The same layer with fewer and fewer weights, by the sparse kernel on this machine:

# %%
rng = np.random.default_rng(1)
x = rng.standard_normal((1, 16, 13, 13), dtype=np.float32)
for sparsity in (0.0, 0.6, 0.9):
    w = rng.standard_normal((16, 16, 3, 3), dtype=np.float32) * (rng.random((16, 16, 3, 3)) >= sparsity)
    y = conv2d(x, w, pad=1, method="csr")
    error = abs(y - oracle.conv2d(x, w, pad=1)).max()
    print(f"{sparsity:.0%} zeros: {np.count_nonzero(w) * 13 * 13:7,} products, largest difference {error:.1e}")

# %% [markdown]
# A dense kernel does all products, but each of them more cheaply: neighbouring threads share what they load, and nothing is looked up. Where do the lines cross?

# %%
show.claim("crossover")

# %% [markdown]
# *Does a larger batch help the sparse kernel or the library?*

# %%
show.claim("batch")

# %% [markdown]
# **What to take home.** There is no threshold of sparse convolution as such, only one against an opponent on a device. Against lowering the paper's 0.6 is about right; a library that chooses among many
# algorithms moves it a long way up. Whole networks:

# %%
show.claim("sparse-networks")
