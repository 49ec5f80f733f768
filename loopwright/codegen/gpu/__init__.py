"""Code for devices that launch kernels of blocks and threads: OpenCL C and CUDA C++."""
# Every legal schedule runs: statements in no loop over thread axes are kernels of one thread, right
# and slow, and parallel loops run serially. CUDA reads and writes vectors at multiples of their
# size, so every array's first element has to lie at a multiple of 16 bytes; OpenCL asks for
# nothing.
