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
# # Lab 3: cuDNN beside it
#
# **120 minutes.** You call NVIDIA's library for what you wrote by hand in labs 1 and 2, find out what it asks for and what it chooses, and measure
# where it wins. Then you compute from a few facts about the device why.
#
# Afterwards you can explain
#
# - what a descriptor, a layout, a plan, a workspace and a precision are, and what each choice costs;
# - when a library loses to thirty lines of your own, and what has to grow until it wins;
# - compute efficiency, grid size, maxBlocks and resource utilisation, with the equations of a paper and what they leave out;
# - what TF32 does to your numbers, and how to see it.
#
# Everything here is Python. **Where there is a GPU with cuDNN, the cells with times measure on it; elsewhere they show what was recorded on an NVIDIA H100, and
# say so.** Edit the cells that say `YOUR CODE HERE`, `YOUR NUMBER HERE` or *Your answer*, and the function of step 6 that has a mistake. If you restart the
# notebook's kernel, or a message says that `%%answer` is not found or a name such as `check` or `plans` is not defined, run the next cell first, then the cells of your step from its beginning. Hints are folded, and free.

# %%
import numpy as np

from convladder.autograde import check, open_lab
from convladder.autograde.faces import recorded_figures, runs
from convladder.kernels import cudnn, gpu, occupancy, oracle
from convladder.kernels.errors import BackendError
from convladder.kernels.rungs import rung_resources

open_lab("03_cudnn")

# %% [markdown]
# ## The idea
#
# A library cannot know what you mean by four pointers. So a call has two halves: first you *describe* the tensors and the operation, then the library *chooses*
# one of its many ways to compute it, and only then do the pointers come. The lab report (a student's report of a course on high-performance computing, Sun Yat-sen University, 2021, section
# 2.3) does so with cuDNN's classic interface: an input, a filter, a convolution and an output *descriptor*, an algorithm, a workspace, and then
# `cudnnConvolutionForward(…)`. Today's cuDNN builds a small *graph* of operations instead and calls its ways *plans*. The steps are the same.
#
# Equation (1) of lab 1 stays what is computed:
#
# $$ y_{n,k,p,q} = \sum_{c,r,s} x_{n,c,\,pU-\mathrm{pad}+r,\,qU-\mathrm{pad}+s} \cdot w_{k,c,r,s} $$
#
# ## Step 1 · Describe a tensor (10 minutes)
#
# A descriptor of a tensor says its *sizes* along $N, C, H, W$ and its *strides*: how many elements further the next index lies in memory. In the layout **NCHW**, ours so far, the
# width lies side by side: going one column further is 1 element, one row further $W$ elements. In **NHWC** the *channels* lie side by side: all channels of one pixel, then those of the next pixel in the row.
#
# The smallest example: $N = C = 1$, $H = 2$, $W = 3$ has strides $(6, 6, 3, 1)$ in NCHW: a row is 3 elements, an image 6.
#
# **Task `tensor_strides`, Python, about 4 lines.** Given `shape = (N, C, H, W)` and the layout `"nchw"` or `"nhwc"`, return a tuple of the four strides, in elements, always in the order of $N, C, H, W$.


# %%
# %%answer tensor_strides
def tensor_strides(shape, layout):
    """Elements from one index to the next along N, C, H, W: a tuple of four ints."""
    N, C, H, W = shape
    # BEGIN SOLUTION: about 4 lines
    if layout == "nchw":
        return (C * H * W, H * W, W, 1)
    return (C * H * W, 1, W * C, C)
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>The stride of an index is the product of the sizes of all indices that run faster than it. In NCHW the order from slow to fast is N, C, H, W.</details>
# <details><summary>Hint 2</summary>In NHWC it is N, H, W, C. So the stride of C is 1, and that of W is C.</details>
# <details><summary>Hint 3</summary>The order of the result does not change: (stride of N, stride of C, stride of H, stride of W).</details>

# %%
check("tensor_strides")

# %% [markdown]
# ## Step 2 · The call (15 minutes)
#
# In Python the classic call was
#
# ```
# cupy.cudnn.convolution_forward(x, W, b, y, pad, stride, dilation, groups,
#                                auto_tune=…, tensor_core=…, d_layout=…, w_layout=…)
# ```
#
# CuPy 14 no longer has it; `convladder.kernels.cudnn` keeps its calling form on cuDNN's graphs. `y` is an array of yours that is written into. `tensor_core="never"` asks for strict float32,
# `"always"` allows TF32 (step 8). `d_layout` and `w_layout` are 0 for NCHW and 1 for NHWC; an NHWC *array* has its indices in that order, so its shape is $(N, H, W, C)$.
#
# **Task `forward_arguments`, Python, about 6 lines.** Given the sizes `x_shape = (N, C, H, W)` and `w_shape = (K, C, R, S)`, a stride and a padding (the same along both axes), the layout and whether TF32 is allowed, return the tuple
# `(y_shape, pad, stride, dilation, groups, tensor_core, d_layout, w_layout)`: the shape of `y`'s *array in memory*, then pad, stride and dilation as pairs. Dilation and groups are 1.


# %%
# %%answer forward_arguments
def forward_arguments(x_shape, w_shape, stride, pad, layout, tf32):
    """(y_shape, (pad, pad), (stride, stride), (1, 1), 1, tensor_core, d_layout, w_layout)"""
    N, C, H, W = x_shape
    K, _, R, S = w_shape
    # BEGIN SOLUTION: about 6 lines
    P = (H + 2 * pad - R) // stride + 1
    Q = (W + 2 * pad - S) // stride + 1
    y_shape, number = ((N, K, P, Q), 0) if layout == "nchw" else ((N, P, Q, K), 1)
    tensor_core = "always" if tf32 else "never"
    return y_shape, (pad, pad), (stride, stride), (1, 1), 1, tensor_core, number, number
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>P and Q are those of lab 1: how many stops does the filter make?</details>
# <details><summary>Hint 2</summary>y has K channels. In NHWC they come last, in the array's shape too.</details>
# <details><summary>Hint 3</summary>Both layouts are the same number here, 0 or 1. A pair is (pad, pad).</details>

# %%
check("forward_arguments")

# %%
x = np.random.default_rng(3).uniform(-1, 1, (1, 3, 31, 31)).astype(np.float32)
w = np.random.default_rng(4).uniform(-1, 1, (1, 3, 3, 3)).astype(np.float32)
y_shape, pads, strides, dilation, groups, tensor_core, d_layout, w_layout = forward_arguments(
    x.shape, w.shape, 1, 1, "nchw", False
)
try:
    cupy = gpu.cupy_module()
    y = cupy.empty(y_shape, np.float32)
    cudnn.convolution_forward(
        cupy.asarray(x),
        cupy.asarray(w),
        None,
        y,
        pads,
        strides,
        dilation,
        groups,
        tensor_core=tensor_core,
        d_layout=d_layout,
        w_layout=w_layout,
    )
    print("largest error of cuDNN against float64:", abs(y.get() - oracle.conv2d(x, w, 1, 1)).max())
except BackendError as error:
    print("Not run here:", error)
    print("It would write an array of shape", y_shape, "for an input of", x.shape)

# %% [markdown]
# ## Step 3 · Plans and workspaces (15 minutes)
#
# For one description cuDNN names dozens of plans: direct kernels, products like lab 2's, Winograd and Fourier transforms, each in several tilings. Some do not build on your device, some break strict float32, and
# some want scratch memory, a *workspace*. The first on the list is rarely the fastest; "auto-tuning" just means to try them all. This is AlexNet's conv3 with 128 images:

# %%
plans = runs.times("plans", by="layer", ways=("cudnn fp32 nchw", "cudnn tf32 nchw"), live=False)
for way in plans.ways:
    row = plans.row("conv3", way)
    print(
        f"{way}: {row['plans']} plans build and keep to the precision; the fastest three of them and the slowest:"
    )
    for index, name, size, us in [*row["every_plan"][:3], row["every_plan"][-1]]:
        print(f"    plan {index:2}  {us:8.1f} µs  workspace {size / 1e6:7.1f} MB  {name}")
print(plans.origin)

# %% [markdown]
# **Task `fastest_plan`, Python, about 3 lines.** Given a list of `[index, workspace in bytes, microseconds]` and the most bytes that you can spare, return the index of the fastest plan that fits, or `None`.


# %%
# %%answer fastest_plan
def fastest_plan(plans, most_bytes):
    """The index of the fastest plan whose workspace is at most most_bytes; None where none is."""
    # BEGIN SOLUTION: about 3 lines
    fitting = [(us, index) for index, size, us in plans if size <= most_bytes]
    return min(fitting)[1] if fitting else None
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>First leave out what does not fit, then take the smallest time of the rest.</details>
# <details><summary>Hint 2</summary>min() of a list of pairs compares the first of each pair: put the time there.</details>
# <details><summary>Hint 3</summary>min() of an empty list is an error: test for it and return None.</details>

# %%
check("fastest_plan")

# %%
row = plans.row("conv3", "cudnn fp32 nchw")
listed = [[index, size, us] for index, _, size, us in row["every_plan"]]
times = {index: us for index, _, us in listed}
for megabytes in (1000, 100, 0):
    found = fastest_plan(listed, megabytes * 1_000_000)
    print(f"with at most {megabytes:4} MB: plan {found}, {times[found]:.0f} µs")

# %% [markdown]
# Memory buys time: without a workspace the best float32 plan takes about twice as long here. The 300 MB one transforms its data before it multiplies.
#
# ## Step 4 · The report's table, again (20 minutes)
#
# The report measures one filter at input sizes from 31 to 511, in milliseconds, and finds *"a strange phenomenon"*: cuDNN is the slowest of its three.
#
# | input | 31 | 63 | 127 | 255 | 511 |
# |---|---|---|---|---|---|
# | CUDA | 0.071 | 0.305 | 0.401 | 0.538 | 1.157 |
# | im2col (product only) | 0.077 | 0.230 | 0.385 | 0.503 | 1.140 |
# | cuDNN | 0.238 | 0.377 | 0.402 | 0.941 | 2.970 |
#
# It suspects a fixed overhead, enlarges the input, finds cuDNN about 6 times as fast as its own kernel there, and concludes that cuDNN is the better the larger the matrix.
#
# **Predict.** One $3 \times 3$ filter on 3 channels: each output takes 27 multiply-adds (54 operations), and for each output three floats of the input are read and one is written, at best. How many operations is that for each byte moved?

# %%
# %%answer predict_intensity
# BEGIN SOLUTION: operations for each byte
predict_intensity = 2 * 27 / (4 * (3 + 1))
# END SOLUTION

# %%
check("predict_intensity")

# %% [markdown]
# An H100 forms 67 million million float32 operations a second and moves 3 million million bytes: 22 operations for each byte. Far below that, memory is the limit and arithmetic is free.
#
# **Predict.** So how many microseconds does this convolution take at the very least for an input of $4095 \times 4095$, at 3000 GB/s?

# %%
# %%answer predict_limit
# BEGIN SOLUTION: microseconds
predict_limit = 4 * (3 + 1) * 4095 * 4095 / (3000 * 1000)
# END SOLUTION

# %%
check("predict_limit")

# %%
ways = (
    "direct_report",
    "direct_coalesced",
    "direct_unrolled",
    "direct_registers",
    "gemv",
    "cudnn fp32 nchw",
    "cudnn fp32 nhwc",
)
sizes = runs.times("direct", by="size", stride=1, ways=ways)
sizes

# %%
sizes.picture()

# %% [markdown]
# The report's first half holds: on its sizes a kernel of a few lines beats the library. But there is no fixed overhead to be seen at the other end: even at $4095 \times 4095$ the best of *our* rungs is ahead of cuDNN, and within about twice
# the limit that you computed. More pixels do not help the library, because each pixel still brings the same 3.4 operations a byte. What does? Here the image stays at $56 \times 56$ with 64 channels, and the number of filters grows.

# %%
ways = (
    "direct_unrolled",
    "direct_registers",
    "gemm_buffered",
    "cudnn fp32 nchw",
    "cudnn fp32 nhwc",
    "cudnn tf32 nhwc",
)
filters = runs.times("lowering", by="filters", ways=ways)
filters

# %%
filters.picture()

# %% [markdown]
# With 256 filters each element that is loaded takes part in hundreds of products. There the library is several times as fast as a direct kernel, and with TF32 more than ten times.
#
# ## Step 5 · Compute efficiency (15 minutes)
#
# The training paper (Li, Zhang, Cao: *Analyzing performance of neural networks in training phase*, 2018, section 5.1) measures how much of a GPU's arithmetic a layer uses:
#
# $$ CE = \frac{\mathrm{flops} / t}{2 \cdot \mathrm{frequency} \cdot \mathrm{cores}} \tag{8} $$
#
# A core forms one multiply-add, two operations, each clock. The flops are those of the definition, $2\,N K P Q \cdot C R S$.
#
# **Task `compute_efficiency`, Python, about 2 lines.** `flops` in operations, `time_us` in microseconds, `cores` of *each* multiprocessor, `clock_mhz` in MHz.


# %%
# %%answer compute_efficiency
def compute_efficiency(flops, time_us, multiprocessors, cores, clock_mhz):
    """Operations a second, of those that the GPU could do."""
    # BEGIN SOLUTION: about 2 lines
    peak = 2 * clock_mhz * 1e6 * multiprocessors * cores
    return flops / (time_us * 1e-6) / peak
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>Both numerator and denominator are operations a second.</details>
# <details><summary>Hint 2</summary>A microsecond is 1e-6 seconds, a MHz 1e6 clocks a second.</details>
# <details><summary>Hint 3</summary>The GPU has multiprocessors * cores cores.</details>

# %%
check("compute_efficiency")

# %%
names = ("cudnn fp32 nchw", "cudnn fp32 nhwc", "cublas batched", "cublas image")
images = (1, 4, 16, 64, 128, 192)
batches = {
    layer: runs.times("batch", by="batch", layer=layer, ways=names, only=images, live=False)
    for layer in ("conv2", "conv3", "conv4", "conv5")
}
print("CE of AlexNet's layers by the number of images at once")
print(" " * 22, "".join(f"{n:7}" for n in images))
for layer, timed in batches.items():
    for way in names:
        found = []
        for n in images:
            g = timed.row(n, way)["geometry"]
            P = (g["H"] + 2 * g["pad"] - g["R"]) // g["U"] + 1
            Q = (g["W"] + 2 * g["pad"] - g["S"]) // g["U"] + 1
            flops = 2 * n * g["K"] * P * Q * (g["C"] // g["groups"]) * g["R"] * g["S"]
            found.append(compute_efficiency(flops, timed.us(n, way), 132, 128, 1980))
        print(f"{layer} {way:16}", "".join(f"{ce:7.2f}" for ce in found))
print(batches["conv3"].origin)

# %% [markdown]
# Four things to see. A single image leaves most of the GPU idle, whatever computes it. The library gains with the batch, as it puts all images into one large product, and lowering image by image (as the Caffe of that time did) does not. The layout is worth a factor
# of two to four where a layer has groups, as conv2, conv4 and conv5 have: cuDNN has no good float32 plan for them in NCHW, and there lowering the whole batch keeps up. And CE can exceed 1: a Fourier or Winograd plan forms
# fewer products than the definition asks for, but is credited with all of them.

# %%
batches["conv3"].picture(per=True)

# %% [markdown]
# ## Step 6 · Grid size, maxBlocks, utilisation (25 minutes)
#
# Why does one image leave the GPU idle? The paper counts blocks. A product with a result of $M \times N$, cut into tiles of $m \times n$, has
#
# $$ \mathrm{Gridsize} = \left\lceil \frac{M}{m} \right\rceil \cdot \left\lceil \frac{N}{n} \right\rceil \tag{9} $$
#
# blocks. A multiprocessor (SM) has $R$ registers, which a block of $b$ threads with $r$ registers each uses up, so
#
# $$ \mathrm{maxBlocks} = \mathrm{SMs} \cdot \left\lfloor \frac{R}{b \cdot r} \right\rfloor \tag{10} $$
#
# of them run at once. They come in *waves* of maxBlocks; the last wave is rarely full. What is filled, of all places in all waves, is the *resource utilisation*
#
# $$ RU = \frac{\mathrm{Gridsize}}{\left\lceil \mathrm{Gridsize} / \mathrm{maxBlocks} \right\rceil \cdot \mathrm{maxBlocks}} \tag{11} $$
#
# **Task `grid_size`, Python, about 1 line.** Equation (9).


# %%
# %%answer grid_size
def grid_size(rows, columns, tile_rows, tile_columns):
    """Blocks of a product whose result of rows x columns is cut into tiles."""
    # BEGIN SOLUTION: about 1 line; whole numbers only
    return -(-rows // tile_rows) * -(-columns // tile_columns)
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>Each of the two quotients is rounded up before they are multiplied.</details>
# <details><summary>Hint 2</summary>With whole numbers, (a + b - 1) // b is a/b rounded up; so is -(-a // b).</details>
# <details><summary>Hint 3</summary>Avoid a / b with math.ceil: floats lose whole numbers when these are large.</details>

# %%
check("grid_size")

# %% [markdown]
# **Task `max_blocks`, debugging, 1 line.** Somebody wrote equation (10) and it gives the right number often enough to be believed. Run the check, compare the case that fails with the equation, and repair it.


# %%
# %%answer max_blocks
def max_blocks(multiprocessors, registers, block, register_file):
    """Blocks that the registers of the whole GPU hold at once."""
    of_a_block = block * registers
    return multiprocessors * (register_file // of_a_block)


# STUB max_blocks.buggy.py

# %%
check("max_blocks")

# %% [markdown]
# <details><summary>Hint 1</summary>Compute the failing case by hand: how many blocks fit into one multiprocessor, and how many into all?</details>
# <details><summary>Hint 2</summary>Can a block have some of its registers on one multiprocessor and some on another?</details>
# <details><summary>Hint 3</summary>The rounding down belongs to one multiprocessor, before the multiplication. * and // are worked off from left to right.</details>

# %% [markdown]
# **Task `resource_utilisation`, Python, about 2 lines.** Equation (11); `at_once` is maxBlocks.


# %%
# %%answer resource_utilisation
def resource_utilisation(grid, at_once):
    """Of the places for blocks in all the waves that a grid takes, those that it fills: 0 to 1."""
    # BEGIN SOLUTION: about 2 lines
    waves = -(-grid // at_once)
    return grid / (waves * at_once)
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>How many waves does the grid take? Round up.</details>
# <details><summary>Hint 2</summary>All waves together have waves * at_once places.</details>
# <details><summary>Hint 3</summary>The result is a share: grid divided by the places.</details>

# %%
check("resource_utilisation")

# %% [markdown]
# **Predict.** A kernel fills the GPU exactly with 264 blocks. What is RU with 265?

# %%
# %%answer predict_utilisation
# BEGIN SOLUTION: a share between 0 and 1
predict_utilisation = 265 / (2 * 264)
# END SOLUTION

# %%
check("predict_utilisation")

# %% [markdown]
# Now the paper's own table 4 through your functions: AlexNet on a GTX 1080 (20 SMs of 65 536 registers), cuBLAS as Caffe used it, image by image. Printed are the grid sizes that the paper states, and those of its own equation.

# %%
# layer, rows, columns, tile rows, tile columns, block, registers, printed grid size
cublas = [
    ("conv1", 94, 3025, 128, 128, 256, 116, 24),
    ("conv2", 128, 729, 128, 64, 128, 120, 36),
    ("conv3", 384, 169, 128, 64, 128, 120, 60),
    ("conv4", 192, 169, 128, 64, 128, 120, 24),
    ("conv5", 128, 169, 128, 64, 128, 120, 16),
    ("fc6", 256, 4096, 128, 128, 256, 116, 64),
    ("fc7", 256, 4096, 128, 128, 256, 116, 64),
    ("fc8", 256, 1000, 128, 64, 128, 120, 256),
]
found = {}
for name, M, N, m, n, block, registers, printed in cublas:
    at_once = max_blocks(20, registers, block, 65536)
    found[name] = resource_utilisation(printed, at_once)
    mine = grid_size(M, N, m, n)
    note = "" if mine == printed else f"   eq. 9 gives {mine}"
    print(f"{name}: {printed:3} blocks, {at_once} at once, RU {found[name]:.2f}{note}")
print(
    f"mean of the convolutions {np.mean([found[f'conv{i}'] for i in range(1, 6)]):.2f} (the paper says 0.47)"
)
print(f"mean of the others       {np.mean([found[f'fc{i}'] for i in (6, 7, 8)]):.2f}")

# %% [markdown]
# With the printed grid sizes the paper's means come out. Several of them contradict its equation (9): the kernels behind them probably split the sum over several blocks too. A number in a paper is a claim like any other.
#
# ## Step 7 · What runs at once, really (5 minutes)
#
# Equation (10) looks at registers alone. An SM also holds only so many blocks, warps and bytes of shared memory, and gives out registers in units: together, *occupancy*. The compiler knows what a kernel takes, for any device, without one:

# %%
blocks = {"im2col": 128, "gemv": 128, "gemm_shared": 1024, "gemm_float4": 256, "gemm_blocked": 256, "gemm_buffered": 256}
print("Blocks at once on an H100 (132 SMs), by equation (10) and really:")
print("kernel         threads  registers  shared  eq. 10   real  limited by")
for name, block in blocks.items():
    taken = rung_resources(name, "sm_90")
    real, mine = occupancy.occupancy(taken, block), max_blocks(132, taken.registers, block, 65536)
    print(f"{name:14} {block:7} {taken.registers:10} {taken.shared_bytes:7} {mine:7} {132 * real.blocks:6}", end="  ")
    print(real.limited_by)

# %% [markdown]
# And here is what cuDNN and cuBLAS launched for AlexNet's layers with 128 images, as a profiler saw it: of each, the kernel that took longest.

# %%
launched = runs.times("cudnn", by="layer", ways=("cudnn fp32 nchw", "cublas image"), live=False)
print("                  blocks  threads  registers  at once    RU  really  occupancy")
for way in launched.ways:
    print(way)
    for layer in launched.cases:
        longest = launched.row(layer, way)["launches"][0]
        grid, block = (int(np.prod(longest[size])) for size in ("grid", "block"))
        at_once = max_blocks(132, longest["registers"], block, 65536)
        share = resource_utilisation(grid, at_once)
        print(f"  {layer:15} {grid:6} {block:8} {longest['registers']:10} {at_once:8} {share:5.2f}", end="")
        print(f" {longest['ru_real']:7.2f} {longest['occupancy']:10.2f}")
print(launched.origin)

# %% [markdown]
# Image by image, most of cuBLAS's grids are a fraction of one wave: that is the idle GPU of step 5. And products are so hungry for registers that equation (10) is exact for all of these kernels. It need not be.
#
# **Predict.** A kernel uses 16 registers a thread, in blocks of 128 threads, and no shared memory. Equation (10) allows 32 blocks for each SM. An H100's SM has 65 536 registers and holds at most 64 warps and 32 blocks. How many of the kernel's blocks does it hold?

# %%
# %%answer predict_warps
# BEGIN SOLUTION: blocks on one SM
predict_warps = 64 // (128 // 32)
# END SOLUTION

# %%
check("predict_warps")

# %% [markdown]
# So maxBlocks is an upper bound. And a full GPU is not a fast one: `gemm_buffered` has the fewest threads at once of all of our products, and is by far the fastest.
#
# ## Step 8 · What TF32 does (10 minutes)
#
# Tensor cores take float32 numbers but multiply them as *TF32*: the sign, 8 bits of exponent, and of the 23 bits of fraction the first 10. Sums stay in float32.
#
# **Task `to_tf32`, Python, about 2 lines.** Given a float32 array, return it rounded to TF32: the nearest number whose last 13 bits are 0, halves away from zero. A float's bits, read as an unsigned integer, grow with its magnitude, so
# adding half of the last kept bit and then clearing the 13 bits is enough. `x.view(np.uint32)` reads them.

# %%
# %%answer to_tf32
import numpy as np


def to_tf32(x):
    """A float32 array rounded to TF32."""
    # BEGIN SOLUTION: about 2 lines
    bits = x.view(np.uint32) + np.uint32(0x1000)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    # END SOLUTION


# %% [markdown]
# <details><summary>Hint 1</summary>13 bits go: the smallest kept bit is 0x2000, and half of it is 0x1000.</details>
# <details><summary>Hint 2</summary>The mask of the bits that stay is 0xFFFFE000. Wrap both numbers in np.uint32, so that nothing becomes a wider integer.</details>
# <details><summary>Hint 3</summary>Turn the result back with .view(np.float32), not with astype: the bits are the number.</details>

# %%
check("to_tf32")

# %% [markdown]
# **Predict.** How large is the relative error of one number at most, after such a rounding? The number $1.f$ has 10 bits of fraction left.

# %%
# %%answer predict_tf32
# BEGIN SOLUTION: relative error of one rounded number
predict_tf32 = 2**-11
# END SOLUTION

# %%
check("predict_tf32")

# %%
rng = np.random.default_rng(5)
x = rng.uniform(-1, 1, (1, 64, 14, 14)).astype(np.float32)
w = rng.uniform(-1, 1, (32, 64, 3, 3)).astype(np.float32)
exact, allowed = oracle.conv2d(x, w, 1, 1), oracle.bound(x, w, 1, 1)
for name, y in (
    ("exact sums, rounded once", np.float32(exact)),
    ("exact sums of TF32 inputs", oracle.conv2d(to_tf32(x), to_tf32(w), 1, 1)),
):
    error, worst = np.linalg.norm(y - exact) / np.linalg.norm(exact), np.max(abs(y - exact) / allowed)
    print(f"{name:26} relative error {error:.1e}, worst element {worst:6.2f}")
for way in ("cudnn fp32 nchw", "cudnn tf32 nchw"):
    row = plans.row("conv3", way)
    error, worst = row["relative_error"], row["worst_of_bound"]
    print(f"{way + ', conv3':26} relative error {error:.1e}, worst element {worst:6.2f}")
print("worst element: its error, divided by the most that float32 arithmetic explains")
print(plans.origin)

# %% [markdown]
# The library's TF32 error is the one that you made yourself, by rounding the inputs. It is hundreds of times that of float32, and the labs' checks refuse it. Whether it matters is a question about your network, not about your kernel; whether a
# comparison tells you that it was used is a question of honesty.
#
# ## Step 9 · Claims and verdicts (5 minutes)

# %%
recorded_figures.verdicts("direct")

# %%
recorded_figures.verdicts("cudnn")

# %% [markdown]
# **Explain, at most 80 words.** The report concludes that cuDNN is better the larger the matrix. When does the library win, and why do more pixels alone not help it? Use one number of your own tables.

# %% [markdown] explain="explain_library"
# <!-- BEGIN SOLUTION -->
# The library wins when each loaded element takes part in many products: with many channels and filters. One filter on three channels forms 3.4 operations a byte; memory is the limit at every size, so more pixels bring more
# of the same, and at 4095 our direct kernel is still 3 times as fast. With 64 channels and 256 filters cuDNN in float32 is 4 times as fast as our direct rungs.
# <!-- END SOLUTION -->

# %% [markdown]
# **Verdict on the report: the observation holds, the explanation does not.** On small problems a kernel of a few lines beats the library, on an H100 in 2026 as on the report's GPU. But it is not the size of the image that turns the tables: with one filter of three channels the library
# is ahead at no size. The reported factor of 6 must come from a problem whose arithmetic grew too, or from a kernel that got worse; the report does not say which. With enough channels and filters the library wins clearly, most of all where TF32 is allowed, which the comparison must say.
#
# **Verdict on the training paper: the direction holds, the factors are those of its time.** Lowering image by image is several times slower than the library, more than the paper's 4 times; and its explanation, grids too small to fill the GPU, is the one that your RU shows.
