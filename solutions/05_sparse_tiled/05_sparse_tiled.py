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
# # Lab 5: Tiles of a sparse filter in shared memory
#
# **240 minutes.** In lab 4 every warp fetched the whole filter for itself, number by number. Here the threads of a block fetch it together. You
# repair the paper's own listing, write it well, find out what its block size costs, and then make it as fast as you can.
#
# Afterwards you can explain
#
# - what a block gains when it reads a filter once, and how much of that the caches had given already;
# - why a tile needs two barriers, and which mistake each of them prevents;
# - why a thread without an output must still come to the barrier;
# - what 1024 threads do to a layer of $13 \times 13$ outputs;
# - which of a paper's claims hold on another GPU, and why the others do not.
#
# Edit the cells that say `YOUR CODE HERE`, `YOUR NUMBER HERE` or *Your answer*, and the kernel of step 2. Run a cell with Shift+Enter.
# Hints are folded, and free.

# %%
from convladder.autograde import check, measure, open_lab, time_kernel
from convladder.autograde.faces import figures, recorded_figures

open_lab("05_sparse_tiled")

# %% [markdown]
# ## The idea
#
# The sum of lab 4, over the non-zeros $j$ of filter $k$,
#
# $$ y_{n,k,p,q} \;=\; \sum_{j} \mathrm{val}_j \cdot x^{p}_{n,\;\mathrm{col}_j + p\,U\,W_p + q\,U} \tag{1} $$
#
# has the same $\mathrm{val}_j$ and $\mathrm{col}_j$ for every output of a plane. A block computes some hundred outputs of one plane, and so all its threads need the same list of pairs, in
# the same order, at about the same time. *Shared memory* is a small array that the threads of one block have in common, as near as a register file and as fast as a
# cache. The block cuts the list into *tiles*. For each tile
#
# 1. every thread loads one pair $(\mathrm{col}, \mathrm{val})$ from global memory and puts it into shared memory;
# 2. the threads wait for each other: `__syncthreads()`, a *barrier*;
# 3. every thread walks along the tile and adds its own products, with its own window;
# 4. the threads wait again, before anybody overwrites the tile with the next one.
#
# ### The smallest example
#
# One filter of five non-zeros, tiles of two, a block of two threads, whose windows begin at elements 0 and 1 of an image that holds 0, 1, 2 … 11.

# %%
col, val, xp = [0, 2, 3, 7, 9], [3, 1, 2, 5, 4], range(12)
sums = [0, 0]
for j0 in range(0, 5, 2):
    tile = list(zip(col[j0 : j0 + 2], val[j0 : j0 + 2]))  # each thread brings one pair
    for thread in (0, 1):  # and walks along all of them
        sums[thread] += sum(v * xp[thread + c] for c, v in tile)
    print("tile", tile, "sums", sums)

# %% [markdown]
# In the third tile thread 1 has nothing to load, but it has an output like the other, and walks along a tile of one. Nearly every mistake in this lab is about
# that last tile, or about a thread that thinks it has nothing to do.
#
# ## Step 1 · What is there to gain? (10 minutes)
#
# In lab 4's kernel each warp loads `val[j]` and `col[j]` for each non-zero: two requests, each for a single number. With tiles, a warp loads 32 pairs in two requests, and the tile
# serves all warps of the block.
#
# **Predict.** A block has 128 threads, and a row fills many tiles of 128. By which factor do the load requests for `val` and `col` fall?

# %%
# %%answer predict_tile_loads
# BEGIN SOLUTION: requests before / requests after
predict_tile_loads = 4 * 32
# END SOLUTION

# %%
check("predict_tile_loads")

# %% [markdown]
# ## Step 2 · The paper's listing (40 minutes)
#
# The kernel below is the listing of the sparse paper's section 3.3, put into CUDA and into our letters: a block of `BX` by `BY` threads covers a rectangle of outputs, and a
# tile is as long as the block has threads. Where the paper does not say something, the kernel does not do it. The launch, the window and the store are right.
#
# **Task `csr_paper`, debugging, about 6 lines.** The part between the two comments has six slips. Let the tools find them: two do not
# compile, and each of the other four has a report of its own. Run the check, repair what it reports and no more, and run it again: when the report changes, that slip is gone. The
# first cases have whole tiles only, so what matters for a part of a tile comes later. Keep a list of what found what.

# %%
# %%cuda csr_paper
/* csr_paper: sparse convolution, stretched CSR, tiles of (val, col) in shared memory, after the sparse paper's listing.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float, every element stored once
 */
//@ const BX = 32
//@ const BY = 4
//@ launch csr_paper grid=(cdiv(Q, BX), cdiv(P, BY), N*K) block=(BX, BY)

__global__ void csr_paper(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                          int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    const int tile_size = BX * BY;
    __shared__ int col_shared[tile_size];
    __shared__ float value_shared[tile_size];
    int q = blockIdx.x * BX + threadIdx.x;
    int p = blockIdx.y * BY + threadIdx.y;
    int k = blockIdx.z % K;
    int n = blockIdx.z / K;
    bool live = p < P && q < Q;                         // the others help to load
    const float* input = xp + n * C * Hp * Wp + (live ? p * Uh * Wp + q * Uw : 0);

    int row_start = rowptr[k];
    int row_end = rowptr[k + 1];
    float sum = 0.0f;
    // from the paper
    int t = threadIdx.y * blockDim.x + threadIdx.x;
    for (int i = 0; row_start + i * tile_size < row_end; i++) {
        int tile_start = row_start + i * tile_size;
        if (tile_start + t < row_end) {
            col_shared[t] = col[tile_start + t];
            value_shared[t] = val[tile_start + t];
        }
        __syncthreads();
        for (int j = tile_start; j < min(tile_start + tile_size, row_end); j++)
            sum += value_shared[j - tile_start] * input[col_shared[j - tile_start]];
        __syncthreads();
    }
    // until here
    if (live) y[((n * K + k) * P + p) * Q + q] = sum;
}
//! stub csr_paper.buggy.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Give every thread of a block of 32 by 4 its number t. Which numbers come twice, and which never? With which shape of block would nobody have noticed?</details>
# <details><summary>Hint 2</summary>The inner loop walks over the tile that is loaded, not over the whole row, and its last pass is the end of the tile or of the row, whichever comes first. So must the load stop there: behind the last row there is nothing to read.</details>
# <details><summary>Hint 3</summary>Fill in for yourself what each of the two arrays holds at place t after the load: which non-zero of which filter? The list of the block's filter begins at row_start.</details>

# %%
check("csr_paper")

# %% [markdown]
# Which mistakes would a test on one layer have found? With square blocks the numbering is right by chance. Where every filter is shorter than a tile, the inner loop is right by
# chance. And the load that runs past its row is harmless but for the last filter of a layer, where it reads what happens to lie behind the array.
#
# ## Step 3 · Your own, with tiles (40 minutes)
#
# Now write it in the form of lab 4: one number $pq$ a thread, so that a plane is covered by one row of blocks. A tile is as long as the block has threads.
#
# **Task `csr_tiled`, kernel, about 12 lines, at most 256 threads a block.** Given are the two tiles, the thread's place, and `live`: whether it has an output. Write the loop over
# the tiles of row `k` with its two barriers, and the store. Of the two thresholds, `loads` belongs to this step, and `surplus` to the next.

# %%
# %%cuda csr_tiled
/* csr_tiled: sparse convolution, stretched CSR, tiles of (val, col) in shared memory.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float, every element stored once
 */
//@ const TILE = 256
//@ let block = 32*cdiv(P*Q, 32*cdiv(P*Q, TILE))
//@ launch csr_tiled grid=(cdiv(P*Q, block), K, N) block=block

__global__ void csr_tiled(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                          int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    __shared__ int col_tile[TILE];
    __shared__ float val_tile[TILE];
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    bool live = pq < P * Q;                             // surplus threads help to load, and must reach the barriers
    const float* input = xp + n * C * Hp * Wp + (live ? pq / Q * Uh * Wp + pq % Q * Uw : 0);

    int end = rowptr[k + 1];
    float sum = 0.0f;
    for (int j0 = rowptr[k]; j0 < end; j0 += blockDim.x) {
        int length = min((int)blockDim.x, end - j0);
        if (threadIdx.x < length) {
            col_tile[threadIdx.x] = col[j0 + threadIdx.x];
            val_tile[threadIdx.x] = val[j0 + threadIdx.x];
        }
        __syncthreads();                                // the tile is complete
        for (int j = 0; j < length; j++)
            sum += val_tile[j] * input[col_tile[j]];
        __syncthreads();                                // nobody reads it any more
    }
    if (live) y[(n * K + k) * P * Q + pq] = sum;
}
//! stub csr_tiled.start.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Let j0 run from rowptr[k] to rowptr[k + 1] in steps of the block's size. The length of this tile is that size or what is left of the row: min(…).</details>
# <details><summary>Hint 2</summary>Thread t loads pair j0 + t, if t is less than the length. Then a barrier, the loop over the tile, and another barrier. No thread may return before the last barrier.</details>
# <details><summary>Hint 3</summary>All threads of a block have the same k, so they make the same number of passes: a barrier inside the loop is met by all or by none. Only the store is for live threads alone.</details>

# %%
check("csr_tiled")

# %%
measure("csr_tiled")

# %% [markdown]
# **Prediction against measurement.** In lab 4 a warp's multiply-add came with three requests to global memory. Count them now: of the load requests nearly all are for `xp`. In their place stand two
# requests to shared memory, each of which gives one word to all lanes at once.
#
# **Try it.** Take one barrier out, run the cell and the check, and put it back; then the other. Each gives a race, in another line. Without the first one,
# who reads what nobody has written yet? Without the second, who overwrites what is still being read? Then let the threads without an output return at the top, as in lab 4, and see what the engine says.
#
# ## Step 4 · How large is a block? (25 minutes)
#
# The paper takes 1024 threads a block, and gives as its reason that a plane has more outputs than that. Its own layers say otherwise: conv2 of AlexNet has $27 \times 27 =
# 729$ outputs, and conv3 to conv5 have $13 \times 13 = 169$.
#
# **Predict.** With one image a block, which share of the threads has an output on a plane of $13 \times 13$: with blocks of 1024, and with blocks of 128?

# %%
# %%answer predict_useful_1024
# BEGIN SOLUTION: share of the threads with an output
predict_useful_1024 = 169 / 1024
# END SOLUTION

# %%
check("predict_useful_1024")

# %%
# %%answer predict_useful_128
# BEGIN SOLUTION: share of the threads with an output
predict_useful_128 = 169 / (2 * 128)
# END SOLUTION

# %%
check("predict_useful_128")

# %%
figures.useful_threads(outputs=[729, 169, 49], blocks=[64, 128, 256, 1024])

# %% [markdown]
# **Prediction against measurement.** Set `TILE` to 1024 in your kernel of step 3, run it, and run `measure` once more. The multiply-adds grow, because surplus threads multiply as well: they have to walk with
# the others, or wait for them. In lab 4 a warp without outputs went home, which is why on small planes that kernel can beat a tiled one.
#
# **Task `csr_tiled` again, its launch, about 3 lines.** Cut the blocks to the plane. The launch line may be any expression: a line `//@ let block = …` gives a number a name, and `block=block` uses it. A block is made
# of whole warps and has at most 256 threads. Find an expression that covers 169 outputs by one block of 192, and 729 by three of 256, and let the kernel use `blockDim.x` where it used `TILE`; the two shared
# arrays keep a constant size. Then run the cell and the check of step 3 again: the threshold `surplus` is met when at most every sixth thread has no output.
#
# ## Step 5 · A block that spans images (40 minutes)
#
# The last layers of GoogLeNet and ResNet-50 have planes of $7 \times 7 = 49$ outputs, and no block of whole warps fits that. But all images meet the same filter. So number the
# outputs of a filter through the whole batch, $0 \ldots N P Q - 1$, and let a block take `TILE` of these, from whichever images they are.
#
# **Task `csr_spanning`, kernel, about 18 lines, at most `TILE` threads a block.** Given are the launch, one tile of pairs, and the number of the thread's output, `point`. Write what
# follows: `live`, the image `n` and the place `pq`, the window, the tiles as in step 3, the store. A pair is an `int2`, so that one access to shared memory brings both: `make_int2(col, __float_as_int(val))`
# packs it, `.x` and `__int_as_float(… .y)` unpack it.

# %%
# %%cuda csr_spanning
//! ladder/csr_spanning.cu

# %% [markdown]
# <details><summary>Hint 1</summary>point counts whole planes of P*Q outputs: a quotient and a remainder give n and pq. A thread behind the last output needs some window too, one that it may read: that of point 0.</details>
# <details><summary>Hint 2</summary>The pointer to the window is different for each thread now in n as well. Everything between the barriers stays as it was, with tile[…] in place of two arrays.</details>
# <details><summary>Hint 3</summary>Output (n, k, pq) stands at ((n*K + k)*P*Q + pq), as before; only that n differs between the threads of a block.</details>

# %%
check("csr_spanning")

# %%
measure("csr_spanning")

# %%
time_kernel("csr_spanning")

# %% [markdown]
# The price is order. Neighbouring blocks share fewer columns of `xp`, and the windows of a warp that spans two images lie far apart. On large planes, where nothing is gained, this
# kernel is slower than the one before.
#
# ## Step 6 · As fast as you can (55 minutes)
#
# What bounds your kernel now? For each multiply-add a warp asks memory twice or three times: for a pair in shared memory (one word or two), and for an element of `xp`. A GPU could start four multiply-adds
# in the time of one such request. So let one pair serve *several* outputs of the same thread, whose sums all stay in registers.
#
# **Predict.** A thread computes the same output point of 8 images. One request brings a pair, and each image needs its own element of `xp`. How many requests does a warp make for each multiply-add?

# %%
# %%answer predict_requests
# BEGIN SOLUTION: requests, shared and global, for each multiply-add
predict_requests = (1 + 8) / 8
# END SOLUTION

# %%
check("predict_requests")

# %% [markdown]
# **Task `csr_free`, kernel, as many lines as you like.** The same convolution, any way you like: several images a thread, several points of one image, several filters, input staged in shared memory. You choose the launch. It is
# scored by requests for each product (and, where the course is timed on a GPU, by its time), on a logarithmic scale between lab 4's `csr` and a kernel of 8 images a thread. Both may be beaten.

# %%
# %%cuda csr_free
//! ladder/csr_images.cu
//! stub csr_free.start.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Start from step 3. What does a thread have one of, and needs several of? An array whose indices are all known to the compiler, in loops with #pragma unroll, lives in registers.</details>
# <details><summary>Hint 2</summary>With IMAGES images a thread, the grid's third dimension is cdiv(N, IMAGES). N need not be a multiple: a thread may compute an image twice, as long as it is stored once.</details>
# <details><summary>Hint 3</summary>For each pair: read it once, then for each image i add weight * tap[offset of image i] to sum[i]. The images' offsets are computed once, before the loop.</details>

# %%
check("csr_free")

# %%
measure("csr_free")

# %%
time_kernel("csr_free")

# %% [markdown]
# The ladder's best kernel goes one step further: it stages the *input* under a band of output rows in shared memory, so that an element of `x` comes from global memory once for many filters, and it needs no
# padded copy. It is the "best rung" of the figures below.
#
# ## Step 7 · Four figures and their claims (25 minutes)
#
# The paper measured on a GTX 1060, inside the framework Caffe. The figures below have the form of its figures 7 to 10; the numbers are from the GPU that they name.
#
# **Figure 7** compares base and tiled, and credits the whole gain, 41 to 47 %, to shared memory. But its base listing adds in global memory and its tiled listing in a register. Here the two changes stand apart.

# %%
recorded_figures.base_and_tiled()

# %%
recorded_figures.verdicts("sparse", "tiles in shared memory")

# %% [markdown]
# **Verdict: a gain, and most of it for another reason.** The register, which you met in lab 4, gives several times as much as the tiles. A warp's 32 lanes that ask for the same word cost one sector, and a cache
# answers it, so tiles replace requests that were cheap. How much is left of their gain is a question of the block, as in step 4. What tiles do is make room for step 6.
#
# **Figure 8** sets the tiled kernel beside the libraries, layer by layer, at batch 64.

# %%
recorded_figures.layer_times(64)

# %%
recorded_figures.verdicts("batch", "at batch 64")

# %% [markdown]
# **Verdict: it holds, and depends on how lowering is called.** Caffe lowers one image at a time, which leaves a large GPU half idle; against that the gains are far above the paper's. Against lowering of the whole batch in one product they
# come down to its order, and conv2, which has the fewest zeros, gains least, as there.
#
# **Figure 9** varies the batch: solid lines for the tiled kernel, dashed ones for the best rung. The table speaks of the best rung.

# %%
recorded_figures.batch_speedups()

# %%
recorded_figures.verdicts("batch", "the speed-up is largest")

# %% [markdown]
# **Verdict: the maximum is no landmark.** From a few dozen images on the curves of the tiled kernel are nearly flat: once every multiprocessor has work, twice the images take twice the time with either method. Where small
# batches differ, it says how many blocks each method makes of an image. That depends on the size of the GPU, so it does not carry over from a GTX 1060.
#
# **Figure 10** goes through the layers of GoogLeNet and ResNet-50.

# %%
recorded_figures.network_speedups("googlenet")

# %%
recorded_figures.network_speedups("resnet50")

# %%
recorded_figures.verdicts("sparse", "sparse layers:", "a layer of ResNet")

# %% [markdown]
# **Verdict: holds in sum, with losses that the paper's ranges leave out.** Its abstract gives ranges of the layers that gain. Look for the layers below 1 against batched lowering: large planes, few filters.
#
# **Explain, at most 80 words.** Your tiled kernel makes far fewer requests for `val` and `col` than lab 4's, and is only a little faster. Why? Use one number of your own counters, and say which request is left for each multiply-add, and
# what step 6 changed about it.

# %% [markdown] explain="explain_tiles"
# <!-- BEGIN SOLUTION -->
# Tiles removed two of three global requests for each product, but those fetched one word that the cache held, and two requests to shared memory took their
# place. Every multiply-add still needs its element of `xp`: on the layer of step 3, 18 432 of some 18 800 load requests. Step 6 cannot remove that request either; it lets one pair serve eight
# products, so that 1.1 requests are left for each in place of 3.
# <!-- END SOLUTION -->
