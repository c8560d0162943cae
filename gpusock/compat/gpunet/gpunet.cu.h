#pragma once
/// @file GPUnet's name for gpusock/compat/gpunet.cuh: with -I on this folder its programs' includes stay as they are.
#include "gpusock/compat/gpunet.cuh"
