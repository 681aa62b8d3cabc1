"""The batch-reduce GEMM kernel, the cache of generated code, and the machine it runs on."""
