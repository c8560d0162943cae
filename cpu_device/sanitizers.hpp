#pragma once
/// @file Says which sanitizer the code is compiled for. GCC defines macros for that; Clang has __has_feature().

#if defined(__SANITIZE_THREAD__)
#define CPU_DEVICE_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define CPU_DEVICE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CPU_DEVICE_TSAN 1
#elif __has_feature(address_sanitizer)
#define CPU_DEVICE_ASAN 1
#endif
#endif
#ifndef CPU_DEVICE_TSAN
#define CPU_DEVICE_TSAN 0
#endif
#ifndef CPU_DEVICE_ASAN
#define CPU_DEVICE_ASAN 0
#endif
