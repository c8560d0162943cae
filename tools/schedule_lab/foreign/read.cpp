#include "foreign/read.hpp"

namespace param_sync::foreign {

Plan read_plan(std::string_view text, int iterations) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);  // a byte order mark
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '<') return read_msccl(text);
  if (first != std::string_view::npos && text[first] == '{') return read_mscclpp(text, iterations);
  throw Error("is neither XML of MSCCL nor JSON of MSCCL++");
}

}  // namespace param_sync::foreign
