"""What AutoTVM's, Ansor's and TVM's tir names need beyond a name of loopwright.

The tables of names are `loopwright.autotvm`, `loopwright.auto_scheduler` and `loopwright.tir`.
"""
