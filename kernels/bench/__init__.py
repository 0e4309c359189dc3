"""The suites of `convladder bench` that need kernels alone, one module each.

engine  what the engine costs on this machine
"""
