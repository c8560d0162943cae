#pragma once
/// @file The option --clock of examples of stores.

#include "program/arguments.hpp"

#include "param_sync/store.hpp"

#include <string>

namespace examples {

/// Adds --clock. `read`: what ranks read, for the texts.
inline void take_clock(gpusock::program::Arguments& arguments, std::string& clock, const std::string& read) {
  arguments.text("--clock", clock, "Which " + read + " a rank may read: bsp, ssp:S or async")
      .check([read](const std::string& text) {
        try {
          if (!param_sync::drops_late(param_sync::clock_of(text))) return std::string();  // here each push counts
        } catch (const gpusock::Error&) {
          // What follows says what is possible.
        }
        return "'" + text + "' is none of bsp, ssp:S (" + read + " miss at most S pushes of each rank) and async";
      });
}

}  // namespace examples
