"""Target ``llvm``: loop IR to LLVM IR text, optimised and emitted as an object file."""
