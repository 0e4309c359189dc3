"""The suites of `convladder bench` that need kernels alone.

engine    what the engine costs on this machine

On a GPU, the rungs against NVIDIA's libraries:
cases     the problems of each suite, and the ways that each is solved
ways      each way's work, ready to be timed
compare   check and time a case in every way: a record; launches adds what each way launches
codesize  what weights as code take of memory, which needs no GPU: a record of its own too
training  networks layer by layer and the stages of an iteration: a record of its own; training_results what it says
charts    what is drawn of a record on a slide, as numbers
tables    what a record says; claims what it says of the sources, targets what of our own aims
results   the tables as the README's summary and docs/results.md; headers the figures in the rungs' headers
"""
