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
# # One warp, one instruction: how many sectors?
#
# **Claim.** What a load costs is decided not by how much a warp reads, but by how many 32-byte sectors its 32 lanes touch.
#
# The kernel copies every `s`-th element. Ask before each cell: *how many sectors for the load, how many for the store?*

# %%
from convladder.autograde.faces import demo

strided = """
//@ launch strided grid=1 block=32
__global__ void strided(const float* x, float* y, int s, int first)
{
    int i = threadIdx.x;
    y[i] = x[first + i * s];
}
"""


def step(s, first=0):
    return demo.run(strided, f"s={s}", f"first={first}", "x=float[32,32]:arange", "y=float[32]:out", warp=0)


# %% [markdown]
# **Neighbours.** 32 lanes times 4 bytes are 128 bytes: four sectors.

# %%
step(1)

# %% [markdown]
# **Every second element.** The lanes still want 128 bytes. What travels?

# %%
step(2)

# %% [markdown]
# **Every eighth element.** Each lane now has a sector of its own.

# %%
step(8)

# %% [markdown]
# **And further?** It cannot get worse than a sector a lane.

# %%
step(16)

# %% [markdown]
# **One element off.** Neighbours again, but beginning in the middle of a sector.

# %%
step(1, first=3)

# %% [markdown]
# **All lanes the same element.**

# %%
step(0, first=5)

# %% [markdown]
# **What to take home.** `threadIdx.x` should run along the elements that lie side by side. The same on a plane of outputs: the first warp of a 16×16 block, with the rows and
# with the columns on `threadIdx.x`.

# %%
from convladder.autograde.faces import figures

figures.warp(P=32, Q=32, block=(16, 16), along="rows")

# %%
figures.warp(P=32, Q=32, block=(16, 16), along="columns")
