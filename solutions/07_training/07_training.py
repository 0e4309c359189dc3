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
# # Lab 7: Where a training step's time and memory go
#
# **180 minutes.** Training runs a network forwards, then backwards, and the backward pass holds two more convolutions for each one of
# the forward pass. You write both as kernels, count what they cost, compute what a layer needs of memory, and let the stages of
# a training iteration overlap. Then a paper's claims stand against your evidence.
#
# Afterwards you can explain
#
# - why a convolution's gradients are convolutions again, and which outputs an element of the input has reached;
# - why threads that add to a common place need atomic updates, and how another division of the work does without them;
# - why the weight gradient, with its few results and long sums, leaves a GPU empty until each sum is split;
# - which layers of a network fill the memory in training, and why those that work in place do not;
# - what a prefetch thread gains, and which stage decides how long an iteration takes.
#
# Edit the cells that say `YOUR CODE HERE`, `YOUR NUMBER HERE` or *Your answer*, and the kernel of step 2. Run a cell with Shift+Enter.
# Hints are folded, and free.

# %%
import tempfile
from pathlib import Path

import numpy as np

from convladder.autograde import check, measure, open_lab
from convladder.autograde.faces import training as shown
from convladder.kernels.net import convolutions, images, networks, stages, training

open_lab("07_training")

# %% [markdown]
# ## The idea
#
# A network is a chain of layers, and at its end stands one number, the *loss* $J$: how far the answers are from the labels. Training
# wants to know how $J$ changes with every weight. Write $dy$ for $\partial J/\partial y$, the gradient of the loss by an array $y$; it has the shape of
# $y$. The backward pass walks from the last layer to the first. Each layer is handed $dy$, the gradient by its output, and must
# give two things: $dw$, with which its weights are updated, and $dx$, which the layer below will call its own $dy$.
#
# For the convolution of lab 1,
#
# $$ y_{n,k,p,q} \;=\; \sum_{c,r,s} x_{n,\,c,\;p\,U-\mathrm{pad}+r,\;q\,U-\mathrm{pad}+s} \;\cdot\; w_{k,c,r,s} \tag{1} $$
#
# each product ties one $x$, one $w$ and one $y$ together. The chain rule goes through the same products and collects them by
# $x$, or by $w$:
#
# $$ dx_{n,c,h,w} \;=\; \sum_{k} \; \sum_{\substack{r,p:\; p\,U-\mathrm{pad}+r \,=\, h\\ s,q:\; q\,U-\mathrm{pad}+s \,=\, w}} dy_{n,k,p,q} \cdot w_{k,c,r,s} \tag{2} $$
#
# $$ dw_{k,c,r,s} \;=\; \sum_{n,p,q} dy_{n,k,p,q} \cdot x_{n,\,c,\;p\,U-\mathrm{pad}+r,\;q\,U-\mathrm{pad}+s} \tag{3} $$
#
# Equation (2) is the *data gradient*, equation (3) the *weight gradient*. All three sums run over the same products, so that each costs
# as many operations as the forward pass. What differs is how many sums there are, and how long each one is:
#
# | | sums | products in each |
# |---|---|---|
# | $y$ | $N K P Q$ | $C R S$ |
# | $dx$ | $N C H W$ | about $K R S / U^2$ |
# | $dw$ | $K C R S$ | $N P Q$ |
#
# ### The smallest example
#
# A $3 \times 3$ image and a $2 \times 2$ filter make four outputs. Let the loss be their weighted sum, so that $dy$ is just those weights. Whether a
# gradient is right can always be tried: change one element a little and see how the loss moves. This is the *finite difference*,
# and every layer that you are given in this lab has been held to it.

# %%
exact = convolutions.Lowered(np)
g = networks.ConvGeometry(N=1, C=1, H=3, W=3, K=1, R=2, S=2)
x = np.arange(1.0, 10.0).reshape(1, 1, 3, 3)
w = np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 1, 2, 2)
dy = np.array([[1.0, 10.0], [100.0, 1000.0]]).reshape(1, 1, 2, 2)

print("y  =", exact.forward(x, w, g)[0, 0].tolist())
print("dx =", exact.data_gradient(dy, w, g)[0, 0].tolist())
print("dw =", exact.weight_gradient(x, dy, g)[0, 0].tolist())

moved = x.copy()
moved[0, 0, 1, 1] += 0.001
change = ((exact.forward(moved, w, g) - exact.forward(x, w, g)) * dy).sum()
print(f"finite difference by the middle of x: {change / 0.001:.0f}")

# %% [markdown]
# Read the middle of $dx$: all four windows hold the middle element, each under another tap, so it collects four products,
# $1 \cdot 4 + 10 \cdot 3 + 100 \cdot 2 + 1000 \cdot 1 = 1234$. A corner lies under one window only.
#
# ## Step 1 · Which output read this element? (15 minutes)
#
# In lab 1 a thread stood at an output and asked which element its tap reads. In the backward pass it stands at an element and
# asks which output has read it. On one axis: given row $h$ of the input and tap $r$, which $p$ has $p\,U-\mathrm{pad}+r=h$? With a stride there may be none.
#
# **Task `output_index`, Python, about 3 lines.** Given $h$, $r$, $U$, pad and the number $P$ of outputs, return $p$, or `None` where no output
# reads row $h$ through tap $r$.

# %%
# %%answer output_index
def output_index(h, r, U, pad, P):
    """The p of P outputs with p*U - pad + r = h; None where there is none."""
    # BEGIN SOLUTION: about 3 lines
    p, between = divmod(h + pad - r, U)
    return p if between == 0 and 0 <= p < P else None
    # END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>Solve the equation for p. You get a quotient.</details>
# <details><summary>Hint 2</summary>A quotient that is not whole means that the filter's tap steps over this row. In Python, divmod gives quotient and remainder at once.</details>
# <details><summary>Hint 3</summary>A whole quotient can still be an output that does not exist: below 0, or P and more.</details>

# %%
check("output_index")

# %% [markdown]
# **Predict.** At stride 1 an element away from the border lies under all $3 \times 3$ taps, so for each filter $k$ its sum has 9 products. How many has it
# at stride $U = 2$, on average over the elements? A number or an expression.

# %%
# %%answer predict_taps
# BEGIN SOLUTION: products for each filter k, on average
predict_taps = (3 / 2) * (3 / 2)
# END SOLUTION

# %%
check("predict_taps")

# %% [markdown]
# ## Step 2 · Somebody else's kernel (20 minutes)
#
# The obvious kernel walks the forward pass once more: one thread for each output, and wherever the forward kernel *read* $x$ and
# multiplied by $w$, this one *adds* $dy \cdot w$ to $dx$. A first launch fills $dx$ with zeros, the second adds. It looks right, and for one
# output it is.
#
# **Task `data_gradient_scatter`, debugging, 1 line.** Run the cell and its check *before* you read the code. The report names two threads and
# one element. Which two outputs do the threads own, and why do they meet there? It proposes two cures: why would the first, a barrier, not help here? Then repair the line.

# %%
# %%cuda data_gradient_scatter
//! ladder/data_gradient_scatter.cu
//! stub data_gradient_scatter.buggy.cu

# %%
check("data_gradient_scatter")

# %% [markdown]
# <details><summary>Hint 1</summary>Windows overlap. Two neighbouring outputs have read the same element; now both threads add to it.</details>
# <details><summary>Hint 2</summary>`a += b` is three steps: load a, add b, store a. What happens to the other thread's sum if it stores between your load and your store? A barrier could order the threads of one block, but all filters k add to the same element, and they are in different blocks.</details>
# <details><summary>Hint 3</summary>CUDA C++ has a function that does the three steps as one: atomicAdd(address, value). The address of element i of dx is &dx[i].</details>

# %%
measure("data_gradient_scatter")

# %% [markdown]
# Look at the line with the atomic update: every product of the whole convolution is one. The engine counts the traffic that they ask for; what a GPU
# pays on top, where many lanes of many blocks queue for one address, it does not know. There is a second price. The order in which the
# threads add is not the same in each run, so that float32 sums differ in their last digits from run to run.
#
# ## Step 3 · Gather instead of scatter (35 minutes)
#
# Equation (2) is written from the other side: one sum for each element of $dx$. Give each *element* a thread, let it collect
# its own products, and nobody meets anybody.
#
# **Task `data_gradient`, kernel, about 12 lines, at most 256 threads a block.** Given are the launch line, the thread's element and the store. Write the sum, in a variable `sum`: for each tap find the
# output that has read this element through it, as in step 1 on both axes, skip the tap if there is none, and sum over all filters $k$.

# %%
# %%cuda data_gradient
//! ladder/data_gradient.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Do the rows first: row + pad - r must be at least 0, divisible by U, and the quotient less than P. If not, no s and no k can help: continue with the next r.</details>
# <details><summary>Hint 2</summary>The remainder of a negative number is negative or zero in C++, and the quotient is rounded towards zero. Test for negative numbers before you divide.</details>
# <details><summary>Hint 3</summary>Innermost, for each k, add dy[((n*K + k)*P + p)*Q + q] * w[((k*C + c)*R + r)*S + s]. The order of the three loops is yours; with k innermost the tests are made once for all filters.</details>

# %%
check("data_gradient")

# %%
measure("data_gradient")

# %% [markdown]
# **Prediction against measurement.** No atomic update is left, and no launch that writes zeros. On this layer, at stride 1, nearly all tests succeed. At stride 2 three taps of four
# are tested in vain: your 2.25 products of step 1 stand against 9 tests. Libraries therefore sort the elements by their
# remainders and give each class a kernel of its own, with a filter that holds only the taps that reach it.
#
# ## Step 4 · The weight gradient, the plain way (25 minutes)
#
# Equation (3) has one sum for each weight. The plainest kernel gives each weight a thread.
#
# **Task `weight_gradient_serial`, kernel, about 9 lines, `TILE` threads a block.** Given are the thread's weight `(k, c, r, s)` and the store. Write the sum over $n$, $p$ and $q$, in a variable `sum`;
# an element of $x$ in the padding contributes nothing.

# %%
# %%cuda weight_gradient_serial
//! ladder/weight_gradient_serial.cu

# %% [markdown]
# <details><summary>Hint 1</summary>The three loops run over what the forward kernel's grid ran over: images, output rows, output columns.</details>
# <details><summary>Hint 2</summary>Row and column in x are those of the forward pass: p*U - pad + r and q*U - pad + s. Test both against 0 and against H and W.</details>
# <details><summary>Hint 3</summary>One product is dy[((n*K + k)*P + p)*Q + q] * x[((n*C + c)*H + row)*W + col].</details>

# %%
check("weight_gradient_serial")

# %%
measure("weight_gradient_serial")

# %% [markdown]
# The measured layer has $K C R S = 8 \cdot 3 \cdot 9 = 216$ weights: 216 threads, seven warps, two blocks. A GPU of a hundred and more multiprocessors gives two of them something to do.
# Larger layers help less than one hopes, for the number of weights does not grow with the image or the batch, only the length of each sum does.
#
# **Predict.** VGG-16's first layer has 1728 weights, trained on 64 images of $224 \times 224$ outputs. How many products does one thread of this kernel add up, one
# after the other? An expression will do.

# %%
# %%answer predict_products
# BEGIN SOLUTION: products in the sum of one weight
predict_products = 64 * 224 * 224
# END SOLUTION

# %%
check("predict_products")

# %% [markdown]
# ## Step 5 · Split the sum (35 minutes)
#
# The remedy is to give one sum to many threads. Each adds up a share, and the shares are then added up among the threads. Here a whole
# block works on one weight. Thread $t$ takes the products $t$, $t + \mathrm{TILE}$, $t + 2\,\mathrm{TILE}$ …, so that neighbouring lanes read neighbouring outputs. Then
# the shares go to shared memory, and a tree adds them: the first half of the threads adds the other half's shares to
# its own, the first quarter those of the second, until one is left. Between two levels of the tree every thread must have finished the one before.
#
# **Task `weight_gradient`, kernel, about 18 lines, `TILE` threads a block.** Given are the launch line, the shared array, the block's weight and the last store. Write
# the thread's share of the sum, and the tree.

# %%
# %%cuda weight_gradient
//! ladder/weight_gradient.cu

# %% [markdown]
# <details><summary>Hint 1</summary>Number the products of one weight: i = (n*P + p)*Q + q, of N*P*Q. A loop from threadIdx.x in steps of TILE gives each thread its share; n, p and q come from i by division and remainder.</details>
# <details><summary>Hint 2</summary>After the loop: part[threadIdx.x] = sum, then a barrier. In the tree only the first `half` threads add, but all threads of the block must reach each __syncthreads().</details>
# <details><summary>Hint 3</summary>A variable `half` begins with TILE / 2 and is halved until it is 0. In each round the threads below `half` add the share that lies `half` places further on to their own; then comes a barrier, outside of the if.</details>

# %%
check("weight_gradient")

# %%
measure("weight_gradient")

# %% [markdown]
# **Prediction against measurement.** Not one product was saved, and the warps together issue more than twice as many instructions: divisions to find $n$, $p$ and $q$, and the
# tree. But 216 blocks share them where 2 did. The target of this task is what the block that works longest has to issue; compare yours with step 4's. cuDNN's
# kernels for this gradient carry the idea in their names: `splitK`, in table 3 of the paper below, splits the long inner
# dimension of the matrix product.
#
# **Explain, at most 80 words.** Why does the weight gradient need its sums split, and the forward pass hardly ever? Use the table at the top and numbers of the measured layer
# (of your counters, or counted by hand), and name one thing that splitting costs.

# %% [markdown] explain="explain_split"
# <!-- BEGIN SOLUTION -->
# The measured layer's forward pass has $NKPQ = 16\,384$ sums of 27 products: threads in plenty. Its weight gradient has 216 sums of 2048 products, so a thread
# a weight makes 7 warps, and nearly the whole GPU idles while each thread adds for long. Splitting gives 27,648 threads with 16 products each. The price:
# index divisions and a tree with barriers, here 2.3 times the warp instructions.
# <!-- END SOLUTION -->

# %% [markdown]
# ## Step 6 · What a layer keeps in memory (20 minutes)
#
# A network that only answers can forget a layer's output as soon as the next layer has read it. In training the backward pass will need
# it again: equation (3) asks for $x$. So every feature map is kept, and (as Caffe does, with which the paper measured) beside it space for its gradient. Weights have a value,
# a gradient and, in training with momentum, a third array of the same size. Everything is float32. A ReLU works in place and takes nothing.
#
# **Task `conv_layer_bytes`, Python, about 4 lines.** Return `(maps, weights)` in bytes for a convolution layer with square filters $R \times R$: its *output's* values and gradients, and the
# values, gradients and momenta of its filters and its $K$ biases. The input belongs to the layer below.

# %%
# %%answer conv_layer_bytes
def conv_layer_bytes(N, C, H, W, K, R, U, pad):
    """(bytes of the output's maps, bytes of filters and biases) in training."""
    # BEGIN SOLUTION: about 4 lines
    P = (H + 2 * pad - R) // U + 1
    Q = (W + 2 * pad - R) // U + 1
    return 2 * 4 * N * K * P * Q, 3 * 4 * (K * C * R * R + K)
    # END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>The output has N*K*P*Q elements of 4 bytes, and there are two such arrays.</details>
# <details><summary>Hint 2</summary>P is (H + 2*pad - R) // U + 1: integer division, and the same for Q from W.</details>
# <details><summary>Hint 3</summary>The filters have K*C*R*R elements and the biases K. Three arrays of each: value, gradient, momentum.</details>

# %%
check("conv_layer_bytes")

# %%
shown.layer_memory("alexnet", 512)

# %%
shown.layer_memory("vgg16", 64)

# %% [markdown]
# Two kinds of layers are large. The first convolutions have few weights and enormous maps, since the image is still large; the first fully connected layer has small maps and
# most of all weights. The maps grow with the batch, the weights do not.
#
# **Predict.** The paper's card has 8 GiB. Which *share* of it does VGG-16's largest layer, `conv1_2`, take at batch 64? It maps 64 channels
# of $224 \times 224$ to 64 channels, with $3 \times 3$ filters and padding 1. Your function may help; here a number or an expression counts.

# %%
# %%answer predict_share
# BEGIN SOLUTION: a share between 0 and 1, to within 3 % of it
predict_share = (2 * 4 * 64 * 64 * 224 * 224 + 3 * 4 * (64 * 64 * 3 * 3 + 64)) / (8 * 2**30)
# END SOLUTION

# %%
check("predict_share")

# %% [markdown]
# ## Step 7 · Six stages, and how they overlap (20 minutes)
#
# The paper (section 3.3) divides an iteration into six stages: a batch of pictures is **read** from a disk, **transformed** (decoded, cut out, scaled) by the CPU,
# and **copied** to the GPU; the network computes **forward** and **backward**; the weights are **updated**; and now and then they are **saved**.
#
# Below a small network, LeNet, learns to tell ten kinds of stripes apart, on pictures that we draw. The disk is a slow one: reading waits as long as a
# disk of 1 MB/s would. Without a GPU the network computes on the CPU through NumPy, with one through CuPy and cuDNN, by the same code.

# %%
xp, way = convolutions.library()
folder = tempfile.TemporaryDirectory(prefix="lab7-")
pictures = Path(folder.name) / "pictures.zip"
images.write(pictures, count=320, size=32)
network = training.Network("lenet", 64, xp, way)
with images.Reader(pictures, rate=1e6) as disk:
    pipeline = stages.Pipeline(network, disk, Path(folder.name) / "snapshot.npz")
    in_turn = pipeline.run(9)
    overlapped = pipeline.run(9, overlapped=True)

print(f"{xp.__name__}; the loss went from {in_turn.losses[0]:.2f} to {overlapped.losses[-1]:.2f}")
shown.stage_table([in_turn, overlapped])

# %%
shown.timeline(in_turn)

# %%
shown.timeline(overlapped)

# %% [markdown]
# In turn, an iteration takes the sum of its stages. Overlapped, a *prefetch thread* does the first three for the batches ahead, while the main thread computes. On a GPU the copy
# runs beside the kernels, in a stream of its own. The numbers above the bars are the iterations: see how far ahead the prefetch thread is.
#
# **Task `total_ms`, Python, about 4 lines.** Given the milliseconds of each stage, for each stage the number of the thread that does it, and how many iterations there are, return the
# time of all iterations. The first iteration goes through all stages, one after the other. Each later one follows as soon as the busiest thread can do
# it. Assume that there is always room for finished batches.

# %%
# %%answer total_ms
def total_ms(stages, threads, iterations):
    """Time of so many iterations; stage i takes stages[i] ms and is done by thread threads[i]."""
    # BEGIN SOLUTION: about 4 lines
    busy = {}
    for ms, thread in zip(stages, threads):
        busy[thread] = busy.get(thread, 0) + ms
    return sum(stages) + (iterations - 1) * max(busy.values())
    # END SOLUTION

# %% [markdown]
# <details><summary>Hint 1</summary>How long is each thread busy for one iteration? Add up the stages that it does.</details>
# <details><summary>Hint 2</summary>Once the pipeline is full, one iteration ends each time the busiest thread has done its part.</details>
# <details><summary>Hint 3</summary>All stages once, and (iterations - 1) times the largest of the threads' sums. With a single thread this is iterations times the sum.</details>

# %%
check("total_ms")

# %% [markdown]
# **Prediction against measurement.** Put the medians of the table into your function: stages read to update, threads `[0, 0, 0, 1, 1, 1]`. The difference between 9 and 8 iterations
# is your prediction for one. The measured one lies above it by what the threads cost each other, most of all where they share few cores.
#
# **Predict.** The paper trains AlexNet with batch 256 on a GTX 1080: transforming takes 110 ms, copying 13 ms, the network computes 223 ms. A single disk is 5.4 times
# as slow as an array of four. Say the array needs $t$ ms to read a batch. From which $t$ on is the single disk too slow, so that with a prefetch thread (reading, transforming, copying) not
# the computation decides any more? In milliseconds.

# %%
# %%answer predict_disk
# BEGIN SOLUTION: milliseconds that the array takes to read a batch
predict_disk = (223 - 110 - 13) / 5.4
# END SOLUTION

# %%
check("predict_disk")

# %% [markdown]
# Below are AlexNet's stages as recorded on a faster GPU than the paper's, from an array of disks and from one that is 5.4 times as slow. Which stage decides there? And what becomes of the main
# thread's stages when sixteen threads transform pictures beside it in one Python process?

# %%
shown.record(3)

# %% [markdown]
# ## Step 8 · A paper's claims and your evidence (10 minutes)
#
# Li, Zhang and Cao (*Analyzing performance of neural networks in training phase*, Journal of Frontiers of Computer Science and Technology 12(10), 2018) measured AlexNet, LeNet and VGG-16 on
# a GTX 1080 with Caffe. One of their claims: of the computation, 40 % is the forward pass and 60 % the backward pass.
#
# **Predict.** What would the operations alone say? AlexNet's layers take 1448.8 million operations for one image in the forward pass, 210.8 million of them in `conv1`. Each of the two gradients
# takes as many as the forward pass. But nobody needs the gradient by the images, so `conv1` has no data gradient. Which *share* of all operations is the backward pass?

# %%
# %%answer predict_backward
# BEGIN SOLUTION: a share between 0 and 1
predict_backward = (2 * 1448.8 - 210.8) / (3 * 1448.8 - 210.8)
# END SOLUTION

# %%
check("predict_backward")

# %%
shown.record(0)

# %%
shown.layer_times()

# %%
shown.record(1)

# %%
shown.efficiencies("ce")

# %%
shown.efficiencies("ru")

# %%
shown.record(2)

# %%
shown.record(4)

# %%
shown.claims()

# %% [markdown]
# CE is the share of the GPU's peak that a product reaches (equation 8), RU the share of the places for blocks that its grid fills (equation 11). CE counts the operations of
# equation (1), so a faster algorithm such as Winograd's, with fewer of them, can exceed 1.
#
# **Verdict on 40/60: it holds, though the operations alone would say 35/65.** Operations are not time. Look at `conv2`: its three products have the same number of operations, and the weight gradient takes a fraction of
# the others' time. And the layers without products, pooling and normalisation, take about as long in one direction as in the other.
#
# **Verdict on memory: it holds under a condition.** Your 19 % of step 6 are just below the paper's 20 %, on a card of 8 GiB and at *its* batch. The maps grow with the batch: at 128 images the same layer would take 38 %. And all
# layers of VGG-16 together would need 8.8 GiB at batch 64, more than that card has. What limits training is not one layer, but that all of them are kept.
#
# The other verdicts stand in the table. Where one differs from the paper's, ask first what is not the same: the GPU, eight years of libraries, pooling and normalisation as plain array expressions here, pictures that Python
# prepares. A fast product may also have a price that no time shows: the fastest weight gradient of `conv2` is a Winograd algorithm for $5 \times 5$ filters, whose results on the recorded GPU are off by 4 parts in 10 000,
# hundreds of times as much as those of AlexNet's other products.
