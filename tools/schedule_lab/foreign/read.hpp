#pragma once
/// @file Reads the plans of other programs. Files are untrusted: any text ends in a Plan or an Error, in memory and
/// time that are known before.

#include "foreign/plan.hpp"

#include <string_view>

namespace param_sync::foreign {

/// True if this build reads MSCCL's XML.
bool reads_xml();

/// Reads a plan of MSCCL: the XML that msccl-tools writes, and that msccl and RCCL run. Throws Error that names the
/// line.
Plan read_msccl(std::string_view text);

/// Reads a plan of MSCCL++: the JSON that its language writes, and that its executor runs. Throws Error that names the
/// field. `iterations`: how often a pipeline runs for each chunk; 0: as often as a proof has to see.
Plan read_mscclpp(std::string_view text, int iterations = 0);

/// Reads either of them. Throws Error.
Plan read_plan(std::string_view text, int iterations = 0);

}  // namespace param_sync::foreign
