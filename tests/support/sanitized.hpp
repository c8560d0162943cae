#pragma once
/// @file Is this a sanitizer's build, an order of magnitude slower: GCC says so by a macro, Clang by a feature.

namespace gpusock {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace gpusock
