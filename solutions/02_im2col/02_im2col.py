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
# # Lab 2: Convolution as a matrix product
#
# **240 minutes**, with one bonus. You rearrange the input so that a convolution becomes the most studied computation there is, the product
# of two matrices; then you make that product fast, one step at a time. Each step is predicted by arithmetic on the traffic, counted, and
# timed where there is a GPU.
#
# Afterwards you can explain
#
# - what *im2col* does, how much memory it costs, and how to write its result so that the stores coalesce;
# - what shared memory, barriers and banks are, and what each mistake with them looks like;
# - why tiles divide the traffic of a matrix product by their width, and what bounds the product after that;
# - when a wasteful access pattern costs time and when a cache hides it;
# - why a comparison that times the product and not the conversion flatters im2col.
#
# Edit the cells that say `YOUR CODE HERE`, `YOUR NUMBER HERE` or *Your answer*, and the kernel of step 4. If you restart the notebook's
# kernel, or a message says that `%%cuda` is not found or `check` is not defined, run the next cell first, then the cells of the step that you are at. Hints are folded, and free.

# %%
import numpy as np

from convladder.autograde import check, measure, open_lab, time_kernel
from convladder.autograde.faces import figures, runs
from convladder.kernels import layouts, oracle

open_lab("02_im2col")

# %% [markdown]
# ## The idea
#
# Lab 1's equation sums over a channel and a tap, $(c, r, s)$. Number these $C R S$ products in one row, $l = (c\,R + r)\,S + s$, and the
# outputs of a plane in another, $i = p\,Q + q$. Then write each window of the input below one another as a *column*:
#
# $$ \mathrm{col}_{n,\,l,\,i} \;=\; x_{n,\,c,\;p\,U-\mathrm{pad}+r,\;q\,U-\mathrm{pad}+s}, \quad 0 \text{ in the padding} \tag{1} $$
#
# and the convolution of image $n$ is one product of two matrices:
#
# $$ y_{n,k,i} \;=\; \sum_{l=0}^{CRS-1} w_{k,l} \cdot \mathrm{col}_{n,l,i}
#    \qquad\text{that is}\qquad \underbrace{y_n}_{K \times PQ} = \underbrace{w}_{K \times CRS} \cdot \underbrace{\mathrm{col}_n}_{CRS \times PQ} \tag{2} $$
#
# Neither $w$ nor $y$ has to move: $K \times C \times R \times S$ numbers in a row *are* a $K \times CRS$ matrix, and $K \times P \times Q$ numbers are
# a $K \times PQ$ one. Only the input has to be unrolled. The name *im2col*, image to columns, says just that; that a convolution is *lowered* means the same.
#
# ### The smallest example
#
# One image of $3 \times 3$, a $2 \times 2$ filter, no padding. Each of the four windows becomes a column of four numbers.

# %%
figures.lowering(H=3, W=3, R=2, S=2, p=0, q=1)

# %%
x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
w = np.array([[1, 0], [0, -1]], dtype=np.float32).reshape(1, 1, 2, 2)
col = layouts.im2col(x[0], R=2, S=2)
print("w · col =        ", (w.reshape(1, 4) @ col).astype(int))
print("the convolution =", oracle.conv2d(x, w).reshape(1, 4).astype(int))

# %% [markdown]
# The 5 in the middle of the image stands in col four times, once in each window. That is the price: memory and traffic grow, so that the
# arithmetic becomes regular.
#
# ## Step 1 · Unroll an image by hand (20 minutes)
#
# **Task `lower`, Python, about 8 lines.** Given one image `x`, an array of $C \times H \times W$, return the matrix of equation (1): an
# array of shape $(CRS, PQ)$. NumPy is imported as `np`; loops are fine.

# %%
# %%answer lower
import numpy as np


def lower(x, R, S, U, pad):
    """The windows of an image (C, H, W) as the columns of an array (C*R*S, P*Q)."""
    C, H, W = x.shape
    P, Q = (H + 2 * pad - R) // U + 1, (W + 2 * pad - S) // U + 1
    # BEGIN SOLUTION: about 8 lines
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    col = np.zeros((C * R * S, P * Q), x.dtype)
    for c in range(C):
        for r in range(R):
            for s in range(S):
                taps = padded[c, r : r + P * U : U, s : s + Q * U : U]
                col[(c * R + r) * S + s] = taps[:P, :Q].reshape(-1)
    return col
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>A row of col belongs to one channel and one tap. Which elements of the image does tap (0, 0) meet while the window walks over it?</details>
# <details><summary>Hint 2</summary>Make an array of zeros of the right shape, and fill its row (c*R + r)*S + s. Either loop over p and q as in lab 1, or take a whole slice with the step U.</details>
# <details><summary>Hint 3</summary>np.pad(x, ((0, 0), (pad, pad), (pad, pad))) is the image with its zeros. In it, tap (r, s) of output (p, q) is element (r + p*U, s + q*U).</details>

# %%
check("lower")

# %% [markdown]
# **Predict.** AlexNet's first layer has $C = 3$ channels of $227 \times 227$, filters of $11 \times 11$, $U = 4$ and no padding, so $P = Q = 55$.
# How many times as large as the input is col? A number or an expression.

# %%
# %%answer predict_growth
# BEGIN SOLUTION: elements of col for each element of x
predict_growth = (11 * 11 * 55 * 55) / (227 * 227)
# END SOLUTION

# %%
check("predict_growth")

# %% [markdown]
# With stride 1 and padding that keeps the size it would be $RS$ times: 9 for the usual $3 \times 3$, 121 here. The stride takes most of it back.
#
# ## Step 2 · im2col on the GPU (35 minutes)
#
# The lab report (a student's report of a course on high-performance computing, Sun Yat-sen University, 2021, section 2.2) gives each window
# to one thread, which writes its $CRS$ numbers side by side: one *row* an output point, the transpose of ours. Its inner loop is
#
# ```
# for (int c = 0; c < C; c++)
#     for (int r = 0; r < R; r++)
#         for (int s = 0; s < S; s++)
#             *to++ = …;                      // to = col + i*C*R*S at the start
# ```
#
# **Predict.** Neighbouring threads have neighbouring $i$. On our layer ($C = 8$, $3 \times 3$, $32 \times 32$ outputs) how many sectors of 32 bytes
# does one store request of a warp touch? Remember from lab 1 that a store of 32 neighbouring floats touches 4.

# %%
# %%answer predict_rows
# BEGIN SOLUTION: sectors per store request of the report's im2col
predict_rows = 32
# END SOLUTION

# %%
check("predict_rows")

# %% [markdown]
# **Task `im2col`, kernel, about 9 lines, 128 threads a block.** Write the matrix of equation (1), one row a tap. A thread has one output point
# `pq` of one channel `c` of image `n`, and copies its $RS$ taps; given are these three numbers and the guard. The kernel takes
# strides, paddings and dilations for height and width apart (`Uh`, `Uw` …): with a *dilation* of 2 the taps lie two elements apart, so
# tap $r$ reads row $p\,U_h - \mathrm{pad}_h + r\,\mathrm{dil}_h$. In lab 1 it was 1.

# %%
# %%cuda im2col
//! ladder/im2col.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Where in col does the thread's first element stand, and how far is it from there to the next tap of the same output point?</details>
# <details><summary>Hint 2</summary>Row l = (c*R + r)*S + s of image n begins at (n*C*R*S + l)*P*Q. The next tap is the next row: P*Q elements further. Padding is stored too, as 0.</details>
# <details><summary>Hint 3</summary>Set top = pq / Q * Uh - padh and left = pq % Q * Uw - padw, a pointer `from` to channel c of image n, and a pointer `to` to row (c*R)*S, element pq. Loop over r and s, store the tap or 0.0f, and move `to` on by P*Q.</details>

# %%
check("im2col")

# %%
measure("im2col")

# %% [markdown]
# **Prediction against measurement.** Each store request of yours touches 4 sectors: neighbouring lanes have neighbouring `pq`, which now *is* the position within
# a row of col. The report's kernel stores the same number of floats with the same number of requests, in eight times as many sectors.
# The loads are alike in both. So the layout of col was worth a factor in the traffic before any product was formed.
#
# ## Step 3 · The report's product (20 minutes)
#
# With one filter, equation (2) is a matrix times a vector, *GEMV*. The report's rows make it easy to write: a thread takes one row
# of its matrix and multiplies it with the filter. From here on, matrices have names of their own: a product has $GM$ rows (filters), $GN$ columns
# (output points) and sums $GK$ products; $a$ holds the filters, $b$ the unrolled input, $c$ the result.
#
# **Predict.** In the report's layout $b$ has $GN$ rows of $GK = 72$ floats, a row a thread. In turn $l$ of the loop the lanes of a warp load
# `b[i * 72 + l]`, for 32 neighbouring $i$. How many sectors does this request touch?

# %%
# %%answer predict_gemv_rows
# BEGIN SOLUTION: sectors per load request of b
predict_gemv_rows = 32
# END SOLUTION

# %%
check("predict_gemv_rows")

# %% [markdown]
# **Task `gemv_rows`, kernel, about 3 lines, 128 threads a block.** Write the sum and its store: `c[m][i]` is the sum over `l` of
# `a[m][l] * b[i][l]`. Given are the column `i`, the filter `m`, the guard, and two lines that move `b` and `c` on to the matrices of the block's
# image (`blockIdx.z` counts images; $GB$ is how many there are).

# %%
# %%cuda gemv_rows
//! ladder/gemv_rows.cu

# %% [markdown]
# <details><summary>Hint 1</summary>This is the inner product of row m of a and row i of b.</details>
# <details><summary>Hint 2</summary>Both rows have GK floats. Element l of row i is b[i * GK + l].</details>
# <details><summary>Hint 3</summary>A float sum that begins at 0, one loop over l, and the store to c[m * GN + i].</details>

# %%
check("gemv_rows")

# %%
measure("gemv_rows")

# %% [markdown]
# Each load of `b` moves 32 sectors, 1024 bytes, of which 128 are used. A coalesced load would move an eighth of that. So we turn the matrix.
#
# ## Step 4 · Turning it, through shared memory (25 minutes)
#
# Whoever reads rows and writes columns has either loads or stores that do not coalesce. The way out is *shared memory*: a small
# array that all threads of a block can read and write, on the chip, in any order. A block loads a tile of $32 \times 32$ with coalesced loads, and
# stores it turned, with coalesced stores. Since a thread now reads what *other* threads have put there, the block must wait in between:
# `__syncthreads()` is a *barrier*, which no thread passes before all have come to it.
#
# **Task `turn`, debugging, 1 line and 1 character, 1024 threads a block.** Somebody's kernel for this has a mistake. Run the cell and its check *before* you read the code:
# the fault report names two lines and two threads. Repair it with one line. Then look at the second failed check, and at the figures below: they cost one
# character.

# %%
# %%cuda turn
/* turn: the rows of the unrolled input become its columns, a tile at a time, through shared memory.
 *   col[n,l,i] = rows[n,i,l]
 * rows    device, GB matrices of GN*GK float
 * col     device, GB matrices of GK*GN float
 */
//@ launch turn grid=(cdiv(GK, 32), cdiv(GN, 32), GB) block=(32, 32)

__global__ void turn(const float* rows, float* col, int GN, int GK)
{
    __shared__ float tile[32][33];
    rows += (size_t)blockIdx.z * GN * GK;
    col += (size_t)blockIdx.z * GK * GN;

    int l = blockIdx.x * 32 + threadIdx.x;              // along a row of rows
    int i = blockIdx.y * 32 + threadIdx.y;
    if (i < GN && l < GK) tile[threadIdx.y][threadIdx.x] = rows[i * GK + l];
    __syncthreads();                                    // the tile is complete

    l = blockIdx.x * 32 + threadIdx.y;
    i = blockIdx.y * 32 + threadIdx.x;                  // along a row of col
    if (l < GK && i < GN) col[l * GN + i] = tile[threadIdx.x][threadIdx.y];
}
//! stub turn.buggy.cu

# %%
check("turn")

# %% [markdown]
# **Predict.** Shared memory has 32 *banks*; word number $j$ lies in bank $j \bmod 32$. Each bank gives one word at a time. Lanes that want different words of the same bank
# take turns, and each turn is a *wavefront*. In `tile[32][32]` the lanes of a warp read `tile[0][y]`, `tile[1][y]` … `tile[31][y]`.
# How many wavefronts does this one request take?

# %%
# %%answer predict_banks
# BEGIN SOLUTION: wavefronts of one request
predict_banks = 32
# END SOLUTION

# %%
check("predict_banks")

# %%
figures.banks(pitch=32)

# %%
figures.banks(pitch=33)

# %% [markdown]
# <details><summary>Hint 1</summary>Which line writes to the tile, which line reads from it, and what makes sure that all threads of the block have done the one before any does the other?</details>
# <details><summary>Hint 2</summary>The barrier stands between the two, and outside of both conditions: every thread of the block must come to it.</details>
# <details><summary>Hint 3</summary>For the banks: in the second figure the rows of the tile are one word longer, and the last word of each is never used.</details>

# %%
measure("turn")

# %% [markdown]
# On a GPU the kernel without the barrier may well give the right result, as long as its warps happen to run in a good order. That is what
# makes races expensive. The engine does not wait for a bad day: it knows which accesses no barrier orders.
#
# ## Step 5 · The product on the turned matrix (15 minutes)
#
# **Task `gemv`, kernel, about 3 lines, 128 threads a block.** The same sum with the matrix of equation (1): $b$ now has $GK$ rows of $GN$ floats. (The parameter `groups` is for layers whose
# channels are split into groups, each with filters of its own; the given line picks the group's filters.)

# %%
# %%cuda gemv
//! ladder/gemv.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Row i of b has become its column i: what is the distance in memory from one element of a column to the next?</details>
# <details><summary>Hint 2</summary>Element l of column i is b[l * GN + i]. Which elements do neighbouring lanes load now?</details>
# <details><summary>Hint 3</summary>Start from step 3 and change the index of b, nothing else.</details>

# %%
check("gemv")

# %%
measure("gemv")

# %% [markdown]
# **Prediction against measurement.** From 32 sectors a request to 4: an eighth of the traffic, as predicted. So it should be faster. Is it? Here both
# products are timed by themselves on the report's images, and both conversions too.

# %%
steps = ("step gemv_rows", "step gemv", "step im2col_rows", "step im2col")
runs.times("lowering", by="size", ways=steps, only=(31, 127, 511, 4095))

# %% [markdown]
# On the recorded H100 the two products take about the same time on large images, and on small ones the "wasteful" one is even faster. Why? The counters say what the threads *ask for*. Eight turns of the loop ask for the same
# sector again, since a row's floats lie side by side; the first-level cache keeps it, and the memory behind is asked once. The waste was real but hidden by a cache. A store has no such luck: the report's im2col, whose stores scatter,
# takes about ten times as long as ours from $511 \times 511$ on. Counters tell you where to look; the clock decides.
#
# ## Step 6 · Many filters (25 minutes)
#
# With $K$ filters, $GM = K$, and the vector becomes a matrix: *GEMM*, the product of two matrices. The plainest kernel gives each element of $c$ a thread.
#
# **Task `gemm_coalesced`, kernel, about 7 lines, 256 threads a block.** Write the launch line, the thread's row `m` and column `i` with their guard, and the sum. Which of
# the two indices belongs on `threadIdx.x`? The grid's third dimension counts images: it is `GB`.

# %%
# %%cuda gemm_coalesced
/* gemm_coalesced: matrix product, one thread an element.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float
 * b       device, GB matrices of GK*GN float
 * c       device, GB matrices of GM*GN float, every element stored once
 */
// BEGIN SOLUTION: 1 line: //@ launch gemm_coalesced grid=(..., ..., GB) block=(..., ...)
//@ launch gemm_coalesced grid=(cdiv(GN, 32), cdiv(GM, 8), GB) block=(32, 8)
// END SOLUTION

__global__ void gemm_coalesced(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    // BEGIN SOLUTION: about 3 lines: the thread's row m and column i, and the guard on them
    int i = blockIdx.x * 32 + threadIdx.x;              // the column changes from lane to lane
    int m = blockIdx.y * 8 + threadIdx.y;
    if (m >= GM || i >= GN) return;
    // END SOLUTION
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    // BEGIN SOLUTION: about 3 lines: the sum, and its store
    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += a[m * GK + l] * b[l * GN + i];
    c[m * GN + i] = sum;
    // END SOLUTION
}

# %% [markdown]
# <details><summary>Hint 1</summary>Neighbouring lanes should load neighbouring floats of b and store neighbouring floats of c. Both matrices are stored row by row.</details>
# <details><summary>Hint 2</summary>The column i is on threadIdx.x, so the grid's x dimension covers GN and its y dimension GM. A block of 32 x 8 threads makes each warp one row.</details>
# <details><summary>Hint 3</summary>Write grid=(cdiv(GN, 32), cdiv(GM, 8), GB) block=(32, 8). In the kernel i = blockIdx.x * blockDim.x + threadIdx.x, m likewise with y; leave if either is too large; the sum is that of step 5.</details>

# %%
check("gemm_coalesced")

# %% [markdown]
# **Predict.** On our layer $GM = 64$, $GN = 256$, $GK = 72$. In each turn of the loop a warp (32 columns of one row) makes two loads: one of $a$, the same
# word for all lanes, and one of $b$. How many sectors do all load requests of the whole grid touch together?

# %%
# %%answer predict_loads
# BEGIN SOLUTION: sectors of all loads
predict_loads = 64 * 256 * 72 / 32 * (1 + 4)
# END SOLUTION

# %%
check("predict_loads")

# %%
measure("gemm_coalesced")

# %%
time_kernel("gemm_coalesced")

# %% [markdown]
# **Prediction against measurement.** Two loads for one multiply-add is a poor trade. A current GPU forms tens of multiply-adds in the time in which it fetches one float from memory,
# so this kernel waits, coalesced or not. Yet every float of $b$ is wanted $GM$ times, and every float of $a$ $GN$ times. We have to keep them near.
#
# ## Step 7 · Tiles (45 minutes)
#
# Cut $c$ into tiles of $T \times T$ and give each to a block of $T \times T$ threads. To form its tile, the block needs a strip of $a$ ($T$ rows) and a strip of $b$ ($T$ columns). It
# walks along both, one pair of tiles at a time: load the two tiles into shared memory, each thread one float of each; wait; multiply them; wait; go on.

# %%
figures.tiles(GM=64, GN=128, GK=96, tile=32, row=1, column=2, step=1)

# %% [markdown]
# Every float of a tile is loaded once by the block and then used $T$ times from shared memory. With $T = 32$ the threads ask global memory for $2/32$ floats a multiply-add, in place of 2.
#
# **Predict.** How many sectors do the loads of our layer touch with tiles of 32? The strips are $GK = 72$ long; each is loaded once by each block, and every
# load is coalesced, eight floats a sector. There are $64/32 \cdot 256/32$ blocks.

# %%
# %%answer predict_tiles
# BEGIN SOLUTION: sectors of all loads with tiles
predict_tiles = (64 / 32) * (256 / 32) * (32 * 72 + 72 * 32) / 8
# END SOLUTION

# %%
check("predict_tiles")

# %% [markdown]
# **Task `gemm_shared`, kernel, about 12 lines, `TILE` × `TILE` threads a block.** Write the loop over pairs of tiles, and the store. Sizes need not be multiples of 32: what lies outside of a matrix counts as 0 in its tile,
# and a thread without an element of $c$ must still load for the others and come to every barrier.

# %%
# %%cuda gemm_shared
//! ladder/gemm_shared.cu

# %% [markdown]
# <details><summary>Hint 1</summary>In each turn l0 = 0, TILE, 2*TILE …: thread (x, y) brings one float of row m of a and one float of column i of b. Which ones? Draw the two filled tiles of the figure.</details>
# <details><summary>Hint 2</summary>a_tile[y][x] is a's element (m, l0 + x), and b_tile[y][x] is b's element (l0 + y, i): both loads are coalesced. Test each index against its own matrix. There are two barriers a turn: one before the products, one after.</details>
# <details><summary>Hint 3</summary>Between the barriers add TILE products a_tile[y][l] * b_tile[l][x] to a sum that was set to 0 before the loop. After the loop, and only there, test m and i and store.</details>

# %%
check("gemm_shared")

# %%
measure("gemm_shared")

# %%
time_kernel("gemm_shared")

# %% [markdown]
# **Prediction against measurement.** The loads fell by a factor of 20, not 32. The threads ask for a 32nd of the floats; but two requests, of $a$ and of $b$, used to touch $1 + 4$ sectors, as all lanes read the same word of $a$, and
# touch $4 + 4$ now. The multiply-adds went *up*: 72 is not a multiple of 32, so the last tile of each strip holds zeros, which are multiplied like everything else.
# And look at the wavefronts: two loads for each multiply-add are still there. They moved from global to shared memory, which is nearer, not free.
#
# **Explain, at most 80 words.** Why do tiles in shared memory save traffic, though every thread still reads two floats for each product? Give the factor with a number of your own counters.
# What would go wrong without the first barrier, and what without the second?

# %% [markdown] explain="explain_tiles"
# <!-- BEGIN SOLUTION -->
# A block loads each float of its tiles once from global memory; then all 32 threads of a row or column read it from shared memory: a 32nd of the
# floats. I counted 184320 sectors before and 9216 after, 20 times fewer, since a broadcast of a was cheap. Without the first barrier a thread
# multiplies floats not brought yet; without the second a fast warp overwrites tiles that a slow one still reads.
# <!-- END SOLUTION -->

# %% [markdown]
# ## Step 8 · What lowering costs, and a claim (25 minutes)
#
# The report compares its two ways on one filter of $3 \times 3$ and images of three channels (how many is our assumption), in milliseconds on its GPU:
#
# | input | 31 | 63 | 127 | 255 | 511 |
# |---|---|---|---|---|---|
# | direct kernel | 0.071 | 0.305 | 0.401 | 0.538 | 1.157 |
# | im2col | 0.077 | 0.230 | 0.385 | 0.503 | 1.140 |
#
# and concludes that im2col "improves the storage of the matrix" and so is somewhat faster. Below the table it says, in one line, that *the time of im2col is that of the product only, without the conversion*.
#
# **Predict.** Count bytes for one filter, pad = 1, $U = 1$, so that $P = H$ and $Q = W$. A direct kernel must read $x$ and write $y$. Lowering must read $x$, write col, read col, and write $y$. How many
# times as many floats is that, for $C = 3$ and $3 \times 3$? Leave out the 27 weights.

# %%
# %%answer predict_traffic
# BEGIN SOLUTION: floats that lowering moves for each that it must
predict_traffic = (3 + 27 + 27 + 1) / (3 + 1)
# END SOLUTION

# %%
check("predict_traffic")

# %% [markdown]
# **Your evidence.** The report's kernels as rungs of our ladder: its direct kernel, its product without the conversion, its conversion, and both together; then the same with our
# layout, and lab 1's coalesced kernel.

# %%
by_rows, turned = ("step gemv_rows", "step im2col_rows", "gemv_rows"), ("step gemv", "step im2col", "gemv")
ways = ("direct_report", *by_rows, *turned, "direct_coalesced")
lowering = runs.times("lowering", by="size", ways=ways)
lowering

# %%
print("times as fast as the report's direct kernel, on its images:")
for way, what in (
    ("step gemv_rows", "the report's product alone"),
    ("gemv_rows", "with its conversion"),
    ("gemv", "both, with our layout"),
):
    sizes = (31, 63, 127, 255, 511)
    ratios = [lowering.us(size, "direct_report") / lowering.us(size, way) for size in sizes]
    print(f"  {what:28}", "  ".join(f"{ratio:5.2f}" for ratio in ratios))

# %% [markdown]
# **Verdict: holds only as it was measured.** On the recorded H100 the report's product alone *is* faster than its direct kernel on the small images, by up to some two thirds, as its table says. With the conversion that makes the product
# possible, the same way is between one and a half and fifteen times *slower*. A good layout repairs the conversion, and lowering still loses: with one filter each element of col is used once, and
# writing it down and reading it back was for nothing. The predicted factor, 14.5, bounds the loss where memory is the limit.
#
# So why does anybody lower? Because with $K$ filters the conversion is paid once and used $K$ times, and the product that follows is the best-tuned kernel on every machine. The next cell takes one image of 64 channels, $56 \times 56$,
# and counts the filters up. Lab 3 asks what a library makes of that.

# %%
ways = ("direct_coalesced", "gemm_blocked", "gemm_buffered", "cublas batched")
runs.times("lowering", by="filters", ways=ways)

# %% [markdown]
# ## Step 9 · Bonus: as fast as you can (30 minutes)
#
# No points, all the fun. After step 7 two loads from shared memory stand beside each multiply-add. The mobile-GPU paper (Wang, Shi, Wen, section 3.2) goes on from there on a phone, in three steps:
#
# - **Vectors.** A `float4` moves four neighbouring floats with one instruction. The paper tried widths of 4, 8 and 16 and kept 4.
# - **Unrolling** by 8: `#pragma unroll 8` before the inner loop saves its counting and branching, and lets the compiler move loads ahead.
# - **Padding** to multiples of 32: with zeros stored around the matrices no thread has to test anything.
#
# **Predict** what padding costs. LeNet's second layer on one image has $GM = 50$, $GN = 64$ and $GK = 500$. With all three padded to multiples of 32, how many times as many products are formed?

# %%
# %%answer predict_padding
# BEGIN SOLUTION: products with padding for each without
predict_padding = (64 * 64 * 512) / (50 * 64 * 500)
# END SOLUTION

# %%
check("predict_padding")

# %% [markdown]
# Your tiles of step 7 form just as many: they store no zeros around the matrices, but they fill their tiles with them. The largest step is a fourth, **register blocking**: let each thread form $8 \times 8$ elements of $c$. In each turn it loads 8 floats of $a$ and 8 of $b$ from shared memory into registers, and forms 64 products of them:
# a quarter of a load for each, in place of two. Use any of it, in any kernel of yours, as long as the result is right for all sizes.
#
# **Task `gemm_blocked`, kernel, about 40 lines, at most 1024 threads a block.** Your own product; the launch line is yours to change, as the given one is for $8 \times 8$ elements a thread. The check compares it with the ladder's `gemm_shared` and `gemm_blocked`.

# %%
# %%cuda gemm_blocked
//! ladder/gemm_blocked.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Begin with step 7's kernel under this name; it passes. Then let each thread have two elements of c in a column, then four, and watch the wavefronts.</details>
# <details><summary>Hint 2</summary>A block of 16 x 16 threads with 4 x 4 elements each forms a tile of 64 x 64. Let its 256 threads load the tiles in a loop, neighbouring threads neighbouring floats. Change the launch line to match.</details>
# <details><summary>Hint 3</summary>Keep `float sum[4][4]` and two small arrays of 4 floats, and unroll every loop over them with `#pragma unroll`, so that they stay in registers. Give thread (x, y) the columns x, x + 16, x + 32, x + 48: its lanes then read neighbouring words.</details>

# %%
check("gemm_blocked")

# %%
measure("gemm_blocked")

# %%
time_kernel("gemm_blocked")

# %% [markdown]
# The mobile paper reports 3 times for tiles in local memory, 1.25 for vectors and 1.16 for unrolling. The ladder's rungs on square matrices, recorded or measured here:

# %%
rungs = ("gemm_naive", "gemm_coalesced", "gemm_shared", "gemm_float4", "gemm_blocked", "gemm_buffered")
products = runs.times("gemm", by="size", ways=(*rungs, "cublas batched"))
products

# %%
steps = ("gemm_coalesced", "gemm_shared"), ("gemm_shared", "gemm_float4"), ("gemm_shared", "gemm_blocked")
for slow, fast in steps:
    ratios = {n: products.us(n, slow) / products.us(n, fast) for n in (1024, 2048, 4096)}
    gains = ", ".join(f"{ratio:.2f} at {n}" for n, ratio in ratios.items())
    print(f"{fast} over {slow}: {gains} times as fast")

# %% [markdown]
# **Verdict: the order of the steps holds, the factors belong to the machine.** Tiles gain less over a coalesced kernel on a GPU whose caches already hold much of what tiles would keep; vectors gain about what they did on the phone;
# and the step that the paper does not take, registers, is the one that matters most, once the matrices are large enough: at 1024 the tiles of $128 \times 128$ make 64 blocks, for the 132 multiprocessors of the recorded H100.
