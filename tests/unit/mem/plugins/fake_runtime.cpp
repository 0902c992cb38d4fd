// Stands in for a CUDA runtime that is there when the plug-in is built and gone when it is loaded.
extern "C" int fake_cuda_runtime() { return 13010; }
