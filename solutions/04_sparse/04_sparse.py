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
# # Lab 4: Direct sparse convolution
#
# **180 minutes.** Nine of ten weights of a trained network can be set to zero, and it still tells cats from dogs. You build
# a convolution that multiplies by the tenth weight only, and find out when that is worth it.
#
# Afterwards you can explain
#
# - what CSR stores, and why a compressed filter can walk over an image by moving one pointer;
# - why the stride moves windows but not weights, and why padding has to be real here;
# - what one long row does to a warp, and which numbering of the threads does not care;
# - why a sum in global memory costs two memory accesses more for each product than one in a register;
# - from which share of zeros on sparse beats dense, what decides it, and what became of a paper's 0.6.
#
# Edit the cells that say `YOUR CODE HERE`, `YOUR NUMBER HERE` or *Your answer*, and the kernel of step 4. Run a cell with Shift+Enter.
# Hints are folded, and free.

# %%
import numpy as np

from convladder.autograde import check, measure, open_lab, time_kernel
from convladder.autograde.faces import figures, recorded_figures
from convladder.kernels import oracle

open_lab("04_sparse")

# %% [markdown]
# ## The idea
#
# *Pruning* takes a trained network, sets its smallest weights to zero, and trains the others a little further. What is left is a filter
# with holes. The *sparsity* of a layer is the share of its weights that are zero. For $K$ filters of $C$ channels and $R \times S$ taps,
#
# $$ \mathrm{sparsity} \;=\; 1 - \frac{\text{non-zeros}}{K \cdot C \cdot R \cdot S} \tag{1} $$
#
# A dense convolution multiplies by the zeros like by any other number. To leave them out, we must know where the others stand, and that
# knowledge costs memory and instructions of its own. This lab follows a paper that does so on GPUs (Fang Cheng and others, *A GPU-based
# high-performance optimization method of sparse CNNs*, 2018; here "the sparse paper"). Its $M$, $E$, $F$ are our $K$, $P$, $Q$. It also leaves out the
# padding and a pair of brackets, and you will see what that does.
#
# ### The smallest example
#
# A filter of $3 \times 3$ with three non-zeros, and an image of $4 \times 4$ with one row and column of zeros around it.

# %%
w = np.array([[0, 1, 0], [0, -4, 0], [0, 0, 2]], dtype=np.float32).reshape(1, 1, 3, 3)
x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
print("w =", w[0, 0].astype(int), "\n\ny =", oracle.conv2d(x, w, pad=1)[0, 0].astype(int), sep="\n")

# %% [markdown]
# Lay the padded image out in memory, row by row, and number its 36 elements. The window of output $(0, 0)$ begins at element 0. The
# three weights then stand at three numbers. For the next window those numbers all grow by the same amount.

# %%
figures.stretched(H=4, W=4, pad=1, taps=[(0, 1), (1, 1), (2, 2)], p=0, q=0)

# %%
figures.stretched(H=4, W=4, pad=1, taps=[(0, 1), (1, 1), (2, 2)], p=2, q=1)

# %% [markdown]
# That is the whole method. The three numbers 1, 7, 14 are computed once, when the filter is loaded; the paper calls it *stretching* the filter, because
# the numbers are those of a filter as large as the image. Every output then adds one offset to a pointer and sums three products. Nothing is
# unrolled, nothing is copied, and no test asks for a border, because the border is really there.
#
# ## Step 1 · Compressed rows (20 minutes)
#
# *Compressed sparse rows* (CSR) keep three arrays. `val` holds the non-zeros, row after row; `col` holds the column of each; and `rowptr[k]` is
# the number of non-zeros before row $k$, so that row $k$ is `val[rowptr[k]]` to `val[rowptr[k+1] - 1]`. It has one entry more than there are rows.
#
# **Task `to_csr`, Python, about 5 lines.** Given a matrix `a` (an array, rows by columns), return `(rowptr, col, val)`, as lists or arrays. In a
# row the columns ascend. Do one of the check's matrices by hand first, and mind its empty row:
#
# $$ \begin{pmatrix} 0 & 3 & 0 & 1 \\ 0 & 0 & 0 & 0 \\ 2 & 0 & 5 & 0 \end{pmatrix} $$

# %%
# %%answer to_csr
def to_csr(a):
    """(rowptr, col, val) of a matrix; rowptr has one entry more than the matrix has rows."""
    # BEGIN SOLUTION: about 5 lines
    rowptr, col, val = [0], [], []
    for row in a:
        for column, value in enumerate(row):
            if value != 0:
                col.append(column)
                val.append(value)
        rowptr.append(len(val))
    return rowptr, col, val
    # END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>Walk over the rows, and in each over its columns. What do you append when you meet a non-zero?</details>
# <details><summary>Hint 2</summary>rowptr begins with 0: no non-zero stands before row 0. What do you append to it at the end of each row?</details>
# <details><summary>Hint 3</summary>At the end of a row, len(val) is the number of non-zeros so far. A row without any repeats the number before it.</details>

# %%
check("to_csr")

# %% [markdown]
# **Predict.** The third layer of AlexNet has 384 filters of 256 channels and $3 \times 3$ taps; after pruning 61 135 weights are left. What is its
# sparsity? The paper prints the formula as $1 - N_\mathrm{nonzero} / M * kernel\_size$. Read from left to right, that is something else than (1).

# %%
# %%answer predict_sparsity
# BEGIN SOLUTION: a share between 0 and 1, to within 0.1 % of it
predict_sparsity = 1 - 61135 / (384 * 256 * 3 * 3)
# END SOLUTION

# %%
check("predict_sparsity")

# %% [markdown]
# ## Step 2 · Two numbers instead of an unrolled image (25 minutes)
#
# In CSR the weight $(c, r, s)$ of a filter stands in column $(c R + r) S + s$. In the padded input, of $H_p = H + 2\,\mathrm{pad}$ rows and $W_p = W +
# 2\,\mathrm{pad}$ columns, element $(c, h, w)$ of an image stands at $(c H_p + h) W_p + w$.
#
# **Task `stretched_column`, Python, about 4 lines.** Given a column of CSR, return where the same weight stands in the padded input, seen from the first
# element of the window. With dilation `dil`, neighbouring taps lie `dil` elements apart. The function is given one number more than it needs.

# %%
# %%answer stretched_column
def stretched_column(col, R, S, Hp, Wp, U, dil):
    """The place of weight `col` in the padded input, counted from the window's first element."""
    # BEGIN SOLUTION: about 4 lines
    s = col % S
    r = col // S % R
    c = col // (R * S)
    return (c * Hp + r * dil) * Wp + s * dil
    # END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>First take the column apart, as a number with digits c, r and s. The last digit counts up to S, the one before it up to R.</details>
# <details><summary>Hint 2</summary>Tap (r, s) lies r*dil rows and s*dil columns from the window's corner. Which element of channel c is that?</details>
# <details><summary>Hint 3</summary>Does the place of a tap within its window depend on how far the window moves from one output to the next?</details>

# %%
check("stretched_column")

# %% [markdown]
# **Task `window_start`, Python, 1 line.** Where in a plane of the padded input does the window of output $(p, q)$ begin, at stride $U$?

# %%
# %%answer window_start
def window_start(p, q, Wp, U):
    """The first element of the window of output (p, q)."""
    # BEGIN SOLUTION: 1 line
    return p * U * Wp + q * U
    # END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>The second figure above: output (2, 1) at stride 1, rows of 6 elements. Its window begins at 13.</details>
# <details><summary>Hint 2</summary>In which row and column of the padded input does it begin at stride U? The padding has moved the corner to 0 already.</details>
# <details><summary>Hint 3</summary>Row p*U, column q*U, in a plane whose rows are Wp long.</details>

# %%
check("window_start")

# %% [markdown]
# With both numbers a convolution is a sum over the non-zeros of a row, $j = \mathrm{rowptr}_k \ldots \mathrm{rowptr}_{k+1} - 1$:
#
# $$ y_{n,k,p,q} \;=\; \sum_{j} \mathrm{val}_j \cdot x^{p}_{n,\;\mathrm{col}_j + p\,U\,W_p + q\,U} \tag{2} $$
#
# where $x^p_n$ is the padded image $n$ as one long row of numbers, and $\mathrm{col}$ is stretched.
#
# ## Step 3 · Padding is a kernel, and takes time (15 minutes)
#
# Lab 1 imagined the zeros around the image. Here a column must lead to a number without a test, so the zeros have to be in memory.
#
# **Task `pad`, kernel, about 5 lines, at most 256 threads a block.** Write element `i` of `xp`: copy it from `x`, or store 0. The padding may differ
# between rows (`padh`) and columns (`padw`). The number of the thread and its guard are given.

# %%
# %%cuda pad
//! ladder/pad.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Take i apart into a plane (image and channel together), a row and a column of xp.</details>
# <details><summary>Hint 2</summary>Row h of xp is row h - padh of x. When does x have such a row, and such a column?</details>
# <details><summary>Hint 3</summary>Four comparisons decide between x[(plane * H + h) * W + w] and 0.0f. Read x only where they hold: a choice between two values with ?: reads only the one it takes.</details>

# %%
check("pad")

# %%
measure("pad")

# %% [markdown]
# ## Step 4 · A thread for each filter, and the paper's mistake (25 minutes)
#
# Filters are stretched on the GPU too. The paper gives each filter a thread, which walks along its row. The kernel below does just what the
# paper says, with its formula, $\mathrm{colidx}[j] = (c \cdot H + y) \cdot W + x$, put into our letters and given a dilation. What the paper does not say, it
# does not do.
#
# **Task `stretch_filter`, debugging, 2 to 4 lines.** Run the cell and its check *before* you read the code. There are two mistakes: one the
# engine reports as a fault, and the other shows when that is repaired. Which cases are right then, and what do they have in common? The launch line says what the
# kernel is given; `Hp` and `Wp` can be had there as well.

# %%
# %%cuda stretch_filter
//! ladder/stretch_filter.cu
//! stub stretch_filter.buggy.cu

# %% [markdown]
# <details><summary>Hint 1</summary>How many threads does the launch start, and how many filters are there? Lab 1 sent surplus threads home before they read anything.</details>
# <details><summary>Hint 2</summary>Compare the smallest failing case with the one before it. Which size changed from 0 to 1? The column is used with the padded input: how long are its rows, and how many rows has a plane?</details>
# <details><summary>Hint 3</summary>For the second mistake it is enough to pass other numbers: args=(…) on the launch line names, in order, what the parameters get.</details>

# %%
check("stretch_filter")

# %% [markdown]
# **Predict.** A warp stays in a loop until its last lane is done; lanes that are done wait. The measured case has 32 filters, so one warp does it all. It is a hard one: 31
# filters have 1 non-zero, and one has 97. Of all the lanes in all the passes of the loop, which share does useful work?

# %%
# %%answer predict_busy
# BEGIN SOLUTION: a share between 0 and 1
predict_busy = (31 * 1 + 97) / (32 * 97)
# END SOLUTION

# %%
check("predict_busy")

# %%
figures.row_lengths([97 if k == 16 else 1 for k in range(32)])

# %%
measure("stretch_filter")

# %% [markdown]
# **Prediction against measurement.** The title line counts all instructions, those before the loop too, so its share of busy lanes is a little higher than
# yours. Look also at what a load of `col` costs: each lane reads from another row, in another sector.
#
# **Task `stretch`, kernel, about 4 lines, at most 256 threads a block.** No weight needs another one to be stretched. Number the threads by non-zeros: thread $j$
# reads `col[j]` and stores `stretched[j]`. The arithmetic is that of step 2.

# %%
# %%cuda stretch
//! ladder/stretch.cu
//! stub stretch.start.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Which of the parameters of the kernel before are gone? Nobody has to know any more where a row begins.</details>
# <details><summary>Hint 2</summary>In CUDA C++ the division of two ints is Python's //, as long as nothing is negative.</details>
# <details><summary>Hint 3</summary>Three lines take col[j] apart into s, r and the channel; the fourth stores. Call the channel ch: in the kernels c is not taken, but short names get confused with col.</details>

# %%
check("stretch")

# %%
measure("stretch")

# %% [markdown]
# **Prediction against measurement.** The longest row has no say any more: every lane works, and a load of `col` brings eight columns that are all used.
# The same change of mind helps wherever rows differ: count threads by the pieces of work, not by their owners.
#
# ## Step 5 · The base kernel, as the paper lists it (30 minutes)
#
# Now equation (2). One thread computes one output $(n, k, p, q)$. As in lab 1 the outputs of a plane are numbered $pq = p\,Q + q$, the grid's other two dimensions count the
# filters and the images, and `Uh`, `Uw` are the stride along the rows and the columns (here both are $U$).
#
# **Task `csr_global`, kernel, about 5 lines, at most 128 threads a block.** Write the loop as the paper has it: set the output to 0 in global memory, then
# add to it there, once for each non-zero (`*output += …`). Before the loop, make two pointers: one to the first element of this output's window, one to the output.

# %%
# %%cuda csr_global
//! ladder/csr_global.cu

# %% [markdown]
# <details><summary>Hint 1</summary>An image of the padded input has C*Hp*Wp elements. p is pq / Q and q is pq % Q; step 2 has the rest of the window's offset.</details>
# <details><summary>Hint 2</summary>The output's place is ((n*K + k)*P + p)*Q + q. Since pq = p*Q + q, that is shorter.</details>
# <details><summary>Hint 3</summary>j runs from rowptr[k] up to, and not including, rowptr[k + 1]. In each pass add val[j] times the element at col[j] from the window's first.</details>

# %%
check("csr_global")

# %%
measure("csr_global")

# %% [markdown]
# **Predict.** The measured layer has 645 non-zeros in 32 filters, and one image. How many times, on average, is one element of `y` stored?

# %%
# %%answer predict_updates
# BEGIN SOLUTION: stores of one output, on average
predict_updates = 1 + 645 / 32
# END SOLUTION

# %%
check("predict_updates")

# %% [markdown]
# ## Step 6 · The sum in a register (20 minutes)
#
# Why does the compiler not keep the sum in a register by itself? It may not leave out a store: for all it knows, `y` overlaps what the loop reads, and then the store changes what the next load
# returns. For the same reason it loads even `rowptr[k + 1]` again in each pass; see the table above. You know that nothing overlaps.
#
# **Task `csr`, kernel, about 6 lines, at most 128 threads a block.** The same kernel with the sum in a local variable, and one store at the end.

# %%
# %%cuda csr
//! ladder/csr.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Only the two lines change that mentioned the output.</details>
# <details><summary>Hint 2</summary>A float declared in the kernel and never pointed to lives in a register.</details>
# <details><summary>Hint 3</summary>sum starts at 0.0f before the loop, and the store comes after it. A filter without a non-zero stores 0.</details>

# %%
check("csr")

# %%
measure("csr")

# %%
time_kernel("csr")

# %% [markdown]
# **Prediction against measurement.** Compare the two tables. The store requests fell by the factor that you predicted, and with the stores went the loads of
# `rowptr` in each pass. What is left for each multiply-add is one load of `val`, one of `col` and one of `xp`. The first two bring a single number to 32 lanes; lab 5 takes them on.
#
# **Padding's share.** These times were recorded on the GPU named in the figure: padding and stretching beside the two convolutions, which include
# the padding. The filters are stretched once, when they are loaded; the padding runs for every batch.

# %%
recorded_figures.steps("conv3")

# %% [markdown]
# ## Step 7 · When does it pay? (25 minutes)
#
# Leaving zeros out saves multiplications and costs order. How many zeros must there be?
#
# A simple model. A multiprocessor of a recent GPU can start 128 multiply-adds in a clock, and its first-level cache can deliver 32 floats in a clock. A good dense
# kernel keeps its numbers in registers and reaches the first bound. A sparse kernel such as yours loads a float of `xp` for each multiply-add, and at best reaches the second.
#
# **Predict.** With which sparsity does the sparse kernel take as long as the dense one, if both reach their bounds?

# %%
# %%answer predict_break_even
# BEGIN SOLUTION: a share between 0 and 1
predict_break_even = 1 - 32 / 128
# END SOLUTION

# %%
check("predict_break_even")

# %% [markdown]
# **A claim.** The sparse paper sets the threshold to 0.6 (section 4.1): layers with more zeros than that go to the sparse kernel, the others to dense lowering. It
# says itself that this number only separates two kinds of layers, since its layers have either no zeros or more than 0.7 of them. As a policy for other networks it
# has to be measured.
#
# **Your evidence.** The cell below times AlexNet's third layer at four sparsities on your GPU, where there is one (a few seconds), and otherwise shows what was recorded.

# %%
recorded_figures.crossover("conv3")

# %%
recorded_figures.verdicts("sparse", "where more than 0.6 of the weights are zero")

# %% [markdown]
# **Verdict: it depends on the opponent.** Against lowering with cuBLAS, the paper's own opponent, the best sparse kernel of this course begins to win a little above the paper's 0.6, and below what your model
# gives: lowering does not reach its bound either, for it must also unroll the image. Against cuDNN, which does not, far more of the weights must be zero; the table says how many, layer by layer, and where nothing that was tried was
# enough. A threshold is a property of two programs and a device, not of sparsity.
#
# **Explain, at most 80 words.** Why must most of the weights go before skipping them beats a good dense kernel? Name what the sparse kernel does for each multiply-add that the dense one
# does not, with one number of your own counters. Why does it not help the GPU that the zeros are multiplied for nothing?

# %% [markdown] explain="explain_crossover"
# <!-- BEGIN SOLUTION -->
# For each multiply-add my kernel issues three loads: of `val`, `col` and `xp` (12 186 requests for 3 870 products of a warp). A dense kernel loads a value into a register and
# uses it many times, so it is bound by its multiply-adds, of which the GPU starts four for every float loaded. Zeros are cheap there: multiplying costs less than finding out where not to.
# <!-- END SOLUTION -->
