"""Adapters to names of AutoTVM, Ansor and TVM's tir; the tables of names are one room up."""
