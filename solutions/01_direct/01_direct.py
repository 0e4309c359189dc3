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
# # Lab 1: Direct convolution
#
# **120 minutes.** You write the same convolution four times. The arithmetic never changes; what changes is how a warp's
# 32 threads walk through it, and the counters show what that is worth.
#
# Afterwards you can explain
#
# - which element of the input a tap of the filter reads, for any stride and padding, without ever storing the padding;
# - why a test in an inner loop splits a warp, and how bounds in place of tests halve the splits;
# - how to read a fault report: the line, the thread and the array that betray a store to the wrong place;
# - why exchanging `threadIdx.x` and `threadIdx.y` changes the memory traffic and not one single result.
#
# Edit the cells that say `YOUR CODE HERE`, `YOUR NUMBER HERE` or *Your answer*, and the kernel of step 4. Run a cell with Shift+Enter.
# Hints are folded, and free.

# %%
import numpy as np

from convladder.autograde import check, measure, open_lab
from convladder.autograde.faces import figures
from convladder.kernels import oracle

open_lab("01_direct")

# %% [markdown]
# ## The idea
#
# A convolution slides a small filter over an image, and at every stop sums the products of what lies on top of each other.
# Real layers do so for $N$ images of $C$ channels, with $K$ filters at once:
#
# $$ y_{n,k,p,q} \;=\; \sum_{c=0}^{C-1} \sum_{r=0}^{R-1} \sum_{s=0}^{S-1}
#    x_{n,\,c,\;p\,U-\mathrm{pad}+r,\;q\,U-\mathrm{pad}+s} \;\cdot\; w_{k,c,r,s} \tag{1} $$
#
# | | |
# |---|---|
# | $x$ | input, $N \times C \times H \times W$ |
# | $w$ | filters, $K \times C \times R \times S$ |
# | $y$ | output, $N \times K \times P \times Q$ |
# | $U$ | stride: how far the filter moves from one output to the next |
# | pad | rows and columns of zeros imagined around each image |
#
# One pair $(r, s)$ is a *tap* of the filter. Counting the stops of the filter gives the size of the output,
# $P = \lfloor (H + 2\,\mathrm{pad} - R)/U \rfloor + 1$, and $Q$ likewise from $W$ and $S$.
#
# All arrays lie in memory row by row, the last index fastest: $x_{n,c,h,w}$ is element `((n*C + c)*H + h)*W + w`.
# In the kernels the letter `w` belongs to the filters, so there the coordinates in the image are called `row` and `col`.
#
# ### The smallest example
#
# One image, one channel, $4 \times 4$, filled with 1, 2, 3 … 16. The filter subtracts four times the middle from its four
# neighbours, so it answers 0 wherever the numbers rise evenly. With pad = 1 the output is $4 \times 4$ again.

# %%
x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
w = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=np.float32).reshape(1, 1, 3, 3)
print("x =", x[0, 0], "\n\ny =", oracle.conv2d(x, w, stride=1, pad=1)[0, 0].astype(int), sep="\n")

# %% [markdown]
# The four inner outputs are 0, as promised. The twelve on the border are not: their windows reach into the padding, where
# the imagined zeros break the even rise. In the corner, $y_{0,0} = 2 + 5 - 4 \cdot 1 = 3$: of nine taps
# only four lie inside the image.

# %%
figures.window(H=4, W=4, R=3, S=3, U=1, pad=1, p=0, q=0)

# %% [markdown]
# Filling a larger array with real zeros would spare us every thought about the border. It would also cost a second
# array and the time to copy into it, before the first useful multiplication. We compute the border instead.
#
# ## Step 1 · Which element does a tap read? (15 minutes)
#
# **Task `source_index`, Python, about 4 lines.** Given an output position $(p, q)$, a tap $(r, s)$, the stride, the padding and the size
# of the image, return the coordinates `(h, w)` of the element that the tap reads, or `None` where it falls into the padding.
# Equation (1) holds the first half of the answer.

# %%
# %%answer source_index
def source_index(p, q, r, s, U, pad, H, W):
    """(h, w) of the input element under tap (r, s) of output (p, q); None in the padding."""
    # BEGIN SOLUTION: about 4 lines
    h = p * U - pad + r
    w = q * U - pad + s
    inside = 0 <= h < H and 0 <= w < W
    return (h, w) if inside else None
    # END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>Do it for rows first. With pad = 0 and U = 1, output row p starts at input row p. What does each of U and pad change?</details>
# <details><summary>Hint 2</summary>The stride multiplies where the window starts. The padding moves the whole window up. The tap moves within the window, by one row a tap, whatever the stride.</details>
# <details><summary>Hint 3</summary>A coordinate lies in the image if it is at least 0 and less than H (or W). One axis outside is enough for the tap to read nothing.</details>

# %%
check("source_index")

# %% [markdown]
# **Predict.** How much of the work is padding? On one axis of the $4 \times 4$ example, the three taps at four positions make 12 pairs, of
# which 10 lie inside; so on both axes $10 \cdot 10$ of $12 \cdot 12$ taps do, and 31 % of all taps read padding. Which *share* of the
# taps is it for a $32 \times 32$ image with the same $3 \times 3$ filter and pad = 1? A number or an expression such as `1 - 2/3`.

# %%
# %%answer predict_padding
# BEGIN SOLUTION: a share between 0 and 1, to within 5 % of it
predict_padding = 1 - (94 / 96) * (94 / 96)
# END SOLUTION

# %%
check("predict_padding")

# %% [markdown]
# ## Step 2 · One thread, one output (25 minutes)
#
# Each of the $N K P Q$ outputs is a sum of its own: nothing that one thread computes is needed by another. So the plainest
# kernel gives each output a thread. We number the outputs of one plane row by row, $i = p\,Q + q$, cut the numbers into blocks
# of `TILE` threads, and let the grid's other two dimensions count the filters and the images. That is what the
# `//@ launch` line says: `cdiv(a, b)` is $\lceil a/b \rceil$, the number of blocks that cover all outputs.
#
# **Task `direct_guarded`, kernel, about 12 lines, at most `TILE` threads a block.** Given are the parameters, the three
# numbers `i`, `k`, `n`, and the store at the end. Write what lies between: a guard that sends surplus threads home, `p` and `q` from `i`,
# and the sum over `c`, `r`, `s`, in which an `if` around each product skips the taps in the padding.

# %%
# %%cuda direct_guarded
//! ladder/direct_guarded.cu

# %% [markdown]
# <details><summary>Hint 1</summary>The last block usually reaches past the end: P*Q is rarely a multiple of TILE. A thread without an output must return before it stores.</details>
# <details><summary>Hint 2</summary>i counts row by row with Q outputs in each, so the row is a quotient and the column a remainder. Start the sum at 0 in a register.</details>
# <details><summary>Hint 3</summary>Inside the three loops compute row and col as in step 1, test both against 0 and against H and W, then add one product. The element of x is ((n*C + c)*H + row)*W + col; find that of w in the same way from K x C x R x S.</details>

# %%
check("direct_guarded")

# %% [markdown]
# The counters below come from one launch on a small layer: one image, $C = 3$, $32 \times 32$, $K = 4$, $3 \times 3$, pad = 1. They are
# counted, not timed, so they come out the same on every machine.

# %%
measure("direct_guarded")

# %% [markdown]
# **Prediction against measurement.** The layer has $K C P Q R S = 4 \cdot 3 \cdot 32 \cdot 32 \cdot 9 = 110\,592$ taps. The multiply-adds
# that you see counted are those inside the image; what is missing from 110 592 is the share you predicted in step 1.
#
# Now the branches. A warp executes one instruction for its 32 threads (*lanes*). Where an `if` sends some lanes one way and some the other,
# the warp must walk both ways, one after the other: the branch *diverges*. Here $Q = 32$, so a warp is exactly one row of the output. The
# test on `row` is the same for all its lanes and splits nobody. The test on `col` fails for lane 0 alone at $s = 0$, and for lane 31 alone at $s = 2$: two
# divergent branches for each channel and each row of the filter that lies inside the image. Over the $K = 4$ filters and the 94 pairs of an output row and a
# filter row inside the image, $2 \cdot C \cdot K \cdot 94 = 2\,256$.
#
# ## Step 3 · Bounds in place of tests (20 minutes)
#
# The taps inside the image are no scattered set. For a given output they are an unbroken run of rows and an
# unbroken run of columns. Two comparisons find the ends of each run, once for each thread; then the loops run from end to end and ask no more.
#
# **Task `direct_clipped`, kernel, about 10 lines, at most `TILE` threads a block.** Change one thing: replace the guard around each
# product by loop bounds that are right from the start. The thread's coordinates and the store are given.

# %%
# %%cuda direct_clipped
//! ladder/direct_clipped.cu

# %% [markdown]
# <details><summary>Hint 1</summary>The row under tap r is p*U - pad + r. For which r is it at least 0? For which is it less than H?</details>
# <details><summary>Hint 2</summary>The first tap is the larger of 0 and a difference; the tap after the last is the smaller of R and another. CUDA C++ has max and min for int.</details>
# <details><summary>Hint 3</summary>Solve both inequalities of hint 1 for r. The columns are the same with q, S and W. If the filter is larger than the image both ends move, and the loop is still right.</details>

# %%
check("direct_clipped")

# %%
measure("direct_clipped")

# %% [markdown]
# **Prediction against measurement.** The multiply-adds have not changed. The divergent branches should have halved: lanes 0 and 31 now
# leave their loop over `s` together, one tap before the others, and that is one split for each channel and row of the filter in place of two. The warps also issue
# about a quarter fewer instructions, because nobody tests anything in the inner loop.
#
# ## Step 4 · Somebody else's kernel (15 minutes)
#
# The kernel below follows a student's report of a course on high-performance computing (Sun Yat-sen University, 2021, section 2.1.2). It
# uses square blocks of threads, which rids us of the division by `Q`, and its clipped loops run over the coordinates of the
# image rather than over those of the filter. The sum is right. It also contains the report's one mistake, widened here to $N$ images and
# $K$ filters.
#
# **Task `direct_report`, debugging, 1 line.** Run the cell and then its check *before* you read the code. Find the mistake from the fault
# report: which line stores, which thread did so, and how far outside `y` does it land? Then repair it.

# %%
# %%cuda direct_report
//! ladder/direct_report.cu
//! stub direct_report.buggy.cu

# %%
check("direct_report")

# %% [markdown]
# <details><summary>Hint 1</summary>The report names a line inside a loop. How often does one thread pass there, and how many outputs does it own?</details>
# <details><summary>Hint 2</summary>Put numbers in: one image, one filter, two channels. y then has a single plane of P*Q floats. Where does the store of c = 1 go?</details>
# <details><summary>Hint 3</summary>The output has no channels: they are summed up. Whatever the loop over c stores, it stores too early.</details>

# %% [markdown]
# With one channel the mistake is invisible, and with many filters most of its stores land inside `y`, in planes that belong to other blocks.
# What remains in the end depends on which block comes last. Such a kernel can pass a test for years, until the day when the schedule changes.
#
# ## Step 5 · The same threads in another order (25 minutes)
#
# Which threads form a warp? The hardware numbers the threads of a block with `threadIdx.x` fastest and cuts the sequence into pieces of 32. In a
# $16 \times 16$ block a warp is therefore sixteen values of `threadIdx.x` at two values of `threadIdx.y`.
#
# Memory answers a warp in *sectors* of 32 bytes, eight neighbouring floats. One load or store of a warp is one *request*, and it costs
# as many sectors as its lanes touch. Thirty-two neighbouring floats make 128 bytes: four sectors at best.
#
# The report lets `threadIdx.x` count the *rows* of the output. It looks natural, since the first index of a matrix is its row. Here is its first warp
# on a plane of $32 \times 32$ outputs; each outlined box is one sector.

# %%
figures.warp(P=32, Q=32, block=(16, 16), along="rows", counted=False)

# %% [markdown]
# **Predict.** How many sectors does one store request of the report's kernel touch on this plane? And how many, if the column of the output
# were on `threadIdx.x`, with the same block? Count in the figure; for the second number draw it in your mind.

# %%
# %%answer predict_report
# BEGIN SOLUTION: sectors per store request, row on threadIdx.x
predict_report = 16
# END SOLUTION

# %%
check("predict_report")

# %%
# %%answer predict_coalesced
# BEGIN SOLUTION: sectors per store request, column on threadIdx.x
predict_coalesced = 4
# END SOLUTION

# %%
check("predict_coalesced")

# %%
measure("direct_report")

# %% [markdown]
# **Task `direct_coalesced`, kernel, about 4 lines, at most 256 threads a block.** Let `threadIdx.x` count the columns. Write the launch line and the
# thread's `p` and `q`, with their guard; everything below them is the repaired kernel of step 4, character for character. When it is right, try
# other values of `BX` and `BY`.

# %%
# %%cuda direct_coalesced
//! ladder/direct_coalesced.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Two things belong together: what threadIdx.x counts, and what the grid's first dimension covers.</details>
# <details><summary>Hint 2</summary>The grid's x dimension must now cover Q in steps of BX, and its y dimension P in steps of BY. Take cdiv: the last blocks reach over the border of the plane.</details>
# <details><summary>Hint 3</summary>Start from the two index lines and the guard of step 4 and exchange the roles of p and q.</details>

# %%
check("direct_coalesced")

# %%
measure("direct_coalesced")

# %%
figures.warp(P=32, Q=32, block=(16, 16), along="columns")

# %% [markdown]
# **Prediction against measurement.** Not one result has changed and not one multiply-add; a store request now touches
# a quarter of the sectors. The loads of `x` gain a little less: a window that starts one float beside a sector's edge touches one sector more in each row.
# The loads of `w` gain next to nothing. But for those at the border, all lanes of a warp read the same weight at the same time, which is one sector in either order.
# There is a price: more than twice as many branches diverge, because now every warp has lanes on the left or the right border of the plane.
#
# **Explain, at most 80 words.** The two kernels of steps 4 and 5 compute the same products with the same number of threads. Why does one need so many more
# sectors for each store? Name the distance in memory between the outputs of neighbouring lanes in both kernels, and use one number of your own counters. At which
# stride $U$ would the loads of `x` lose much of the gain again, and why?

# %% [markdown] explain="explain_mapping"
# <!-- BEGIN SOLUTION -->
# Neighbouring lanes have neighbouring `threadIdx.x`. In the report's kernel that is the row: their outputs lie Q floats (128 bytes) apart, each in another
# sector; only the second column shares it, so a store takes 16. With the column on `threadIdx.x` they lie 4 bytes apart, and eight lanes share
# a sector: 4. With U = 2 the lanes read every second float, twice the sectors; from U = 8 on, one sector each.
# <!-- END SOLUTION -->

# %% [markdown]
# ## Step 6 · A claim and your evidence (10 minutes)
#
# The report proposes an improvement (section 3.2): neighbouring windows read much the same data, so shared memory could hold the overlap and save accesses.
#
# **Predict.** On the measured layer ($K = 4$, $3 \times 3$, $U = 1$), how many times does the whole grid load one element of `x` that lies away from the border?

# %%
# %%answer predict_reuse
# BEGIN SOLUTION: loads of one inner element of x, over all threads
predict_reuse = 4 * 3 * 3
# END SOLUTION

# %%
check("predict_reuse")

# %% [markdown]
# **Your evidence.** Each multiply-add loads one element of `x`. The layer has $3 \cdot 32 \cdot 32 = 3\,072$ of them; divide the multiply-adds that you counted by
# that number. The mean lies a little below your prediction, because elements on the border lie under fewer windows.
#
# **Verdict: the first half holds, the second holds under a condition.** That windows overlap is arithmetic, and you have counted it: each element is loaded some
# 35 times where once would do. Whether *shared memory* saves time is another question. The loads counted here are those that the threads ask for. The engine
# has no caches; a GPU has, and answers repeated loads from them where it can. Staging by hand pays where the caches fall short, or where an element, once fetched, can be used from a
# register many times over. Lab 2 rearranges the whole sum so that this becomes possible.
