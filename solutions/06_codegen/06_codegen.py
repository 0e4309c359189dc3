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
# # Lab 6: Weights as code
#
# **240 minutes.** A trained network does not change any more. So its weights need not be data: a program can write another program in which each weight stands as a constant.
# You write that program.
#
# Afterwards you can explain
#
# - how a generator turns non-zero weights into straight-line CUDA C++, and what disappears on the way;
# - what it takes to print a float so that no bit of it is lost, and so that the compiler takes it for a float;
# - why generated code grows with the weights, and what it costs a GPU to fetch it;
# - why filters are put into groups, and what bounds a group from both sides;
# - when code beats data, and when tensor cores beat both.
#
# Edit the cells that say `YOUR CODE HERE`, `YOUR NUMBER HERE` or *Your answer*, and the generator of step 1. Run a cell with Shift+Enter. Hints are folded, and free.

# %%
import numpy as np

from convladder.autograde import check, open_lab
from convladder.autograde.faces import recorded_figures
from convladder.kernels.resources import resources

open_lab("06_codegen")

# %% [markdown]
# ## The idea
#
# Lab 4's kernel loads three numbers for each product: a weight, its column, an input. The first two are the same for every thread, every image, every day. A *generator* reads them once, and writes a kernel that
# knows them. The code-generation paper (section 3.7) does this for mobile GPUs. For a filter with the weights $w_0 = 2$ at column 1, and $w_1 = -4$ at column 7, it writes
#
# ```
# sum += 2.0f * x[1];
# sum += -4.0f * x[7];
# ```
#
# There is no loop, no row pointer, no column. The constant lies *within* the multiply-add instruction (an *immediate*), and the column within the address of the load. A zero leaves no trace at all.
#
# **How it is judged.** Your function gets the weights and returns a text. It runs without a GPU, by itself; only the text comes out, and that is compiled and run like any kernel of yours, each case with weights of its own. The kernel
# gets `xp`, the padded input of lab 4, and `y`; whatever else it needs you print into it.
#
# **Predict.** AlexNet's third layer has 61 135 non-zeros. If each takes a load of an input and a multiply-add, how many such instructions does a kernel without loops have?

# %%
# %%answer predict_fmas
# BEGIN SOLUTION: instructions
predict_fmas = 2 * 61135
# END SOLUTION

# %%
check("predict_fmas")

# %% [markdown]
# ## Step 1 · Somebody else's generator (45 minutes)
#
# This generator was written for layers of one filter. It gets the weights `w` of shape (1, C, R, S), float32, the sizes `Hp`, `Wp` of the padded input and `P`, `Q` of the output, the stride `U` and the dilation `dil`. `filters` is for step 4.
#
# **Task `generate_reported`, debugging, 2 lines.** Run the check before you read the code. There are two mistakes. The first shows in the text: print what the function returns. The second shows in values, and only of some layers.


# %%
# %%answer generate_reported
def generate_reported(w, Hp, Wp, P, Q, U, dil, filters):
    """A kernel for one filter, as text: a line for each weight that counts."""
    lines = []
    for channel in range(w.shape[1]):
        for row in range(w.shape[2]):
            for column in range(w.shape[3]):
                weight = float(w[0, channel, row, column])
                if weight != 0:
                    at = channel * Hp * Wp + row * dil * Wp + column * dil
                    lines.append(f"    sum += {weight!r}f * x[{at}];")
    body = "\n".join(lines)
    return f"""
//@ launch reported grid=(cdiv(P*Q, 128), 1, N) block=128
__global__ void reported(const float* xp, float* y)
{{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;
    if (pq >= {P * Q}) return;
    const float* x = xp + blockIdx.z * {w.shape[1] * Hp * Wp} + pq / {Q} * {U * Wp} + pq % {Q} * {U};
    float sum = 0.0f;
{body}
    y[blockIdx.z * {P * Q} + pq] = sum;
}}
"""


# STUB generate_reported.buggy.py

# %% [markdown]
# <details><summary>Hint 1</summary>Call generate_reported with a small array of your own in a new cell, and print the text. Which line would not be C++?</details>
# <details><summary>Hint 2</summary>How does Python show an element of a NumPy array, and how a float of its own?</details>
# <details><summary>Hint 3</summary>The failing case has weights of very different size. Which of them get no line? "Non-zero" is a comparison with 0, and with nothing else.</details>

# %%
check("generate_reported")

# %% [markdown]
# ## Step 2 · A generator for a small layer (60 minutes)
#
# Now for all filters of a small layer: a thread computes one output point of every filter, and keeps a sum for each, `sum0`, `sum1`, … The frame is given. Inside it, `x` points to the first element of the thread's window.
#
# **Task `generate`, generator, about 6 lines.** Append to `lines` a line for each non-zero weight `w[k, c, r, s]`: it adds the weight, times the element of the window that it belongs to, to `sum` of filter `k`.
# A constant needs enough digits for a float (9 in all, or Python's own), and the f at its end: without it C++ takes it for a double, and so the whole product. The counters show what that costs.


# %%
# %%answer generate
def generate(w, Hp, Wp, P, Q, U, dil, filters):
    """The kernel of a small layer, as text."""
    K, C, R, S = w.shape
    lines = []
    # BEGIN SOLUTION: about 6 lines
    for k in range(K):
        for c in range(C):
            for r in range(R):
                for s in range(S):
                    if w[k, c, r, s] != 0:
                        place = (c * Hp + r * dil) * Wp + s * dil
                        lines.append(f"sum{k} += {float(w[k, c, r, s]):.9e}f * x[{place}];")
    # END SOLUTION
    sums = " ".join(f"float sum{k} = 0.0f;" for k in range(K))
    stores = " ".join(f"y[(blockIdx.z * {K} + {k}) * {P * Q} + pq] = sum{k};" for k in range(K))
    body = "\n    ".join([sums, *lines, stores])
    return f"""
//@ launch conv grid=(cdiv(P*Q, 128), 1, N) block=128
__global__ void conv(const float* xp, float* y)
{{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;
    if (pq >= {P * Q}) return;
    const float* x = xp + blockIdx.z * {C * Hp * Wp} + pq / {Q} * {U * Wp} + pq % {Q} * {U};
    {body}
}}
"""


# %% [markdown]
# <details><summary>Hint 1</summary>Four loops over the indices of w, and one test. Step 2 of lab 4 has the place of a weight in the padded input.</details>
# <details><summary>Hint 2</summary>f"{v:.9e}" prints a float with ten digits and an exponent, so that there is always a point for the f to follow.</details>
# <details><summary>Hint 3</summary>A negative constant after += is no trouble; after -= or a bare minus it makes --, which means something else.</details>

# %%
check("generate")

# %% [markdown]
# The number of load requests is even smaller than that of the non-zeros. Two filters that use the same element do not load it twice: within straight-line code without stores the compiler finds that out by itself.
#
# ## Step 3 · What code weighs (45 minutes)
#
# A multiply-add with an immediate takes 16 bytes of machine code, on every NVIDIA GPU since Volta. In CSR a non-zero takes 8, its column and its value.
#
# **Predict.** How many bytes do the multiply-adds of the 61 135 non-zeros take?

# %%
# %%answer predict_code
# BEGIN SOLUTION: bytes
predict_code = 16 * 61135
# END SOLUTION

# %%
check("predict_code")

# %% [markdown]
# The compiler tells how large your own kernels become; for that no GPU is needed. The next cell generates the same layer with ever more zeros.

# %%
rng = np.random.default_rng(6)
weights = rng.uniform(-1, 1, (8, 16, 3, 3)).astype(np.float32)
for sparsity in (0.0, 0.5, 0.9):
    pruned = np.where(rng.random(weights.shape) < sparsity, np.float32(0), weights)
    try:
        text = generate(pruned, Hp=15, Wp=15, P=13, Q=13, U=1, dil=1, filters=8)
    except NotImplementedError:
        print("Write the generator of step 2 first.")
        break
    (made,) = resources(text, "sm_90").values()
    left = np.count_nonzero(pruned)
    print(f"{sparsity:.0%} zeros, {left:4d} left: PTX {made.ptx_bytes:6d} bytes, code {made.code_bytes:6d}, {made.code_bytes / left:.1f} a non-zero")

# %% [markdown]
# Why more than 16? The loads are instructions too, and so is the frame around them, which weighs more the fewer weights there are. The paper's table 4 gives sizes for three shares of zeros. Ours, of the generator in
# `kernels/codegen`, beside it:

# %%
recorded_figures.code_sizes("alexnet-conv2", "lenet-conv1")

# %%
recorded_figures.verdicts("codesize")

# %% [markdown]
# Every multiprocessor fetches each instruction at least once; there is no other way to execute it. On an H100, with 16 warps, 512 KiB of such code came at 2.5 bytes a clock to each multiprocessor, on its second and later passes too, since
# so much does not stay there; of 128 KiB, which does stay, the last pass got 3.1 bytes a clock (measured with `python -m convladder.kernels.codegen fetch`; the tables stand in `docs/codegen.md`).
#
# **Predict.** How many clocks does it take to get 512 KiB of code at 2.5 bytes a clock? (A KiB is 1024 bytes.)

# %%
# %%answer predict_clocks
# BEGIN SOLUTION: clocks
predict_clocks = 512 * 1024 / 2.5
# END SOLUTION

# %%
check("predict_clocks")

# %% [markdown]
# In that time the multiprocessor's 128 units could have done 27 million multiply-adds. The code holds 32 768. So each one has to be executed by 800 threads or so, before something else is fetched, or the units wait.
#
# ## Step 4 · Groups of filters (60 minutes)
#
# A thread cannot keep 384 sums in registers, and a kernel of a megabyte stays in no cache. So the filters are divided into groups, each with a kernel of its own. Within a group, an input is loaded once for all filters that
# use it: for each channel and tap one load, then the multiply-adds of the filters whose weight there is not zero.
#
# The last case is a real layer, the whole of LeNet's first, with half of its weights zero. Larger ones need thousands of lines, and minutes of compiling; so the measured case is AlexNet's third layer with a
# sixteenth of its channels and a twelfth of its filters.
#
# **Task `generate_grouped`, generator, about 12 lines.** Return one text with a kernel and a `//@ launch` line for each group of at most `filters` filters: 0 to `filters`−1, and so on; the last group may be smaller. The kernels run one after
# the other. Give each a name of its own. `frame` puts a kernel around its lines.


# %%
# %%answer generate_grouped
def generate_grouped(w, Hp, Wp, P, Q, U, dil, filters):
    """The kernels of a layer, one for each group of filters, as one text."""
    K, C, R, S = w.shape

    def frame(name, lines):
        """A kernel of this name with these lines; `x` is a thread's window, `pq` its output point."""
        body = "\n    ".join(lines)
        return f"""
//@ launch {name} grid=(cdiv(P*Q, 128), 1, N) block=128
__global__ void {name}(const float* xp, float* y)
{{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;
    if (pq >= {P * Q}) return;
    const float* x = xp + blockIdx.z * {C * Hp * Wp} + pq / {Q} * {U * Wp} + pq % {Q} * {U};
    float v;
    {body}
}}
"""

    kernels = []
    # BEGIN SOLUTION: about 12 lines
    for first in range(0, K, filters):
        group = range(first, min(first + filters, K))
        lines = [f"float sum{k} = 0.0f;" for k in group]
        for c in range(C):
            for r in range(R):
                for s in range(S):
                    used = [k for k in group if w[k, c, r, s] != 0]
                    if used:
                        lines.append(f"v = x[{c * Hp * Wp + r * dil * Wp + s * dil}];")
                    lines += [f"sum{k} += {float(w[k, c, r, s]):.8e}f * v;" for k in used]
        lines += [f"y[(blockIdx.z * {K} + {k}) * {P * Q} + pq] = sum{k};" for k in group]
        kernels.append(frame(f"conv{first}", lines))
    # END SOLUTION
    return "".join(kernels)


# %% [markdown]
# <details><summary>Hint 1</summary>The outermost loop goes over the first filter of each group: range(0, K, filters). What is the last filter of the last group?</details>
# <details><summary>Hint 2</summary>The loops over c, r and s now stand outside of the one over the group's filters. Load v only where a filter of the group needs it.</details>
# <details><summary>Hint 3</summary>All stores come last. A store in between makes the compiler forget what it has loaded: y might overlap xp.</details>

# %%
check("generate_grouped")

# %% [markdown]
# **Small groups or large ones?** A group of more filters loads fewer inputs for the same products, but needs more registers, so fewer threads share each fetched instruction. The next cell shows your own kernels.

# %%
layer = np.where(rng.random((64, 32, 3, 3)) < 0.93, np.float32(0), rng.uniform(-1, 1, (64, 32, 3, 3)).astype(np.float32))
for filters in (4, 16, 64):
    try:
        text = generate_grouped(layer, Hp=15, Wp=15, P=13, Q=13, U=1, dil=1, filters=filters)
    except NotImplementedError:
        print("Write the generator above first.")
        break
    found = resources(text, "sm_90").values()
    print(
        f"{filters:2d} filters a kernel: {text.count(' = x['):4d} loads, at most {max(m.registers for m in found)} registers,",
        f"{sum(m.code_bytes for m in found) / 1024:.0f} KiB of code, the largest kernel {max(m.code_bytes for m in found) / 1024:.0f} KiB",
    )

# %% [markdown]
# ## Step 5 · When does code beat data? (30 minutes)
#
# **A claim.** The code-generation paper's kernels beat its libraries by leaving out zeros, indices and loops, and its table 4 shows what that takes of memory.
#
# **Your evidence.** You have counted that a product takes one multiply-add and a part of a load, where lab 4's kernel issued three loads. You have seen what the code weighs. What is recorded of times:

# %%
recorded_figures.code_against_data()

# %% [markdown]
# **Verdict: under conditions.** Code replaces two loads a product by 16 bytes of instructions, which each multiprocessor fetches anew once they do not stay there. So code wins where many warps share each instruction, where the weights are few enough, and where
# they never change: another network, or another step of training, is another compilation. It loses where the code is large and the images are few. Tensor cores know neither zeros nor immediates, and multiply so much faster that with the layout they like best they overtake generated code on some layers; their price is TF32's
# ten bits of mantissa. `docs/codegen.md` tells what was tried while `kernels/codegen` was built, and what each step gave.
#
# **Explain, at most 80 words.** What does a weight cost as code that it does not cost as data, and what does it save? Give a number of your own, and say what must hold for a fetched instruction to pay.

# %% [markdown] explain="explain_fetch"
# <!-- BEGIN SOLUTION -->
# As data a weight takes 8 bytes and two loads for each product; as code it takes no load, but 16 bytes of instruction that every multiprocessor fetches itself: 512 KiB take 209 715 clocks at 2.5 bytes a clock. That pays
# if many warps execute each fetched instruction, or if the code stays in the cache and is used again. My grouped kernels load some 1400 times for 2760 products of a warp, where lab 4 loads thrice.
# <!-- END SOLUTION -->
