#pragma once
/// @file Which sanitizer this build is for, if any. Under one, tests are an order of magnitude slower.

namespace gpusock {

// GCC defines macros. Clang has features.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
inline constexpr bool kAddressSanitized = false;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool kThreadSanitized = false;
inline constexpr bool kAddressSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kThreadSanitized = __has_feature(thread_sanitizer);
inline constexpr bool kAddressSanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool kThreadSanitized = false;
inline constexpr bool kAddressSanitized = false;
#endif
inline constexpr bool kSanitized = kThreadSanitized || kAddressSanitized;

}  // namespace gpusock
