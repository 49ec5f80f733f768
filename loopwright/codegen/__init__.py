"""Code generation: loop IR to code of a target.

`loopwright.codegen.llvm` and `loopwright.codegen.c` know nothing of each other; what they share
stands beside this file. `loopwright.codegen.backends` lists which target each generator serves.
"""

from loopwright.codegen.code import Code, CodePart, SourceText

__all__ = ["Code", "CodePart", "SourceText"]
