// A CUDA driver that has been initialised, as far as gpusock asks.
extern "C" int cuCtxGetCurrent(void** context);
extern "C" int cuCtxGetCurrent(void** context) {
  *context = nullptr;
  return 0;
}
