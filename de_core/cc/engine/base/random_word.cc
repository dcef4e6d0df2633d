#include "de_core/cc/engine/base/random_word.h"

#include <sys/random.h>

#include <chrono>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {

uint64_t RandomWord() noexcept {
  uint64_t word = 0;
  if (getrandom(&word, sizeof(word), GRND_NONBLOCK) == sizeof(word)) return word;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return Mix64(static_cast<uint64_t>(now) ^ Mix64(reinterpret_cast<uintptr_t>(&word)));
}

}  // namespace de::engine
