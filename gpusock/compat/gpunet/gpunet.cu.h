#pragma once
/// @file GPUnet's name for gpusock/compat/gpunet.cuh: with -I on this folder, includes of it need no change.
#include "gpusock/compat/gpunet.cuh"
