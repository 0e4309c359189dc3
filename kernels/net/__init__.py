"""Convolutional networks in training, small enough to read: what lab 7 measures.

networks      LeNet, AlexNet, VGG-16 and GoogLeNet as data: shapes, operations, memory of each layer
layers        what each layer computes, forwards and backwards, on NumPy's or CuPy's arrays
convolutions  the three convolutions of a training step: as matrix products, or by cuDNN
training      a network at work: forward, backward, update, snapshot
images        pictures that we draw, kept in one file, read at a disk's pace, decoded and cut out on the CPU
costs         what of it can be computed by hand: the memory of a layer, the time of stages that overlap
stages        the stages of training iterations, timed one after the other and overlapped
"""
