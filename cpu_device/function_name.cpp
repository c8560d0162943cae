#include "cpu_device/pool.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace cpu_device::detail {

namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  char* const name = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  if (status != 0) return symbol;
  std::string result(name);
  std::free(name);
  return result;
}

template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T* out, std::size_t count) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(count * sizeof(T))));
}

/// Programs do not export their kernels, so the loader does not know their names, but the file's symbol table does.
std::string from_symbol_table(const char* path, std::uint64_t offset_in_image) {
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) header;
  if (!read_at(file, 0, &header, 1) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  if (!read_at(file, header.e_shoff, sections.data(), sections.size())) return {};
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    std::vector<ElfW(Sym)> symbols(section.sh_size / sizeof(ElfW(Sym)));
    std::string names(sections[section.sh_link].sh_size, '\0');
    if (!read_at(file, section.sh_offset, symbols.data(), symbols.size())) return {};
    if (!read_at(file, sections[section.sh_link].sh_offset, names.data(), names.size())) return {};
    for (const auto& symbol : symbols) {
      if (symbol.st_value == offset_in_image && (symbol.st_info & 0xf) == STT_FUNC && symbol.st_name < names.size()) {
        return demangled(names.c_str() + symbol.st_name);
      }
    }
  }
  return {};
}

}  // namespace

std::string function_name(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0) {
    if (info.dli_sname && info.dli_saddr == address) return demangled(info.dli_sname);
    const bool is_program = map && map->l_name && *map->l_name == '\0';
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - (map ? map->l_addr : 0);
    auto name = from_symbol_table(is_program ? "/proc/self/exe" : info.dli_fname, offset);
    if (!name.empty()) return name;
  }
  char text[32];
  std::snprintf(text, sizeof text, "at %p", address);
  return text;
}

}  // namespace cpu_device::detail
