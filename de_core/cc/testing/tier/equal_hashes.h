// Texts with equal hashes.
#ifndef DE_CORE_TESTING_EQUAL_HASHES_H_
#define DE_CORE_TESTING_EQUAL_HASHES_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine::testing {

/// Returns a text of 16 bytes. Its HashBytes depends on `group` only.
inline std::string TextOfGroup(uint64_t first, uint64_t group) {
  const uint64_t begin = 0x9e3779b97f4a7c15ULL ^ (16 * 0xff51afd7ed558ccdULL);
  const uint64_t behind = Mix64(begin ^ first) + 0x9e3779b97f4a7c15ULL;  // after 8 of 16 bytes
  const uint64_t second = behind ^ group;
  std::string text(16, '\0');
  std::memcpy(text.data(), &first, 8);
  std::memcpy(text.data() + 8, &second, 8);
  return text;
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_EQUAL_HASHES_H_
