"""Adapters to AutoTVM's, Ansor's and TVM's tir names, where another name is not enough.

The tables of names are `loopwright.autotvm`, `loopwright.auto_scheduler` and `loopwright.tir`.
"""
