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
# # A tile in shared memory and its two barriers
#
# **Claim.** A tile that is filled again and again needs two barriers in each round, and each prevents another mistake.
#
# Each thread sums its distances to all `n` points. The block fetches the points together, a tile at a time.

# %%
from convladder.autograde.faces import demo

text = """
//@ const TILE = 64
//@ launch distances grid=n/TILE block=TILE
__global__ void distances(const float* x, float* y, int n)
{
    __shared__ float tile[TILE];
    int i = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int first = 0; first < n; first += TILE) {
        tile[threadIdx.x] = x[first + threadIdx.x];
        __syncthreads();                    // FIRST: the tile is complete
        for (int j = 0; j < TILE; j++) sum += fabsf(x[i] - tile[j]);
        __syncthreads();                    // SECOND: nobody reads it any more
    }
    y[i] = sum;
}
"""


def without(*barriers):
    kept = [line for line in text.split("\n") if not any(f"// {barrier}:" in line for barrier in barriers)]
    return demo.run("\n".join(kept), "n=192", "x=float[n]:arange", "y=float[n]:out")


# %% [markdown]
# **With both**, no thread sees anything but what was meant.

# %%
without()

# %% [markdown]
# *Which threads notice if the first one is missing? Those of the same warp?*
#
# **Without the first** a thread reads what another warp has not written yet.

# %%
without("FIRST")

# %% [markdown]
# *The tile was complete when everybody began to read. What can still go wrong?*
#
# **Without the second** a fast warp fills the tile for the next round while a slow one still reads the last. Compare `y`: this time it
# came out right, which is the worst that can happen.

# %%
without("SECOND")

# %% [markdown]
# **Without both**, in the hope that it goes well: on a GPU it often does, in the test and not in the exam. The engine says what may happen, not what happened to happen.

# %%
without("FIRST", "SECOND")
