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
# # Lab 0: A first kernel
#
# **45 minutes, not graded.** You run a CUDA C++ kernel from a notebook, break it, read what broke, repair it, and count what it costs.
# A GPU is welcome and not needed.
#
# Afterwards you can explain
#
# - how a cell becomes a running kernel, and who decides how many threads run it;
# - how a thread finds its element, in one dimension and in two;
# - what a fault report says;
# - what a request and a sector are.
#
# Edit the cells that say `YOUR CODE HERE` or `YOUR NUMBER HERE`, and the one in step 1. Run a cell with Shift+Enter.

# %%
from convladder.autograde import check, measure, open_lab

open_lab("00_start")

# %% [markdown]
# ## The idea
#
# A *kernel* is a C++ function that many threads run at once, each on its own element. Threads come in *blocks* of one size, and the
# blocks form a *grid*. A thread knows its place in its block, `threadIdx`, and its block's place in the grid, `blockIdx`; from the two it computes which
# element is its own:
#
# | block | 0 | 0 | … | 0 | 1 | 1 | … |
# |---|---|---|---|---|---|---|---|
# | `threadIdx.x` | 0 | 1 | … | 255 | 0 | 1 | … |
# | `blockIdx.x * blockDim.x + threadIdx.x` | 0 | 1 | … | 255 | 256 | 257 | … |
#
# A cell that begins with `%%cuda TASK` holds CUDA C++. A comment line that begins with `//@` tells how the kernel is launched:
#
# ```
# //@ launch saxpy grid=cdiv(n, 256) block=256
# ```
#
# Here `cdiv(n, 256)` is $\lceil n/256 \rceil$, the least number of blocks of 256 threads that cover $n$ elements.
# For $n = 1000$ that is 4 blocks, and 1024 threads.
#
# ## Step 1 · See a fault, repair it (15 minutes)
#
# The kernel computes $z_i = a\,x_i + y_i$ for $i = 0 \ldots n-1$. It compiles, and for $n = 256$ it is right.
#
# **Task `saxpy`, debugging, 1 line.** Run the cell and its check, and read the report: what went wrong, in which line, in which thread? Then
# add the line that is missing.

# %%
# %%cuda saxpy
//! stub saxpy.buggy.cu
//@ launch saxpy grid=cdiv(n, 256) block=256

__global__ void saxpy(const float* x, const float* y, float* z, int n, float a)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    z[i] = a * x[i] + y[i];
}

# %%
check("saxpy")

# %% [markdown]
# <details><summary>Hint 1</summary>How many threads run when n = 1000? How many elements are there?</details>
# <details><summary>Hint 2</summary>Blocks are full or absent: 24 threads of the last block have nothing to do. They do not know that yet.</details>
# <details><summary>Hint 3</summary>Compare i with n before the first access, and let the surplus threads return.</details>

# %% [markdown]
# On a GPU the same mistake may go unnoticed for years. With $n = 1000$ the surplus threads write 96 bytes behind `z`; there often lies more memory of the same
# program, and the kernel quietly overwrites somebody else's numbers. Here every access is checked against the array that it was meant for.
#
# ## Step 2 · Two dimensions (15 minutes)
#
# Blocks and grids have up to three dimensions. For images two are natural: `threadIdx.x` counts the columns and `threadIdx.y` the rows.
# In memory an image of $H \times W$ is one row after the other, so element $(i, j)$ is `x[i * W + j]`.
#
# **Task `mirror`, kernel, about 4 lines, blocks of $16 \times 16$.** Write the mirror image of every row: $y_{i,j} = x_{i,\,W-1-j}$. The launch line is
# given; think of the surplus threads on both sides.

# %%
# %%cuda mirror
//@ launch mirror grid=(cdiv(W, 16), cdiv(H, 16)) block=(16, 16)

__global__ void mirror(const float* x, float* y, int H, int W)
{
    // BEGIN SOLUTION: about 4 lines: j from the x dimension, i from the y dimension, the guard, the copy
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= H || j >= W) return;
    y[i * W + j] = x[i * W + W - 1 - j];
    // END SOLUTION
}

# %%
check("mirror")

# %% [markdown]
# <details><summary>Hint 1</summary>The column is what i was in step 1. The row is the same with y in place of x.</details>
# <details><summary>Hint 2</summary>A thread is surplus if its row or its column lies outside. One is enough.</details>
# <details><summary>Hint 3</summary>Column 0 of y is column W-1 of x. A column of W would already be the first element of the next row.</details>
#
# ## Step 3 · Count (10 minutes)
#
# The hardware runs threads in *warps* of 32, which execute one instruction together. A load or store of a warp is one *request*.
# Memory answers it in *sectors* of 32 bytes. The fewer sectors a request needs, the less the memory has to move.
#
# **Predict.** 32 threads load 32 neighbouring floats of 4 bytes, and the first lies at the start of a sector. How many sectors is that?

# %%
# %%answer predict_sectors
# BEGIN SOLUTION: a number, or an expression such as 7 * 6
predict_sectors = 32 * 4 / 32
# END SOLUTION

# %%
check("predict_sectors")

# %%
measure("saxpy")

# %% [markdown]
# **Prediction against measurement.** The table counts each access for $n = 1000$. There are 32 warps, and 31 of them are full; the last one has 8 threads
# left, which fill a single sector. Your prediction times 31, plus 1, is the number of sectors of each array.
#
# Now the mirror on a $64 \times 64$ image. It reads each row backwards. Does that cost more?

# %%
measure("mirror")

# %% [markdown]
# It does not. A request asks for a set of sectors, in whatever order its threads name them. What counts is how far apart the 32 addresses lie, and lab 1 is
# about a convolution that gets this wrong.
