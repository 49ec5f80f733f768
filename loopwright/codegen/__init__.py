"""Code generation: loop IR to code of a target.

`loopwright.codegen.llvm` and `loopwright.codegen.c` know nothing of each other; what they share
stands beside this file. Which target a generator serves is said in `loopwright.driver.backends`.
"""

from loopwright.codegen.code import Code, SourceText

__all__ = ["Code", "SourceText"]
