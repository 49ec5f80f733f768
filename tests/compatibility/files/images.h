/* images: a model as one function. Written by loopwright 0.1.0.

   It computes, of arrays that are row-major without gaps,
     x: float32[1, 2, 4, 4]
     y: float32[1, 5], which it writes
   `workspace` is memory of IMAGES_WORKSPACE_BYTES bytes that begins at a multiple of 64, such as
   aligned_alloc gives it. Calls that run at one time need one each. Outputs must not overlap
   anything. The result is 0, or a code when it failed. */
#ifndef IMAGES_H
#define IMAGES_H
#include <stdint.h>

#define IMAGES_WORKSPACE_BYTES 320

#ifdef __cplusplus
extern "C" {
#endif

/* `args`: a pointer to each input, then to each output. */
int32_t images(void **args, void *workspace);

static inline int32_t images_run(const float *x, float *y, void *workspace) {
  void *args[] = {(void *)x, y};
  return images(args, workspace);
}

#ifdef __cplusplus
}
#endif
#endif
