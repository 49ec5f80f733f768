"""Code for devices that launch kernels of blocks and threads: OpenCL C and CUDA C++.

Every legal schedule runs. What stands in loops over thread axes is a kernel with these threads;
what is bound to none runs as a kernel of one thread, which is right and slow. Parallel loops run
one iteration after the other. CUDA reads and writes vectors at multiples of their size, so that
every array's first element has to lie at a multiple of 16 bytes; OpenCL asks for nothing.
"""
