// In place of the system's: looks up addresses and no names, so that no fuzzer asks a name server. Linked with --wrap.
#include <netdb.h>

extern "C" {
int __real_getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** list);

int __wrap_getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** list) {
  addrinfo numeric = *hints;
  numeric.ai_flags |= AI_NUMERICHOST;
  return __real_getaddrinfo(node, service, &numeric, list);
}
}
