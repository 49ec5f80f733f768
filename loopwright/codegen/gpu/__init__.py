"""Code for devices that launch kernels of blocks and threads: OpenCL C and CUDA C++."""
