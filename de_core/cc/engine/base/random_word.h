// Random numbers that nobody outside of the process can guess.
#ifndef DE_CORE_ENGINE_RANDOM_WORD_H_
#define DE_CORE_ENGINE_RANDOM_WORD_H_

#include <sys/random.h>

#include <chrono>
#include <cstdint>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {

/// Returns a new random word from the operating system. If the system has no entropy yet, computes
/// one from the clock and an address instead.
inline uint64_t RandomWord() noexcept {
  uint64_t word = 0;
  if (getrandom(&word, sizeof(word), GRND_NONBLOCK) == sizeof(word)) return word;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return Mix64(static_cast<uint64_t>(now) ^ Mix64(reinterpret_cast<uintptr_t>(&word)));
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RANDOM_WORD_H_
