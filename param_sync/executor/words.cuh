#pragma once
/// @file The words by which lanes and kernels that compute meet, under the executor's names. They lie below the public
/// headers, which use them, too.

#include "param_sync/detail/exchange_words.cuh"

namespace param_sync::executor {

using detail::await;
using detail::Backoff;
using detail::block_awaits;
using detail::DeviceWord;
using detail::hand_over;
using detail::has_ended;
using detail::has_version;
using detail::SystemWord;
using param_sync::ExchangeWords;

}  // namespace param_sync::executor
